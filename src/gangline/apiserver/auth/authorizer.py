"""What every authorizer offers, and the authorizers that read no objects."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.auth.attributes import AccessAttributes, AccessDenied
from gangline.apiserver.users import UserInfo

AUTHENTICATION_GROUP, AUTHORIZATION_GROUP = "authentication.k8s.io", "authorization.k8s.io"


class AccessDecision(msgspec.Struct, frozen=True):
    """Whether a request is allowed, and why."""

    allowed: bool
    reason: str = ""


class AccessRules(msgspec.Struct, frozen=True):
    """All that a user may do in a namespace, as a SelfSubjectRulesReview shows it."""

    resource_rules: tuple[JSON, ...]
    nonresource_rules: tuple[JSON, ...]
    evaluation_error: str = ""
    """Roles that could not be resolved. The rules are complete without them."""


class Authorizer(Protocol):
    """Decides what users may do."""

    def decide(self, attributes: AccessAttributes) -> AccessDecision: ...

    def rules(self, user: UserInfo, namespace: str) -> AccessRules:
        """All that the user may do in the namespace."""
        ...


def check_access(
    authorizer: Authorizer, attributes: AccessAttributes, record: Callable[[AccessDecision], None] | None = None
) -> None:
    """Raise `AccessDenied` (403) unless the authorizer allows this. `record` gets the decision."""
    decision = authorizer.decide(attributes)
    if record is not None:
        record(decision)
    if not decision.allowed:
        raise AccessDenied(attributes, decision.reason)


ALL_RESOURCES: JSON = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
ALL_PATHS: JSON = {"verbs": ["*"], "nonResourceURLs": ["*"]}


class AlwaysAllow:
    """Allows everything to everybody, like `--authorization-mode AlwaysAllow` of kube-apiserver."""

    def decide(self, attributes: AccessAttributes) -> AccessDecision:
        return AccessDecision(allowed=True)

    def rules(self, user: UserInfo, namespace: str) -> AccessRules:
        return AccessRules((ALL_RESOURCES,), (ALL_PATHS,))


READ_VERBS = ("get", "list", "watch")
READ_RESOURCES: JSON = {"verbs": [*READ_VERBS], "apiGroups": ["*"], "resources": ["*"]}
READ_PATHS: JSON = {"verbs": ["get"], "nonResourceURLs": ["*"]}


class ReadOnly:
    """Allows everybody to read everything and to ask for their rights, and nothing else: for a server of the past."""

    def decide(self, attributes: AccessAttributes) -> AccessDecision:
        allowed = attributes.verb in READ_VERBS or attributes.group in (AUTHENTICATION_GROUP, AUTHORIZATION_GROUP)
        return AccessDecision(allowed=allowed, reason="" if allowed else "the past cannot be changed")

    def rules(self, user: UserInfo, namespace: str) -> AccessRules:
        return AccessRules((READ_RESOURCES,), (READ_PATHS,))
