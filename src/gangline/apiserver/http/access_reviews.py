"""Reviews: questions about who somebody is and what they may do. Answered and forgotten, never stored.

They tell what `auth.py` does: members of `system:masters` may do everything, others may look at versions and health
and ask about themselves.
"""

from collections.abc import Callable, Mapping
from functools import cache

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.apply.managed import updated_managed_fields
from gangline.apiserver.apply.tracked import ManagedKind, managed_kind
from gangline.apiserver.errors import StatusError
from gangline.apiserver.http.authentication import PUBLIC_PATHS, Authenticator, UserInfo, authorize
from gangline.apiserver.http.routes import RequestInfo, RequestVerb
from gangline.apiserver.kinds.machinery.gostruct import go_struct
from gangline.schema.problems import FieldProblem, invalid, summary
from gangline.schema.typed.openapi import builtin_type
from gangline.schema.typed.strict_decoding import DecodingChecker

AUTHENTICATION_GROUP, AUTHORIZATION_GROUP = "authentication.k8s.io", "authorization.k8s.io"
API_AUDIENCE = "https://kubernetes.default.svc"
"""Whom a token of ours is for, unless it says otherwise."""

# Everybody with a name may ask about themselves.
_SELF_REVIEWS = frozenset({"selfsubjectreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"})


class ReviewRequest(msgspec.Struct, frozen=True):
    """A review that was sent, and by whom."""

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
    """Answers reviews."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._reviewers: Mapping[tuple[str, str], tuple[str, Callable[[ReviewRequest], JSON]]] = {
            (AUTHENTICATION_GROUP, "selfsubjectreviews"): ("SelfSubjectReview", _self_subject_review),
            (AUTHENTICATION_GROUP, "tokenreviews"): ("TokenReview", self._review_token),
            (AUTHORIZATION_GROUP, "selfsubjectaccessreviews"): (
                "SelfSubjectAccessReview",
                _self_access_review,
            ),
            (AUTHORIZATION_GROUP, "subjectaccessreviews"): ("SubjectAccessReview", _access_review),
            (AUTHORIZATION_GROUP, "localsubjectaccessreviews"): (
                "LocalSubjectAccessReview",
                _local_access_review,
            ),
            (AUTHORIZATION_GROUP, "selfsubjectrulesreviews"): ("SelfSubjectRulesReview", _rules_review),
        }

    def __contains__(self, target: RequestInfo) -> bool:
        return target.version == "v1" and (target.group, target.plural) in self._reviewers

    def authorize(self, user: UserInfo, verb: RequestVerb, target: RequestInfo) -> None:
        """May they ask this? Raises `Refused`: 403, or 405 for anything but creating."""
        named = "system:authenticated" in user.groups
        if not (named and verb is RequestVerb.CREATE and target.plural in _SELF_REVIEWS):
            authorize(user, verb, target)
        local = target.plural == "localsubjectaccessreviews"
        if verb is not RequestVerb.CREATE or target.name or local is not bool(target.namespace):
            raise apierrors.method_not_allowed()

    def review(self, question: ReviewRequest) -> JSON:
        """The review with its status. Raises `Refused` for one that makes no sense."""
        kind, review = self._reviewers[question.info.group, question.info.plural]
        version = question.api_version
        sent = (question.body.get("apiVersion") or version, question.body.get("kind") or kind)
        if sent != (version, kind):
            raise apierrors.bad_request(f"the body is a {sent[1]} of {sent[0]}, not a {kind} of {version}")
        body = {**question.body, "apiVersion": version, "kind": kind}
        wrong = _review_decoder(version, kind).errors(msgspec.json.encode(body), body).error
        if wrong:
            raise apierrors.bad_request(
                f'{kind} in version "{question.info.version}" cannot be handled as a {kind}: {wrong}'
            )
        return {"kind": kind, "apiVersion": version, **review(msgspec.structs.replace(question, body=body))}

    def _review_token(self, question: ReviewRequest) -> JSON:
        token = question.spec.get("token") or ""
        if not token:
            raise apierrors.bad_request("token is required for TokenReview in authentication")
        wanted = question.spec.get("audiences") or [API_AUDIENCE]
        try:
            user = self._authenticator.authenticate(f"Bearer {token}", None)
        except StatusError:
            return _review_response(question, {"user": {}})
        if API_AUDIENCE not in wanted:
            return _review_response(question, {"user": {}})
        found: JSON = {"authenticated": True, "user": _user_info(user), "audiences": [API_AUDIENCE]}
        return _review_response(question, found)


def is_allowed(user: UserInfo, spec: JSON) -> bool:
    """Whether the server would let somebody do what a review names."""
    if user.is_master:
        return True
    named = "system:authenticated" in user.groups
    path = spec.get("nonResourceAttributes")
    if path is not None:
        return path.get("verb") == "get" and path.get("path") in PUBLIC_PATHS
    asked = spec["resourceAttributes"]
    own = asked.get("resource") in _SELF_REVIEWS and asked.get("verb") == "create"
    return named and own and asked.get("group") in (AUTHENTICATION_GROUP, AUTHORIZATION_GROUP)


def _self_subject_review(question: ReviewRequest) -> JSON:
    return {
        "metadata": {"creationTimestamp": question.now},
        "status": {"userInfo": _user_info(question.user)},
    }


def _user_info(user: UserInfo) -> JSON:
    told: JSON = {"username": user.name}
    if user.uid:
        told["uid"] = user.uid
    if user.groups:
        told["groups"] = list(user.groups)
    if user.extra:
        told["extra"] = {name: list(values) for name, values in user.extra.items()}
    return told


def _self_access_review(question: ReviewRequest) -> JSON:
    _raise_invalid(question, _attribute_problems(question.spec))
    return _review_response(question, {"allowed": is_allowed(question.user, question.spec)})


def _access_review(question: ReviewRequest) -> JSON:
    _raise_invalid(question, [*_attribute_problems(question.spec), *_subject_problems(question.spec)])
    return _review_response(question, {"allowed": is_allowed(_reviewed_user(question.spec), question.spec)})


def _local_access_review(question: ReviewRequest) -> JSON:
    spec, namespace = question.spec, question.info.namespace
    found = [*_attribute_problems(spec), *_subject_problems(spec)]
    if spec.get("nonResourceAttributes") is not None:
        shown = go_struct(spec["nonResourceAttributes"], "Path Verb")
        found.append(invalid("spec.nonResourceAttributes", shown, "disallowed on this kind of request"))
    _raise_invalid(question, found)
    if spec["resourceAttributes"].get("namespace", "") != namespace:
        raise apierrors.bad_request(f"spec.resourceAttributes.namespace must match namespace: {namespace}")
    answer = _review_response(question, {"allowed": is_allowed(_reviewed_user(spec), spec)})
    answer["metadata"]["namespace"] = namespace
    return answer


def _rules_review(question: ReviewRequest) -> JSON:
    if not question.spec.get("namespace"):
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
    if question.user.is_master:
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
        told = "cannot be specified in combination with resourceAttributes"
        return [invalid("spec.nonResourceAttributes", go_struct(path, "Path Verb"), told)]
    if resource is None and path is None:
        told = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [invalid("spec.resourceAttributes", None, told)]
    return []


def _subject_problems(spec: JSON) -> list[FieldProblem]:
    if spec.get("user") or spec.get("groups"):
        return []
    return [invalid("spec.user", "", "at least one of user or group must be specified")]


def _raise_invalid(question: ReviewRequest, problems: list[FieldProblem]) -> None:
    if not problems:
        return
    group = question.info.group
    causes = [{"reason": p.kind.reason, "message": p.message, "field": p.field} for p in problems]
    # The real server names no kind here.
    text = f'.{group} "" is invalid: {summary(problems)}'
    raise StatusError(422, text, reason="Invalid", details={"group": group, "causes": causes})


@cache
def _review_decoder(version: str, kind: str) -> DecodingChecker:
    return DecodingChecker(builtin_type(version, kind))


@cache
def _managed_review(version: str, kind: str) -> ManagedKind:
    return managed_kind(version, kind, builtin_type(version, kind))


def _review_response(question: ReviewRequest, status: JSON) -> JSON:
    """The review as it came, with its status; whoever sent it owns its fields, as everywhere."""
    metadata = dict(question.body.get("metadata") or {})
    sent = {**question.body, "metadata": metadata}
    managed = updated_managed_fields(
        None,
        sent,
        _managed_review(question.api_version, sent["kind"]),
        manager=question.manager,
        now=question.now,
    )
    if managed:
        metadata["managedFields"] = managed
    return {"metadata": metadata, "spec": question.spec, "status": status}
