"""The quota controller: what it watches, and what it counts without an event."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest

from gangline.api.meta import Key
from gangline.apiserver.admission.webhooks.configurations import ADMISSION_PREFIX
from gangline.apiserver.registry.deletion import DeletionOptions
from gangline.apiserver.store.errors import StoreFailed
from gangline.apiserver.store.store import Store
from gangline.apiserver.store.watches import StoreWatch
from gangline.base.tasks import background_tasks
from gangline.local.controllers.quotas import QUOTAS_PREFIX, RESYNC_PERIOD, QuotaController
from gangline.testing.clock import FakeClock, settle
from support.servers.plane import TEST_CALL, RegistryHarness, registry_harness

JSON = dict[str, Any]
STATUS_CALL = msgspec.structs.replace(TEST_CALL, subresource="status")
POD = {"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "x"}]}}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The prefixes of all watches, in the order of their beginning."""
    prefixes: list[str] = []
    watch = Store.watch

    def recorded(store: Store, prefix: str, **options: Any) -> StoreWatch:
        prefixes.append(prefix)
        return watch(store, prefix, **options)

    monkeypatch.setattr(Store, "watch", recorded)
    return prefixes


@pytest.fixture
async def harness(clock: FakeClock) -> AsyncIterator[RegistryHarness]:
    async with registry_harness(clock) as made, background_tasks(QuotaController(made.registry, clock).run()):
        await settle()
        yield made


async def make_quota(harness: RegistryHarness, hard: JSON) -> None:
    await harness.create("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    await settle()


def status(harness: RegistryHarness) -> JSON:
    found: JSON = harness.get("resourcequotas", "q")["status"]
    return found


async def delete(harness: RegistryHarness, plural: str, name: str, **options: Any) -> None:
    call = DeletionOptions(**options)
    await harness.registry.delete(TEST_CALL, harness.entry(plural), Key("ns", name), call)
    await settle()


async def test_only_quotas_are_watched_until_there_is_one(watched: list[str], harness: RegistryHarness) -> None:
    def watched_for_quotas() -> list[str]:
        return [prefix for prefix in watched if prefix != ADMISSION_PREFIX]

    assert watched_for_quotas() == [QUOTAS_PREFIX]
    await make_quota(harness, {"configmaps": "1"})
    assert watched_for_quotas() == [QUOTAS_PREFIX, ""]
    await delete(harness, "resourcequotas", "q")
    assert watched_for_quotas() == [QUOTAS_PREFIX, "", QUOTAS_PREFIX]


async def test_a_count_that_changes_nothing_is_not_written(harness: RegistryHarness) -> None:
    await make_quota(harness, {"configmaps": "5", "pods": "5"})
    revision = harness.store.revision
    await harness.create("secrets", {"metadata": {"name": "s"}})
    await delete(harness, "secrets", "s")
    assert harness.store.revision == revision + 2
    await harness.create("configmaps", {"metadata": {"name": "m"}})
    await settle()
    assert harness.store.revision == revision + 4  # the object and its charge


async def test_a_status_that_somebody_wrote_is_corrected_with_the_next_count(harness: RegistryHarness) -> None:
    await make_quota(harness, {"configmaps": "5"})
    await harness.create("configmaps", {"metadata": {"name": "m"}})
    wrong = {"hard": {"configmaps": "9"}, "used": {"configmaps": "7"}}

    def change(old: JSON | None) -> JSON:
        return {**(old or {}), "status": wrong}

    await harness.registry.update(STATUS_CALL, harness.entry("resourcequotas"), Key("ns", "q"), change)
    await settle()
    assert status(harness) == wrong
    await delete(harness, "configmaps", "m")
    assert status(harness) == {"hard": {"configmaps": "5"}, "used": {"configmaps": "0"}}


async def test_a_pod_whose_node_does_not_end_it_is_free_after_its_grace_period(
    harness: RegistryHarness, clock: FakeClock
) -> None:
    await make_quota(harness, {"pods": "1", "count/pods": "1"})
    await harness.create("pods", POD)
    await delete(harness, "pods", "p")
    assert status(harness)["used"] == {"pods": "1", "count/pods": "1"}
    await clock.advance(RESYNC_PERIOD + timedelta(seconds=1))
    await settle()
    assert status(harness)["used"] == {"pods": "0", "count/pods": "1"}


async def test_cluster_wide_objects_and_events_are_not_counted(harness: RegistryHarness) -> None:
    await make_quota(harness, {"count/nodes": "1", "count/events": "1", "count/widgets.example.com": "1"})
    assert status(harness)["used"] == {"count/widgets.example.com": "0"}


async def test_a_count_that_could_not_be_written_is_written_soon(
    harness: RegistryHarness, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(harness.registry, "update", AsyncMock(side_effect=StoreFailed("no space")))
        await make_quota(harness, {"pods": "2"})
        assert not harness.get("resourcequotas", "q").get("status")
    await clock.advance(timedelta(seconds=10))
    assert status(harness) == {"hard": {"pods": "2"}, "used": {"pods": "0"}}
