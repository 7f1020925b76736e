"""Role-based access control, as kube-apiserver decides it."""

from collections.abc import Iterable

from gangline.api.meta import JSON
from gangline.apiserver.auth.attributes import AccessAttributes
from gangline.apiserver.auth.authorizer import AccessDecision, AccessRules
from gangline.apiserver.auth.policy_rules import PolicyRule, rule_allows
from gangline.apiserver.auth.role_index import RBAC_GROUP, RoleGrant, RoleIndex
from gangline.apiserver.users import UserInfo
from gangline.schema.go_text import quoted_text

_MASTER_DECISION = AccessDecision(allowed=True)


class RbacAuthorizer:
    """Allows what the roles of a user allow, and everything to `system:masters`."""

    def __init__(self, index: RoleIndex) -> None:
        self._index = index

    def decide(self, attributes: AccessAttributes) -> AccessDecision:
        user = attributes.user
        if user.is_master:
            return _MASTER_DECISION
        grants = self._index.grants(user, attributes.namespace)
        for grant in grants:
            for rule in grant.rules:
                if rule_allows(rule, attributes):
                    return AccessDecision(allowed=True, reason=f"RBAC: allowed by {grant.source}")
        errors = _missing_roles_text(grants)
        return AccessDecision(allowed=False, reason=f"RBAC: {errors}" if errors else "")

    def rules(self, user: UserInfo, namespace: str) -> AccessRules:
        grants = self._index.grants(user, namespace)
        rules = [rule for grant in grants for rule in grant.rules]
        return AccessRules(
            tuple(_resource_rule(rule) for rule in rules if rule.resources),
            tuple({"verbs": list(rule.verbs), "nonResourceURLs": list(rule.urls)} for rule in rules if rule.urls),
            _missing_roles_text(grants),
        )


def aggregate_text(errors: Iterable[str]) -> str:
    """Several errors as Go's aggregate prints them: each text once, in brackets if there are more than one."""
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]" if distinct else ""


def _missing_roles_text(grants: Iterable[RoleGrant]) -> str:
    missing = (grant.missing for grant in grants if grant.missing is not None)
    return aggregate_text(f"{role.kind.lower()}.{RBAC_GROUP} {quoted_text(role.name)} not found" for role in missing)


def _resource_rule(rule: PolicyRule) -> JSON:
    json: JSON = {
        "verbs": list(rule.verbs),
        "apiGroups": list(rule.api_groups),
        "resources": list(rule.resources),
    }
    return {**json, "resourceNames": list(rule.resource_names)} if rule.resource_names else json
