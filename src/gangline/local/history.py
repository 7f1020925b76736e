"""The history of an embedded plane: what changes in its store, recorded at the moment it becomes visible."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.api.meta import JSON, Key
from gangline.apiserver.store.paths import ObjectPath, object_path
from gangline.apiserver.store.records import StoreEvent, StoreRecord
from gangline.apiserver.store.store import Store
from gangline.base.clock import Clock

if TYPE_CHECKING:
    from gangline.history.endings import ContainerEnd
    from gangline.history.recorder import Diagnose, HistoryRecorder
    from gangline.history.retention import HistoryLimits
    from gangline.kube.pod_metrics import PodUsage
    from gangline.node.api.usage_meter import UsageMeter

log = logging.getLogger(__name__)

LOG_TAIL_BYTES = 32 * 2**10
"""Bytes that are read of the end of a log: more than are recorded, because each line has a time and a stream there."""
FIRST_DELAY = timedelta(seconds=1)
"""A plane starts without it."""
CHANGES_PER_TURN = 200
"""After so many changes other tasks run."""


class StoreRecording:
    """Records a store from the moment it is entered. Costs nothing but a list of changes until `run` or `finish`.

    What is slow is imported only then: the start of `gangline run` does not wait for it.
    """

    def __init__(
        self,
        folder: Path,
        state: Path,
        clock: Clock,
        *,
        kinds: Sequence[tuple[str, str]] = (),
        limits: "HistoryLimits | None" = None,
        mirror: Callable[[float], object] | None = None,
    ) -> None:
        """`folder` is that of the history, `state` the node's; `kinds` are those of custom operators, as group and plural."""
        self._folder, self._state, self._clock, self._kinds = folder, state, clock, kinds
        self._limits, self._mirror = limits, mirror
        self._diagnose: Diagnose | None = None
        self._initial: tuple[StoreRecord, ...] = ()
        self._changes: deque[tuple[float, Sequence[StoreEvent]]] = deque()
        self._source, self._began = "", 0.0
        self._recorder: HistoryRecorder | None = None
        self._meter: UsageMeter | None = None
        self._prefixes: tuple[str, ...] = ()
        self._observing = ExitStack()

    def start(self, store: Store, diagnose: "Diagnose | None" = None) -> None:
        """Take note of every change from now on. `diagnose` explains jobs that fail."""
        self._diagnose = diagnose
        self._source, self._initial = store.cluster_id, store.range("").records
        self._began = self._clock.now().timestamp()
        self._observing.enter_context(store.observe(self._note))

    def _note(self, events: Sequence[StoreEvent]) -> None:
        self._changes.append((self._clock.now().timestamp(), events))

    async def run(self) -> None:
        """Write what changes until cancelled."""
        await self._clock.sleep(FIRST_DELAY)
        try:
            await self._begin().run(self._record_changes)
        except Exception:
            # A plane must not end because it cannot be recorded.
            log.exception("the history has stopped")
            self._observing.close()
            self._source = ""
            await asyncio.Event().wait()

    def finish(self, closed: Mapping[str, JSON] | None = None) -> None:
        """Record the rest, and objects as they were left, and end. Does nothing if nothing was started."""
        self._observing.close()
        if not self._source:
            return
        from gangline.history.selection import recorded_body
        from gangline.kube.transport.blocking import run_without_loop

        recorder = self._begin()
        for at, events in self._changes:
            self._record(recorder, at, events)
        self._changes.clear()
        for path, body in (closed or {}).items():
            if path.startswith(self._prefixes):
                recorder.record(recorder.now, path, recorded_body(path, body))
        run_without_loop(recorder.collect_logs())
        recorder.finish()
        self._source = ""

    async def _record_changes(self) -> None:
        recorder, count = self._begin(), 0
        while self._changes:
            at, events = self._changes.popleft()
            self._record(recorder, at, events)
            count += len(events)
            if count > CHANGES_PER_TURN:
                count = 0
                await self._clock.sleep(timedelta())

    def _begin(self) -> "HistoryRecorder":
        if self._recorder is None:
            from gangline.history.parts import ObjectDecoder
            from gangline.history.recorder import HistoryRecorder
            from gangline.history.selection import recorded_prefixes

            self._decoder = ObjectDecoder()
            self._prefixes = recorded_prefixes(self._kinds)
            self._recorder = HistoryRecorder(
                self._folder,
                self._clock,
                self._source,
                limits=self._limits,
                read_log=self._end_of_log,
                diagnose=self._diagnose,
                measure=self._usage,
                mirror=self._mirror,
            )
            records = (record for record in self._initial if record.path.startswith(self._prefixes))
            objects = {record.path: self._decoder.decode(record.path, record.data) for record in records}
            self._recorder.begin(self._began, objects)
            self._initial = ()
        return self._recorder

    def _record(self, recorder: "HistoryRecorder", at: float, events: Sequence[StoreEvent]) -> None:
        for event in events:
            path = event.record.path
            if not path.startswith(self._prefixes):
                continue
            if event.deleted:
                self._decoder.forget(path)
                recorder.record(at, path, None)
            else:
                recorder.record(at, path, self._decoder.decode(path, event.record.data))

    async def _usage(self) -> "Mapping[str, PodUsage]":
        from gangline.kube.pod_metrics import PodUsage
        from gangline.node.api.usage_meter import UsageMeter

        if self._meter is None:
            self._meter = UsageMeter(self._state, self._clock)
        used: dict[str, PodUsage] = {}
        for one in (await self._meter.measure()).containers:
            path = object_path("", "pods", *one.pod)
            used[path] = used.get(path, PodUsage()).plus(one.usage.cores, one.usage.memory)
        return used

    async def _end_of_log(self, pod: ObjectPath, body: JSON, end: "ContainerEnd") -> str:
        # Nothing in it waits, so that `finish` can call it without an event loop.
        return end_of_log(self._state, Key(pod.namespace, pod.name), str(body["metadata"].get("uid", "")), end)


def end_of_log(state: Path, pod: Key, uid: str, end: "ContainerEnd") -> str:
    """The end of the log of a run that ended, with timestamps, from the node's state folder; empty if it is gone."""
    from gangline.local.archive.runs import log_tail
    from gangline.node.checkpoint import StateFolder
    from gangline.node.logs import parse_line

    run_id = end.run.rpartition("//")[2]
    for files in reversed(StateFolder(state).pod(pod, uid).runs(end.container)):
        record = files.run_record()
        if record is None or record.id != run_id:
            continue
        try:
            data = log_tail(files.log_file, LOG_TAIL_BYTES)
        except OSError:
            return ""
        lines = (parse_line(line) for line in data.split(b"\n") if line.count(b" ") >= 3)
        return b"".join(line.render(timestamps=True) for line in lines).decode(errors="replace")
    return ""
