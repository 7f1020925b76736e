"""The role of pods is bound in every namespace, and grants nothing beyond it."""

import asyncio
from datetime import timedelta
from unittest.mock import AsyncMock

import pytest

from gangline.api.meta import Key
from gangline.apiserver.auth.role_index import RBAC_GROUP
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.store.errors import StoreFailed
from gangline.local.controllers.pod_access import POD_ROLE, POD_RULES, PodAccessController
from gangline.testing.clock import FakeClock, settle
from support.servers.plane import registry_harness


async def test_role_is_bound_to_the_service_accounts_of_each_namespace() -> None:
    async with registry_harness(FakeClock()) as registry:
        controller = PodAccessController(registry.registry, FakeClock())
        for _ in range(2):  # a second start changes nothing
            await controller.ensure_role()
        binding = registry.get("rolebindings", POD_ROLE, RBAC_GROUP)
        assert binding["subjects"] == [{"apiGroup": RBAC_GROUP, "kind": "Group", "name": "system:serviceaccounts:ns"}]
        assert binding["roleRef"]["name"] == POD_ROLE
        role = registry.registry.get(registry.entry("clusterroles", RBAC_GROUP), Key("", POD_ROLE))
        assert len(decode_record(role)["rules"]) == len(POD_RULES)


async def test_binding_that_could_not_be_written_is_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    async with registry_harness(clock) as registry, asyncio.TaskGroup() as group:
        running = group.create_task(PodAccessController(registry.registry, clock).run())
        await settle()
        with monkeypatch.context() as patch:
            create = AsyncMock(side_effect=StoreFailed("no space"))
            await registry.create("namespaces", {"metadata": {"name": "new"}})
            patch.setattr(registry.registry, "create", create)
            await settle()
            assert create.await_count == 1
        await clock.advance(timedelta(seconds=10))
        key, kind = Key("new", POD_ROLE), registry.entry("rolebindings", RBAC_GROUP)
        assert decode_record(registry.registry.get(kind, key))["roleRef"]["name"] == POD_ROLE
        running.cancel()


def test_role_grants_neither_secrets_nor_roles_nor_accounts() -> None:
    granted = {(group, resource) for group, resources, _ in POD_RULES for resource in resources}
    groups = {group for group, _ in granted}
    assert not groups & {"*", RBAC_GROUP, "authentication.k8s.io", "authorization.k8s.io"}
    core = {resource for group, resource in granted if group == ""}
    assert not core & {"*", "secrets", "serviceaccounts", "serviceaccounts/token", "nodes", "namespaces"}
    verbs = {verb for _, _, verbs in POD_RULES for verb in verbs}
    assert not verbs & {"*", "bind", "escalate", "impersonate"}
