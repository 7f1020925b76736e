"""The default roles of a new store, and of one that has been changed."""

import json

import pytest

from gangline.api.meta import JSON
from gangline.apiserver.auth.default_roles import AUTO_UPDATE_ANNOTATION, ensure_default_roles
from gangline.apiserver.auth.role_index import RBAC_PREFIX
from gangline.apiserver.store.records import StoreWrite
from gangline.apiserver.store.store import Store

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
VIEWER, ADMIN = "clusterroles//system:public-info-viewer", "clusterroles//admin"
DISCOVERY = "clusterrolebindings//system:discovery"


class DefaultRoles:
    """The RBAC objects of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def get(self, path: str) -> JSON:
        record = self.store.get(f"{RBAC_PREFIX}{path}")
        assert record is not None
        role: JSON = json.loads(record.data)
        return role

    async def put(self, path: str, body: JSON | None) -> None:
        record = self.store.get(f"{RBAC_PREFIX}{path}")
        await self.store.commit(StoreWrite(f"{RBAC_PREFIX}{path}", body, 0 if record is None else record.revision))

    async def restart(self) -> None:
        await ensure_default_roles(self.store, LATER)


@pytest.fixture
def roles(role_store: Store) -> DefaultRoles:
    return DefaultRoles(role_store)


def test_a_new_store_has_the_roles_of_kube_apiserver(roles: DefaultRoles) -> None:
    counts = {
        plural: roles.store.count(f"{RBAC_PREFIX}{plural}/") for plural in ("clusterroles", "clusterrolebindings")
    }
    assert counts == {"clusterroles": 68, "clusterrolebindings": 49}
    viewer = roles.get(VIEWER)
    assert viewer["metadata"]["creationTimestamp"] == viewer["metadata"]["managedFields"][0]["time"] == NOW
    assert len({roles.get(path)["metadata"]["uid"] for path in (VIEWER, ADMIN, DISCOVERY)}) == 3
    assert roles.get(ADMIN)["rules"], "aggregated roles have their rules from the start"


async def test_a_second_start_changes_nothing(roles: DefaultRoles) -> None:
    revision = roles.store.revision
    await roles.restart()
    assert roles.store.revision == revision


async def test_what_was_removed_comes_back_and_what_was_added_stays(roles: DefaultRoles) -> None:
    viewer, discovery = roles.get(VIEWER), roles.get(DISCOVERY)
    own_rule = {"verbs": ["get"], "nonResourceURLs": ["/own"]}
    await roles.put(VIEWER, {**viewer, "rules": [{**viewer["rules"][0], "nonResourceURLs": ["/livez"]}, own_rule]})
    await roles.put(DISCOVERY, {**discovery, "subjects": [{"kind": "User", "name": "jane"}]})
    await roles.put(ADMIN, None)
    await roles.restart()
    rules = roles.get(VIEWER)["rules"]
    assert own_rule in rules
    assert {"verbs": ["get"], "nonResourceURLs": ["/version"]} in rules
    assert [subject["name"] for subject in roles.get(DISCOVERY)["subjects"]] == ["jane", "system:authenticated"]
    assert roles.get(ADMIN)["metadata"]["creationTimestamp"] == LATER


async def test_a_binding_to_another_role_is_made_anew(roles: DefaultRoles) -> None:
    discovery = roles.get(DISCOVERY)
    await roles.put(DISCOVERY, {**discovery, "roleRef": {**discovery["roleRef"], "name": "view"}})
    await roles.restart()
    assert roles.get(DISCOVERY)["roleRef"] == discovery["roleRef"]
    assert roles.get(DISCOVERY)["metadata"]["uid"] != discovery["metadata"]["uid"]


async def test_an_object_that_is_not_to_be_updated_stays_as_it_is(roles: DefaultRoles) -> None:
    viewer = roles.get(VIEWER)
    viewer["metadata"]["annotations"][AUTO_UPDATE_ANNOTATION] = "false"
    await roles.put(VIEWER, {**viewer, "rules": []})
    await roles.restart()
    assert roles.get(VIEWER)["rules"] == []


async def test_rules_of_aggregated_roles_are_left_to_the_controller(roles: DefaultRoles) -> None:
    admin = roles.get(ADMIN)
    selectors = admin["aggregationRule"]["clusterRoleSelectors"]
    other = {"matchLabels": {"x": "y"}}
    await roles.put(ADMIN, {**admin, "rules": [], "aggregationRule": {"clusterRoleSelectors": [other]}})
    await roles.restart()
    assert roles.get(ADMIN)["rules"] == []
    assert roles.get(ADMIN)["aggregationRule"]["clusterRoleSelectors"] == [other, *selectors]
