"""Resource quotas under any interleaving of creates, deletions, counts and slow disks: never more than allowed."""

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gangline.api.meta import Key
from gangline.apiserver.errors import StatusError
from gangline.apiserver.registry.deletion import DeletionOptions
from gangline.apiserver.store.sqlite import Durability, SqliteJournal
from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.local.controllers.quotas import QuotaController
from gangline.testing.clock import settle
from support.property.stores import GatedJournal
from support.servers.plane import TEST_CALL, RegistryHarness
from support.waiting import wait_until

MAPS, QUOTAS = "//configmaps/ns/", "//resourcequotas/ns/q"
CREATE, DELETE, QUOTA, PAUSE, RESUME, TURN = "create", "delete", "quota", "pause", "resume", "turn"
steps = st.lists(st.sampled_from((CREATE, CREATE, CREATE, DELETE, QUOTA, PAUSE, RESUME, TURN)), max_size=25)


class QuotaWorld:
    """A plane whose disk can be paused, with a quota controller."""

    def __init__(self, store: Store, journal: GatedJournal, limit: int) -> None:
        self.store, self.journal, self.limit = store, journal, limit
        self.harness = RegistryHarness(store, SystemClock())
        self.group = asyncio.TaskGroup()
        self.created = 0

    async def play(self, script: list[str]) -> None:
        await self.harness.create("namespaces", {"metadata": {"name": "ns"}})
        controller = asyncio.create_task(QuotaController(self.harness.registry, SystemClock()).run())
        try:
            async with self.group:
                for step in script:
                    await self.take(step)
                self.journal.write_gate.set()
            await self.counted()
        finally:
            controller.cancel()

    async def take(self, step: str) -> None:
        match step:
            case "create":
                self.created += 1
                self.start(self.harness.create("configmaps", {"metadata": {"name": f"m{self.created}"}}))
            case "delete" if records := self.store.range(MAPS).records:
                name = records[0].path.removeprefix(MAPS)
                kind = self.harness.entry("configmaps")
                self.start(self.harness.registry.delete(TEST_CALL, kind, Key("ns", name), DeletionOptions()))
            case "quota" if self.store.get(QUOTAS) is None:
                hard = {"count/configmaps": str(self.limit)}
                self.start(self.harness.create("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}}))
            case "pause":
                self.journal.write_gate.clear()
            case "resume":
                self.journal.write_gate.set()
                await self.store.flush()
            case "turn":
                await settle()

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        async def tried() -> None:
            with contextlib.suppress(StatusError):
                await work

        self.group.create_task(tried())

    async def counted(self) -> None:
        """Wait until the quota, if any, says what is there."""
        await wait_until(lambda: self.used() in (None, self.store.count(MAPS)))

    def used(self) -> int | None:
        record = self.store.get(QUOTAS)
        if record is None:
            return None
        return int(json.loads(record.data).get("status", {}).get("used", {}).get("count/configmaps", -1))

    async def check_history(self) -> None:
        """At every revision what is used covers what is there, and nothing was added beyond the limit."""
        used: int | None = None
        there: set[str] = set()
        with self.store.watch("", after=self.store.compacted_revision) as watch:
            events = await anext(watch)
        for event in events:
            path = event.record.path
            if path == QUOTAS:
                status = json.loads(event.record.data).get("status", {})
                used = int(status["used"]["count/configmaps"]) if "used" in status else None
            elif path.startswith(MAPS):
                if event.deleted:
                    there.discard(path)
                elif path not in there:
                    there.add(path)
                    assert used is None or len(there) <= self.limit
            assert used is None or used >= len(there)


@given(steps, st.integers(1, 3))
def test_a_quota_is_never_exceeded(script: list[str], limit: int) -> None:
    async def play() -> None:
        with tempfile.TemporaryDirectory() as folder:
            journal = GatedJournal(SqliteJournal(Path(folder), Durability.RELAXED))
            async with Store(journal) as store:
                world = QuotaWorld(store, journal, limit)
                try:
                    await world.play(script)
                finally:
                    journal.write_gate.set()
                await world.check_history()

    asyncio.run(play())
