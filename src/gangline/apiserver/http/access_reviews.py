"""Access reviews: requests that ask who a user is and what a user may do. They are answered, never stored.

The authorizer that decides about requests also answers what users may do.
"""

from collections.abc import Callable, Mapping
from functools import cache

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.apply.managed_fields import updated_managed_fields
from gangline.apiserver.auth.authentication import Authenticator
from gangline.apiserver.auth.authorizer import AUTHENTICATION_GROUP, AUTHORIZATION_GROUP, Authorizer
from gangline.apiserver.auth.reviewed_access import (
    attribute_problems,
    ignored_selectors_text,
    metadata_problems,
    reviewed_attributes,
    reviewed_user,
    selector_problems,
    subject_problems,
)
from gangline.apiserver.auth.service_account_tokens import API_AUDIENCES, TokenError
from gangline.apiserver.errors import StatusError
from gangline.apiserver.http.body import check_fields, check_kind
from gangline.apiserver.http.request_info import RequestInfo, RequestVerb
from gangline.apiserver.kinds.machinery.canonical import Canonicalizer, canonicalizer
from gangline.apiserver.kinds.machinery.gostruct import go_struct
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.registry.object_meta import check_namespace, ensure_metadata
from gangline.apiserver.registry.resources import builtin_resources
from gangline.apiserver.registry.served_kinds import builtin_served_kind
from gangline.apiserver.users import UserInfo, user_info
from gangline.schema.problems import FieldProblem, invalid, summary

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
    """The decoded object, which is completed in place."""
    manager: str
    now: str
    raw: bytes = b""
    """The bytes of the body, for strict validation."""
    field_validation: str = ""
    warnings: list[str] = []

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

    def kind_name(self, target: RequestInfo) -> str:
        """The kind of the review that a request creates."""
        return self._reviewers[target.group, target.plural][0]

    def check_verb(self, verb: RequestVerb, target: RequestInfo) -> None:
        """Check that a review is created, in a namespace if it is a local one. Raises `StatusError` (404, 405)."""
        is_local = target.plural == "localsubjectaccessreviews"
        if target.name or is_local is not bool(target.namespace):
            raise apierrors.no_such_resource()
        if verb is not RequestVerb.CREATE:
            raise apierrors.method_not_allowed()

    def review(self, request: ReviewRequest) -> JSON:
        """The review with its status. Raises `StatusError` if the review is invalid."""
        _, review = self._reviewers[request.info.group, request.info.plural]
        kind = _review_kind(request.info.group, request.info.plural)
        body, raw = request.body, request.raw or msgspec.json.encode(request.body)
        check_kind(kind, body)
        check_fields(kind, body, raw, request.field_validation, request.warnings.append)
        check_namespace(kind, request.info.namespace, ensure_metadata(body))
        body["kind"], body["apiVersion"] = kind.resource.kind, kind.resource.api_version
        _review_canonicalizer(kind.resource.group, kind.resource.kind).canonicalize(body)
        # No manager owns the status, which the server writes.
        sent = {name: value for name, value in body.items() if name != "status"}
        managed_fields = updated_managed_fields(
            None, sent, kind.managed_kind(), manager=request.manager, now=request.now
        )
        if managed_fields:
            body["metadata"]["managedFields"] = managed_fields
        return {"kind": body["kind"], "apiVersion": body["apiVersion"], **review(request)}

    def _review_token(self, request: ReviewRequest) -> JSON:
        token = request.spec.get("token") or ""
        if not token:
            raise apierrors.bad_request("token is required for TokenReview in authentication")
        try:
            found = self._authenticator.authenticate_token(token, request.spec.get("audiences") or API_AUDIENCES)
        except TokenError as error:
            return _review_response(request, {"user": {}, "error": str(error)})
        if found.warning:
            request.warnings.append(found.warning)
        status: JSON = {"authenticated": True, "user": user_info(found.user), "audiences": list(found.audiences)}
        return _review_response(request, status)

    def _self_access_review(self, request: ReviewRequest) -> JSON:
        metadata, spec = request.body["metadata"], request.spec
        problems = [*attribute_problems(spec), *selector_problems(spec)]
        _raise_invalid(request, [*problems, *metadata_problems(metadata, local=False)])
        return _review_response(request, self._access_status(request.user, request.spec))

    def _access_review(self, request: ReviewRequest) -> JSON:
        problems = _subject_review_problems(request.spec)
        _raise_invalid(request, [*problems, *metadata_problems(request.body["metadata"], local=False)])
        return _review_response(request, self._access_status(reviewed_user(request.spec), request.spec))

    def _local_access_review(self, request: ReviewRequest) -> JSON:
        spec, metadata = request.spec, request.body["metadata"]
        problems = [*_subject_review_problems(spec), *metadata_problems(metadata, local=True)]
        attributes = spec.get("resourceAttributes")
        if attributes is not None and (attributes.get("namespace") or "") != metadata["namespace"]:
            path, namespace = "spec.resourceAttributes.namespace", attributes.get("namespace") or ""
            problems.append(invalid(path, namespace, "must match metadata.namespace"))
        if spec.get("nonResourceAttributes") is not None:
            printed = go_struct(spec["nonResourceAttributes"], "Path Verb")
            problems.append(invalid("spec.nonResourceAttributes", printed, "disallowed on this kind of request"))
        _raise_invalid(request, problems)
        return _review_response(request, self._access_status(reviewed_user(spec), spec))

    def _access_status(self, user: UserInfo, spec: JSON) -> JSON:
        decision = self._authorizer.decide(reviewed_attributes(user, spec))
        status: JSON = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
        if ignored := ignored_selectors_text(spec):
            status["evaluationError"] = ignored
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


def _self_subject_review(request: ReviewRequest) -> JSON:
    return {"metadata": {"creationTimestamp": request.now}, "status": {"userInfo": user_info(request.user)}}


def _subject_review_problems(spec: JSON) -> list[FieldProblem]:
    return [*attribute_problems(spec), *subject_problems(spec), *selector_problems(spec)]


def _raise_invalid(request: ReviewRequest, problems: list[FieldProblem]) -> None:
    if not problems:
        return
    group = request.info.group
    # kube-apiserver names no kind here.
    text = f'.{group} "" is invalid: {summary(problems)}'
    details: JSON = {"group": group, "causes": apierrors.problem_causes(problems)}
    raise StatusError(422, text, reason="Invalid", details=details)


@cache
def _review_kind(group: str, plural: str) -> ServedKind:
    resource = next(item for item in builtin_resources() if item.group_resource == (group, plural))
    return builtin_served_kind(resource)


@cache
def _review_canonicalizer(group: str, kind: str) -> Canonicalizer:
    return canonicalizer(f"{group.partition('.')[0]}.v1.{kind}")


def _review_response(request: ReviewRequest, status: JSON) -> JSON:
    return {"metadata": request.body["metadata"], "spec": request.spec, "status": status}
