"""Access reviews: requests that ask who a user is and what a user may do. They are answered, never stored.

The authorizer that decides about requests also answers what users may do.
"""

from collections.abc import Callable, Mapping
from functools import cache

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.apply.managed_fields import updated_managed_fields
from gangline.apiserver.apply.managed_kind import ManagedKind, managed_kind
from gangline.apiserver.auth.attributes import AccessAttributes
from gangline.apiserver.auth.authentication import Authenticator
from gangline.apiserver.auth.authorizer import AUTHENTICATION_GROUP, AUTHORIZATION_GROUP, Authorizer
from gangline.apiserver.auth.service_account_tokens import API_AUDIENCES, TokenError
from gangline.apiserver.errors import StatusError
from gangline.apiserver.http.request_info import RequestInfo, RequestVerb
from gangline.apiserver.kinds.machinery.gostruct import go_struct
from gangline.apiserver.users import UserInfo
from gangline.schema.problems import FieldProblem, invalid, summary
from gangline.schema.typed.openapi import builtin_type
from gangline.schema.typed.strict_decoding import DecodingChecker

EMPTY_STATUSES: Mapping[str, JSON] = {
    "SelfSubjectReview": {"userInfo": {}},
    "TokenReview": {"user": {}},
    "SelfSubjectRulesReview": {"resourceRules": None, "nonResourceRules": None, "incomplete": False},
}
"""What Go encodes of a status without an answer, by kind."""


def unanswered_review(review: JSON) -> JSON:
    """A review as it was asked, for the audit log."""
    sent: JSON = {key: review[key] for key in ("kind", "apiVersion", "spec") if key in review}
    return {"metadata": {}, **sent, "status": EMPTY_STATUSES.get(review["kind"], {"allowed": False})}


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

    def __init__(self, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._authenticator, self._authorizer = authenticator, authorizer
        self._reviewers: Mapping[tuple[str, str], tuple[str, Callable[[ReviewRequest], JSON]]] = {
            (AUTHENTICATION_GROUP, "selfsubjectreviews"): ("SelfSubjectReview", _self_subject_review),
            (AUTHENTICATION_GROUP, "tokenreviews"): ("TokenReview", self._review_token),
            (AUTHORIZATION_GROUP, "selfsubjectaccessreviews"): ("SelfSubjectAccessReview", self._self_access_review),
            (AUTHORIZATION_GROUP, "subjectaccessreviews"): ("SubjectAccessReview", self._access_review),
            (AUTHORIZATION_GROUP, "localsubjectaccessreviews"): ("LocalSubjectAccessReview", self._local_access_review),
            (AUTHORIZATION_GROUP, "selfsubjectrulesreviews"): ("SelfSubjectRulesReview", self._rules_review),
        }

    def __contains__(self, target: RequestInfo) -> bool:
        return target.version == "v1" and (target.group, target.plural) in self._reviewers

    def check_verb(self, verb: RequestVerb, target: RequestInfo) -> None:
        """Check that a review is created, in a namespace if it is a local one. Raises `StatusError` (405)."""
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
        try:
            found = self._authenticator.authenticate_token(token, request.spec.get("audiences") or API_AUDIENCES)
        except TokenError as error:
            return _review_response(request, {"user": {}, "error": str(error)})
        status: JSON = {"authenticated": True, "user": _user_info(found.user), "audiences": list(found.audiences)}
        return _review_response(request, status)

    def _self_access_review(self, request: ReviewRequest) -> JSON:
        _raise_invalid(request, _attribute_problems(request.spec))
        return _review_response(request, self._access_status(request.user, request.spec))

    def _access_review(self, request: ReviewRequest) -> JSON:
        _raise_invalid(request, [*_attribute_problems(request.spec), *_subject_problems(request.spec)])
        return _review_response(request, self._access_status(_reviewed_user(request.spec), request.spec))

    def _local_access_review(self, request: ReviewRequest) -> JSON:
        spec, namespace = request.spec, request.info.namespace
        problems = [*_attribute_problems(spec), *_subject_problems(spec)]
        if spec.get("nonResourceAttributes") is not None:
            attributes = go_struct(spec["nonResourceAttributes"], "Path Verb")
            problems.append(invalid("spec.nonResourceAttributes", attributes, "disallowed on this kind of request"))
        _raise_invalid(request, problems)
        if spec["resourceAttributes"].get("namespace", "") != namespace:
            raise apierrors.bad_request(f"spec.resourceAttributes.namespace must match namespace: {namespace}")
        review = _review_response(request, self._access_status(_reviewed_user(spec), spec))
        review["metadata"]["namespace"] = namespace
        return review

    def _access_status(self, user: UserInfo, spec: JSON) -> JSON:
        decision = self._authorizer.decide(reviewed_attributes(user, spec))
        status: JSON = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
        return status

    def _rules_review(self, request: ReviewRequest) -> JSON:
        namespace = request.spec.get("namespace")
        if not namespace:
            raise apierrors.bad_request("no namespace on request")
        rules = self._authorizer.rules(request.user, namespace)
        status: JSON = {
            "resourceRules": list(rules.resource_rules),
            "nonResourceRules": list(rules.nonresource_rules),
            "incomplete": False,
        }
        if rules.evaluation_error:
            status["evaluationError"] = rules.evaluation_error
        return {"metadata": {}, "spec": {}, "status": status}


def reviewed_attributes(user: UserInfo, spec: JSON) -> AccessAttributes:
    """What the spec of an access review asks about."""
    nonresource = spec.get("nonResourceAttributes")
    if nonresource is not None:
        return AccessAttributes(user, nonresource.get("verb") or "", path=nonresource.get("path") or "")
    attributes = {name: value or "" for name, value in spec["resourceAttributes"].items()}
    return AccessAttributes(
        user,
        attributes.get("verb", ""),
        attributes.get("group", ""),
        attributes.get("version", ""),
        attributes.get("resource", ""),
        attributes.get("subresource", ""),
        attributes.get("namespace", ""),
        attributes.get("name", ""),
    )


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
