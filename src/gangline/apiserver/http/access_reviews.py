"""Access reviews: requests that ask who a user is and what a user may do. They are answered, never stored.

The answers describe `authentication.py`: members of `system:masters` may do everything, other users may read version
and health and ask about themselves.
"""

from collections.abc import Callable, Mapping
from functools import cache

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.apply.managed_fields import updated_managed_fields
from gangline.apiserver.apply.managed_kind import ManagedKind, managed_kind
from gangline.apiserver.errors import StatusError
from gangline.apiserver.http.authentication import PUBLIC_PATHS, Authenticator, UserInfo, authorize
from gangline.apiserver.http.request_info import RequestInfo, RequestVerb
from gangline.apiserver.kinds.machinery.gostruct import go_struct
from gangline.schema.problems import FieldProblem, invalid, summary
from gangline.schema.typed.openapi import builtin_type
from gangline.schema.typed.strict_decoding import DecodingChecker

AUTHENTICATION_GROUP, AUTHORIZATION_GROUP = "authentication.k8s.io", "authorization.k8s.io"
API_AUDIENCE = "https://kubernetes.default.svc"
"""The audience of our tokens, if a TokenReview names none."""

# Every authenticated user may create these.
_SELF_REVIEWS = frozenset({"selfsubjectreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"})


class ReviewRequest(msgspec.Struct, frozen=True):
    """A review, and the user who sent it."""

    user: UserInfo
    info: RequestInfo
    body: JSON
    manager: str
    now: str

    @property
    def api_version(self) -> str:
        return f"{self.info.group}/{self.info.version}"

    @property
    def spec(self) -> JSON:
        return self.body.get("spec") or {}


class ReviewHandler:
    """Answers access reviews."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._reviewers: Mapping[tuple[str, str], tuple[str, Callable[[ReviewRequest], JSON]]] = {
            (AUTHENTICATION_GROUP, "selfsubjectreviews"): ("SelfSubjectReview", _self_subject_review),
            (AUTHENTICATION_GROUP, "tokenreviews"): ("TokenReview", self._review_token),
            (AUTHORIZATION_GROUP, "selfsubjectaccessreviews"): ("SelfSubjectAccessReview", _self_access_review),
            (AUTHORIZATION_GROUP, "subjectaccessreviews"): ("SubjectAccessReview", _access_review),
            (AUTHORIZATION_GROUP, "localsubjectaccessreviews"): ("LocalSubjectAccessReview", _local_access_review),
            (AUTHORIZATION_GROUP, "selfsubjectrulesreviews"): ("SelfSubjectRulesReview", _rules_review),
        }

    def __contains__(self, target: RequestInfo) -> bool:
        return target.version == "v1" and (target.group, target.plural) in self._reviewers

    def authorize(self, user: UserInfo, verb: RequestVerb, target: RequestInfo) -> None:
        """Check that the user may create this review. Raises `StatusError`: 403, or 405 for any verb but create."""
        if not (user.is_authenticated and verb is RequestVerb.CREATE and target.plural in _SELF_REVIEWS):
            authorize(user, verb, target)
        is_local = target.plural == "localsubjectaccessreviews"
        if verb is not RequestVerb.CREATE or target.name or is_local is not bool(target.namespace):
            raise apierrors.method_not_allowed()

    def review(self, request: ReviewRequest) -> JSON:
        """The review with its status. Raises `StatusError` if the review is invalid."""
        kind, review = self._reviewers[request.info.group, request.info.plural]
        version = request.api_version
        sent_kind = (request.body.get("apiVersion") or version, request.body.get("kind") or kind)
        if sent_kind != (version, kind):
            raise apierrors.bad_request(f"the body is a {sent_kind[1]} of {sent_kind[0]}, not a {kind} of {version}")
        body = {**request.body, "apiVersion": version, "kind": kind}
        error = _review_decoder(version, kind).errors(msgspec.json.encode(body), body).error
        if error:
            raise apierrors.bad_request(
                f'{kind} in version "{request.info.version}" cannot be handled as a {kind}: {error}'
            )
        return {"kind": kind, "apiVersion": version, **review(msgspec.structs.replace(request, body=body))}

    def _review_token(self, request: ReviewRequest) -> JSON:
        token = request.spec.get("token") or ""
        if not token:
            raise apierrors.bad_request("token is required for TokenReview in authentication")
        audiences = request.spec.get("audiences") or [API_AUDIENCE]
        try:
            user = self._authenticator.authenticate(f"Bearer {token}", None)
        except StatusError:
            return _review_response(request, {"user": {}})
        if API_AUDIENCE not in audiences:
            return _review_response(request, {"user": {}})
        status: JSON = {"authenticated": True, "user": _user_info(user), "audiences": [API_AUDIENCE]}
        return _review_response(request, status)


def is_allowed(user: UserInfo, spec: JSON) -> bool:
    """Whether the server would allow the user what the spec of an access review describes."""
    if user.is_master:
        return True
    nonresource = spec.get("nonResourceAttributes")
    if nonresource is not None:
        return nonresource.get("verb") == "get" and nonresource.get("path") in PUBLIC_PATHS
    attributes = spec["resourceAttributes"]
    is_self_review = attributes.get("resource") in _SELF_REVIEWS and attributes.get("verb") == "create"
    is_auth_group = attributes.get("group") in (AUTHENTICATION_GROUP, AUTHORIZATION_GROUP)
    return user.is_authenticated and is_self_review and is_auth_group


def _self_subject_review(request: ReviewRequest) -> JSON:
    return {"metadata": {"creationTimestamp": request.now}, "status": {"userInfo": _user_info(request.user)}}


def _user_info(user: UserInfo) -> JSON:
    info: JSON = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {name: list(values) for name, values in user.extra.items()}
    return info


def _self_access_review(request: ReviewRequest) -> JSON:
    _raise_invalid(request, _attribute_problems(request.spec))
    return _review_response(request, {"allowed": is_allowed(request.user, request.spec)})


def _access_review(request: ReviewRequest) -> JSON:
    _raise_invalid(request, [*_attribute_problems(request.spec), *_subject_problems(request.spec)])
    return _review_response(request, {"allowed": is_allowed(_reviewed_user(request.spec), request.spec)})


def _local_access_review(request: ReviewRequest) -> JSON:
    spec, namespace = request.spec, request.info.namespace
    problems = [*_attribute_problems(spec), *_subject_problems(spec)]
    if spec.get("nonResourceAttributes") is not None:
        attributes = go_struct(spec["nonResourceAttributes"], "Path Verb")
        problems.append(invalid("spec.nonResourceAttributes", attributes, "disallowed on this kind of request"))
    _raise_invalid(request, problems)
    if spec["resourceAttributes"].get("namespace", "") != namespace:
        raise apierrors.bad_request(f"spec.resourceAttributes.namespace must match namespace: {namespace}")
    review = _review_response(request, {"allowed": is_allowed(_reviewed_user(spec), spec)})
    review["metadata"]["namespace"] = namespace
    return review


def _rules_review(request: ReviewRequest) -> JSON:
    if not request.spec.get("namespace"):
        raise apierrors.bad_request("no namespace on request")
    everything: JSON = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    resources: list[JSON] = [
        {
            "verbs": ["create"],
            "apiGroups": [AUTHORIZATION_GROUP],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        },
        {"verbs": ["create"], "apiGroups": [AUTHENTICATION_GROUP], "resources": ["selfsubjectreviews"]},
    ]
    paths: list[JSON] = [{"verbs": ["get"], "nonResourceURLs": sorted(PUBLIC_PATHS)}]
    if request.user.is_master:
        resources.insert(0, everything)
        paths.insert(0, {"verbs": ["*"], "nonResourceURLs": ["*"]})
    return {
        "metadata": {},
        "spec": {},
        "status": {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False},
    }


def _reviewed_user(spec: JSON) -> UserInfo:
    return UserInfo(spec.get("user") or "", tuple(spec.get("groups") or ()))


def _attribute_problems(spec: JSON) -> list[FieldProblem]:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        detail = "cannot be specified in combination with resourceAttributes"
        return [invalid("spec.nonResourceAttributes", go_struct(path, "Path Verb"), detail)]
    if resource is None and path is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [invalid("spec.resourceAttributes", None, detail)]
    return []


def _subject_problems(spec: JSON) -> list[FieldProblem]:
    if spec.get("user") or spec.get("groups"):
        return []
    return [invalid("spec.user", "", "at least one of user or group must be specified")]


def _raise_invalid(request: ReviewRequest, problems: list[FieldProblem]) -> None:
    if not problems:
        return
    group = request.info.group
    # kube-apiserver names no kind here.
    text = f'.{group} "" is invalid: {summary(problems)}'
    details: JSON = {"group": group, "causes": apierrors.problem_causes(problems)}
    raise StatusError(422, text, reason="Invalid", details=details)


@cache
def _review_decoder(version: str, kind: str) -> DecodingChecker:
    return DecodingChecker(builtin_type(version, kind))


@cache
def _managed_review(version: str, kind: str) -> ManagedKind:
    return managed_kind(version, kind, builtin_type(version, kind))


def _review_response(request: ReviewRequest, status: JSON) -> JSON:
    """The review with its status and with managedFields: its sender owns its fields."""
    metadata = dict(request.body.get("metadata") or {})
    body = {**request.body, "metadata": metadata}
    managed_fields = updated_managed_fields(
        None, body, _managed_review(request.api_version, body["kind"]), manager=request.manager, now=request.now
    )
    if managed_fields:
        metadata["managedFields"] = managed_fields
    return {"metadata": metadata, "spec": request.spec, "status": status}
