"""What every authorizer offers, and the authorizers that read no objects."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.auth.attributes import AccessAttributes, forbidden_error
from gangline.apiserver.users import UserInfo

AUTHENTICATION_GROUP, AUTHORIZATION_GROUP = "authentication.k8s.io", "authorization.k8s.io"
PUBLIC_PATHS = frozenset({"/version", "/version/", "/healthz", "/livez", "/readyz"})
SELF_REVIEWS = frozenset({"selfsubjectreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"})
"""Reviews that every authenticated user may create."""


class AccessDecision(msgspec.Struct, frozen=True):
    """Whether a request is allowed, and why."""

    allowed: bool
    reason: str = ""


class AccessRules(msgspec.Struct, frozen=True):
    """All that a user may do in a namespace, as a SelfSubjectRulesReview shows it."""

    resource_rules: tuple[JSON, ...]
    nonresource_rules: tuple[JSON, ...]
    evaluation_error: str = ""

    @property
    def is_incomplete(self) -> bool:
        return bool(self.evaluation_error)


class Authorizer(Protocol):
    """Decides what users may do."""

    def decide(self, attributes: AccessAttributes) -> AccessDecision: ...

    def rules(self, user: UserInfo, namespace: str) -> AccessRules:
        """All that the user may do in the namespace."""
        ...


def check_access(
    authorizer: Authorizer, attributes: AccessAttributes, record: Callable[[AccessDecision], None] | None = None
) -> None:
    """Raise `StatusError` (403) unless the authorizer allows this. `record` gets the decision."""
    decision = authorizer.decide(attributes)
    if record is not None:
        record(decision)
    if not decision.allowed:
        raise forbidden_error(attributes, decision.reason)


ALL_RESOURCES: JSON = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
ALL_PATHS: JSON = {"verbs": ["*"], "nonResourceURLs": ["*"]}


class AlwaysAllow:
    """Allows everything to everybody, like `--authorization-mode AlwaysAllow` of kube-apiserver."""

    def decide(self, attributes: AccessAttributes) -> AccessDecision:
        return AccessDecision(allowed=True)

    def rules(self, user: UserInfo, namespace: str) -> AccessRules:
        return AccessRules((ALL_RESOURCES,), (ALL_PATHS,))


class MastersOnly:
    """Allows everything to `system:masters`; to other users version, health, and reviews of themselves."""

    def decide(self, attributes: AccessAttributes) -> AccessDecision:
        user = attributes.user
        if user.is_master:
            return AccessDecision(allowed=True)
        if not attributes.is_resource_request:
            return AccessDecision(attributes.verb == "get" and attributes.path in PUBLIC_PATHS)
        is_review_group = attributes.group in (AUTHENTICATION_GROUP, AUTHORIZATION_GROUP)
        is_self_review = attributes.resource in SELF_REVIEWS and attributes.verb == "create"
        return AccessDecision(user.is_authenticated and is_review_group and is_self_review)

    def rules(self, user: UserInfo, namespace: str) -> AccessRules:
        resources: tuple[JSON, ...] = (
            {
                "verbs": ["create"],
                "apiGroups": [AUTHORIZATION_GROUP],
                "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
            },
            {"verbs": ["create"], "apiGroups": [AUTHENTICATION_GROUP], "resources": ["selfsubjectreviews"]},
        )
        paths: tuple[JSON, ...] = ({"verbs": ["get"], "nonResourceURLs": sorted(PUBLIC_PATHS)},)
        if user.is_master:
            return AccessRules((ALL_RESOURCES, *resources), (ALL_PATHS, *paths))
        return AccessRules(resources, paths)
