"""The rules of aggregated cluster roles: all rules of the cluster roles that their selectors match."""

from collections.abc import Iterable

from gangline.api.meta import JSON, Key
from gangline.api.selectors import LabelSelector, SelectorError
from gangline.apiserver.auth.role_index import RBAC_GROUP
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.registry.writes import WriteContext
from gangline.apiserver.store.paths import collection_prefix
from gangline.base.clock import Clock
from gangline.local.controllers.key_worker import KeyWorker
from gangline.local.registry_writes import ignore_status, storage_kind

AGGREGATION_CALL = WriteContext(field_manager="clusterrole-aggregation-controller")
CLUSTER_ROLES = collection_prefix(RBAC_GROUP, "clusterroles")
_AGGREGATED = b'"aggregationRule"'


class RoleAggregationController:
    """Keeps the rules of aggregated cluster roles up to date."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        # All roles are one key, because each may have the rules of any other.
        self._worker = KeyWorker("aggregation of cluster roles", lambda _: self._reconcile(), clock)

    async def run(self) -> None:
        """Reconcile at the start and after every change of a cluster role, until cancelled."""
        store = self._registry.store
        with store.watch(CLUSTER_ROLES, after=store.revision) as changes:
            self._worker.add(CLUSTER_ROLES)
            await self._worker.follow(changes, lambda _: self._worker.add(CLUSTER_ROLES))

    async def _reconcile(self) -> None:
        records = self._registry.store.range(CLUSTER_ROLES).records
        if not any(_AGGREGATED in record.data for record in records):
            return
        roles = [decode_record(record) for record in records]
        kind = storage_kind(self._registry, RBAC_GROUP, "clusterroles")
        for role in roles:
            if "aggregationRule" not in role:
                continue
            rules = aggregated_rules(role, roles)
            if rules is None or rules == (role.get("rules") or []):
                continue
            name = role["metadata"]["name"]
            config: JSON = {
                "kind": role["kind"],
                "apiVersion": role["apiVersion"],
                "metadata": {"name": name},
                "rules": rules,
            }
            with ignore_status(404, 409):  # it is deleted, or a later change is waiting
                await self._registry.apply(AGGREGATION_CALL, kind, Key("", name), config, force=True)


def aggregated_rules(role: JSON, roles: Iterable[JSON]) -> list[JSON] | None:
    """The rules that an aggregated role must have; None if its selectors cannot be parsed."""
    others = sorted((other for other in roles if other["metadata"]["name"] != role["metadata"]["name"]), key=_name)
    rules: list[JSON] = []
    for text in role["aggregationRule"].get("clusterRoleSelectors") or ():
        try:
            selector = LabelSelector.from_json(text)
        except SelectorError:
            return None
        for other in others:
            if selector.matches(other["metadata"].get("labels") or {}):
                rules += [rule for rule in other.get("rules") or () if rule not in rules]
    return rules


def _name(role: JSON) -> str:
    return str(role["metadata"]["name"])
