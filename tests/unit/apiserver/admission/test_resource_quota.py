"""Charges to resource quotas, in a registry without a server."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gangline.api.meta import Key
from gangline.apiserver.errors import StatusError
from gangline.apiserver.store.sqlite import Durability, SqliteJournal
from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.testing.clock import settle
from support.property.stores import GatedJournal
from support.servers.plane import TEST_CALL, RegistryHarness, registry_harness

JSON = dict[str, Any]
STATUS_CALL = msgspec.structs.replace(TEST_CALL, subresource="status")


@pytest.fixture
async def harness() -> AsyncIterator[RegistryHarness]:
    async with registry_harness(SystemClock()) as made:
        yield made


async def make_quota(harness: RegistryHarness, hard: JSON, used: JSON) -> None:
    await harness.create("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    await set_status(harness, hard, used)


async def set_status(harness: RegistryHarness, hard: JSON, used: JSON) -> None:
    def change(old: JSON | None) -> JSON:
        assert old is not None
        return {**old, "status": {"hard": hard, "used": used}}

    await harness.registry.update(STATUS_CALL, harness.entry("resourcequotas"), Key("ns", "q"), change)


def used(harness: RegistryHarness) -> JSON:
    found: JSON = harness.get("resourcequotas", "q")["status"]["used"]
    return found


async def test_a_charge_is_the_apiservers(harness: RegistryHarness) -> None:
    await make_quota(harness, {"configmaps": "2"}, {"configmaps": "0"})
    await harness.create("configmaps", {"metadata": {"name": "a"}})
    quota = harness.get("resourcequotas", "q")
    assert quota["status"]["used"] == {"configmaps": "1"}
    owners = {entry["manager"]: entry["fieldsV1"] for entry in quota["metadata"]["managedFields"]}
    assert owners["kube-apiserver"] == {"f:status": {"f:used": {"f:configmaps": {}}}}


async def test_a_create_that_fails_is_not_charged(harness: RegistryHarness) -> None:
    await make_quota(harness, {"configmaps": "5"}, {"configmaps": "0"})
    await harness.create("configmaps", {"metadata": {"name": "a"}})
    with pytest.raises(StatusError) as caught:
        await harness.create("configmaps", {"metadata": {"name": "a"}})
    assert caught.value.code == 409
    assert used(harness) == {"configmaps": "1"}


async def test_charge_and_object_are_one_commit(harness: RegistryHarness) -> None:
    await make_quota(harness, {"configmaps": "5"}, {"configmaps": "0"})
    with harness.store.watch("", after=harness.store.revision) as watch:
        await harness.create("configmaps", {"metadata": {"name": "a"}})
        events = await anext(watch)
    assert [event.record.path for event in events] == ["//resourcequotas/ns/q", "//configmaps/ns/a"]


async def test_a_dry_run_is_checked_and_not_charged(harness: RegistryHarness) -> None:
    await make_quota(harness, {"configmaps": "1"}, {"configmaps": "0"})
    dry = msgspec.structs.replace(TEST_CALL, dry_run=True)
    await harness.create("configmaps", {"metadata": {"name": "a"}}, call=dry)
    assert used(harness) == {"configmaps": "0"}
    await set_status(harness, {"configmaps": "1"}, {"configmaps": "1"})
    with pytest.raises(StatusError, match="exceeded quota"):
        await harness.create("configmaps", {"metadata": {"name": "a"}}, call=dry)


async def test_of_many_creates_at_once_as_many_pass_as_the_quota_allows(tmp_path: Path) -> None:
    journal = GatedJournal(SqliteJournal(tmp_path, Durability.RELAXED))
    async with Store(journal) as store:
        harness = RegistryHarness(store, SystemClock())
        await harness.create("namespaces", {"metadata": {"name": "ns"}})
        await make_quota(harness, {"configmaps": "3"}, {"configmaps": "0"})
        bodies = [{"metadata": {"name": f"m{number}"}} for number in range(30)]
        results = await asyncio.gather(*(harness.create("configmaps", body) for body in bodies), return_exceptions=True)
        refused = [str(result) for result in results if isinstance(result, StatusError)]
        assert len(refused) == 27
        assert all("exceeded quota: q, requested: configmaps=1, used: configmaps=3" in text for text in refused)
        assert used(harness) == {"configmaps": "3"}


async def test_a_status_that_changes_meanwhile_is_charged_as_it_is_then(tmp_path: Path) -> None:
    journal = GatedJournal(SqliteJournal(tmp_path, Durability.RELAXED))
    async with Store(journal) as store:
        harness = RegistryHarness(store, SystemClock())
        await harness.create("namespaces", {"metadata": {"name": "ns"}})
        await make_quota(harness, {"configmaps": "5"}, {"configmaps": "0"})
        journal.write_gate.clear()
        async with asyncio.TaskGroup() as group:
            group.create_task(set_status(harness, {"configmaps": "5"}, {"configmaps": "4"}))
            await settle()
            group.create_task(harness.create("configmaps", {"metadata": {"name": "a"}}))
            await settle()
            journal.write_gate.set()
        assert used(harness) == {"configmaps": "5"}


async def test_a_pod_that_gets_a_deadline_is_charged_to_the_other_scope(harness: RegistryHarness) -> None:
    hard, scopes = {"pods": "1"}, ["Terminating"]
    await harness.create("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard, "scopes": scopes}})
    await set_status(harness, hard, {"pods": "0"})
    pod = await harness.create(
        "pods", {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    )
    assert used(harness) == {"pods": "0"}
    await harness.put("pods", {**pod, "spec": {**pod["spec"], "activeDeadlineSeconds": 9}})
    assert used(harness) == {"pods": "1"}


async def test_events_are_free(harness: RegistryHarness) -> None:
    await make_quota(harness, {"count/events": "1"}, {"count/events": "1"})
    event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "ns"}}
    assert (await harness.create("events", event))["metadata"]["name"] == "e"
