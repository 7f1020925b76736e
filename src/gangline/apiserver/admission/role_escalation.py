"""Nobody can grant rights that they do not hold, by a role or by a binding."""

from collections.abc import Sequence

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.auth.attributes import AccessAttributes
from gangline.apiserver.auth.authorizer import Authorizer
from gangline.apiserver.auth.policy_rules import (
    FULL_AUTHORITY,
    PolicyRule,
    go_list,
    missing_rules_text,
    policy_rules,
    uncovered_rules,
)
from gangline.apiserver.auth.rbac import aggregate_text
from gangline.apiserver.auth.role_index import RBAC_GROUP, RoleIndex, RoleReference
from gangline.apiserver.registry.admission import OBJECT_WRITES, AdmissionPlugin, AdmissionRequest
from gangline.apiserver.users import UserInfo
from gangline.schema.go_text import quoted_text

AGGREGATION_MESSAGE = "must have cluster-admin privileges to use the aggregationRule"
_GARBAGE_COLLECTOR_FIELDS = ("ownerReferences", "finalizers", "managedFields")


class RoleEscalation(AdmissionPlugin):
    """Refuses roles with rights that their author does not hold, and bindings of such roles.

    Exempt are `system:masters`, users with the verb `escalate` on the role, and users with the verb `bind` on the role
    that a binding names. In kube-apiserver this is no plugin: it is checked after all plugins, before validation.
    """

    name = "RoleEscalation"
    operations = OBJECT_WRITES
    resources = frozenset(
        (RBAC_GROUP, plural) for plural in ("roles", "clusterroles", "rolebindings", "clusterrolebindings")
    )

    def __init__(self, authorizer: Authorizer, index: RoleIndex) -> None:
        self._authorizer, self._index = authorizer, index

    def admit(self, request: AdmissionRequest) -> None:
        if request.context.user.is_master or _changes_only_garbage_collection(request.obj, request.old):
            return
        if "roleRef" in request.obj:
            self._check_binding(request)
        else:
            self._check_role(request)

    def _check_role(self, request: AdmissionRequest) -> None:
        resource, key, role = request.served_kind.resource, request.key, request.obj
        name = key.name if request.has_name_in_path else ""
        if self._is_allowed(request.context.user, "escalate", resource.plural, key.namespace, name):
            return
        self._check_held(request, policy_rules(role))
        if _is_aggregated(role) or (request.old is not None and _is_aggregated(request.old)):
            owned, _ = self._owned_rules(request)
            if uncovered_rules(owned, FULL_AUTHORITY):
                raise apierrors.forbidden(resource, _sent_name(request), AGGREGATION_MESSAGE)

    def _check_binding(self, request: AdmissionRequest) -> None:
        role, namespace = msgspec.convert(request.obj["roleRef"], RoleReference), request.key.namespace
        is_known_kind = role.kind in ("Role", "ClusterRole")
        if is_known_kind and self._is_allowed(request.context.user, "bind", role.plural, namespace, role.name):
            return
        if not is_known_kind:
            raise apierrors.untyped_error(f"unsupported role reference kind: {quoted_text(role.kind)}")
        rules = self._index.role_rules(role, namespace)
        if rules is None:
            # kube-apiserver names the resource of the request, not the role's.
            raise apierrors.not_found(request.served_kind.resource, role.name)
        self._check_held(request, rules)

    def _is_allowed(self, user: UserInfo, verb: str, plural: str, namespace: str, name: str) -> bool:
        attributes = AccessAttributes(user, verb, RBAC_GROUP, "*", plural, namespace=namespace, name=name)
        return self._authorizer.decide(attributes).allowed

    def _check_held(self, request: AdmissionRequest, rules: Sequence[PolicyRule]) -> None:
        """Check that the user holds all rules. Raises `StatusError` (403)."""
        owned, errors = self._owned_rules(request)
        missing = uncovered_rules(owned, rules)
        if not missing:
            return
        user = request.context.user
        text = (
            f"user {quoted_text(user.name)} (groups={go_list(user.groups)}) is attempting to grant RBAC permissions "
            f"not currently held:\n{missing_rules_text(missing)}"
        )
        if errors:
            text += f"; resolution errors: [{errors}]"
        raise apierrors.forbidden(request.served_kind.resource, _sent_name(request), text)

    def _owned_rules(self, request: AdmissionRequest) -> tuple[list[PolicyRule], str]:
        """What the user may do where the role or binding is, and the roles that could not be resolved."""
        grants = self._index.grants(request.context.user, request.key.namespace)
        missing = (grant.missing for grant in grants if grant.missing is not None)
        resource = request.served_kind.resource.qualified_name
        errors = aggregate_text(f"{resource} {quoted_text(role.name)} not found" for role in missing)
        return [rule for grant in grants for rule in grant.rules], errors


def _sent_name(request: AdmissionRequest) -> str:
    """The name that the client sent. kube-apiserver generates names after this check."""
    return "" if request.name_prefix else request.key.name


def _is_aggregated(role: JSON) -> bool:
    return bool((role.get("aggregationRule") or {}).get("clusterRoleSelectors"))


def _changes_only_garbage_collection(new: JSON, old: JSON | None) -> bool:
    return old is not None and _without_garbage_collection(new) == _without_garbage_collection(old)


def _without_garbage_collection(obj: JSON) -> JSON:
    metadata = {name: value for name, value in obj["metadata"].items() if name not in _GARBAGE_COLLECTOR_FIELDS}
    return {**obj, "metadata": metadata}
