"""Signs of life of pods whose containers are processes of this machine: their log files, CPU time, and bytes."""

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from gangline.api.core import Pod
from gangline.api.drill import FaultKind, fault_request
from gangline.api.kubeflow.kinds import MPIJOB
from gangline.api.kubeflow.training import JobKind
from gangline.base.clock import Clock
from gangline.base.files import open_regular
from gangline.health.signs import ReplicaSigns
from gangline.local.stack_sampling import local_targets, training_run
from gangline.node.checkpoint import RunFiles, StateFolder
from gangline.stacks.pods import replica_name
from gangline.stacks.processes import ProcessTable
from gangline.stacks.sampling import SampleTarget

TAIL_BYTES = 1024
"""The end of a log file in which its last line is looked for."""
TABLE_SECONDS = 0.5
"""Jobs that are looked at within this time share one list of processes."""
_STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


class _Usage(NamedTuple):
    """What the processes of a replica have used so far, and whether all of them are stopped."""

    cpu_seconds: float
    bytes_moved: int
    is_stopped: bool


class LocalSignReader:
    """Reads the signs of life of pods of a node whose records are in `state`."""

    def __init__(self, state: Path, clock: Clock) -> None:
        self._state, self._clock = state, clock
        # By the name of the pod and the pid of its first process: when it was read, and its CPU seconds by then.
        self._last: dict[tuple[str, int], tuple[float, float]] = {}
        self._table: ProcessTable | None = None
        self._table_at = 0.0

    async def read(self, kind: JobKind, pods: Sequence[Pod]) -> tuple[ReplicaSigns, ...]:
        """The signs of each pod. Those of containers of an engine, which is another process, are only their logs."""
        targets = {target.pod: target for target in local_targets(self._state, pods)}
        pids = self._pids(kind, targets.values())
        now = self._clock.monotonic()
        if len(self._last) > 10_000:
            self._last.clear()
        return tuple(self._replica_signs(pod, targets.get(pod.metadata.name), pids, now) for pod in pods)

    def _pids(self, kind: JobKind, targets: Iterable[SampleTarget]) -> dict[str, list[int]]:
        """The processes of each pod. In those of MPI there are some that the launcher has started."""
        now = self._clock.monotonic()
        if self._table is None or now - self._table_at >= TABLE_SECONDS:
            self._table, self._table_at = ProcessTable(), now
        table, targets = self._table, tuple(targets)
        marks = {target.mark for target in targets if target.mark} if kind.kind == MPIJOB.kind else set[str]()
        marked = table.marked(marks)
        return {
            target.pod: list(
                dict.fromkeys(pid for root in (target.pid, *marked.get(target.mark, ())) for pid in table.tree(root))
            )
            for target in targets
        }

    def _replica_signs(
        self, pod: Pod, target: SampleTarget | None, pids: dict[str, list[int]], now: float
    ) -> ReplicaSigns:
        name, run = replica_name(pod), self._run(pod)
        mark, line = _log_end(run) if run is not None else (None, "")
        record = run.run_record() if run is not None else None
        if target is None or (record is not None and record.engine):
            return ReplicaSigns(name, mark, line)
        usage = _usage(pids[target.pod])
        if usage is None:
            return ReplicaSigns(name, mark, line)
        key = (target.pod, target.pid)
        at, seconds = self._last.get(key, (now, usage.cpu_seconds))
        self._last[key] = (now, usage.cpu_seconds)
        # At the first look nothing is known yet.
        cores = max(0.0, usage.cpu_seconds - seconds) / (now - at) if now > at else None
        is_stopped = usage.is_stopped and not _is_drilled(pod)
        return ReplicaSigns(name, mark, line, cores, usage.bytes_moved, is_stopped)

    def _run(self, pod: Pod) -> RunFiles | None:
        folder = StateFolder(self._state).pod(pod.metadata.key, pod.metadata.uid)
        return training_run(folder, pod)


def _is_drilled(pod: Pod) -> bool:
    """Whether a drill stops the processes of a pod, as a hang that is to be noticed."""
    request = fault_request(pod.metadata.annotations)
    return request is not None and request.fault is FaultKind.HANG


def _log_end(run: RunFiles) -> tuple[str | None, str]:
    """What identifies the end of a log, or of the bar that the program draws, and the log's last line."""
    marks, line = [], ""
    for file in (run.log_file, run.bar_file):
        with suppress(OSError):
            stat = file.stat()
            marks.append(f"{stat.st_ino}:{stat.st_size}:{stat.st_mtime_ns}")
    with suppress(OSError), open_regular(run.log_file) as log:
        log.seek(max(0, os.fstat(log.fileno()).st_size - TAIL_BYTES))
        last = log.read().rstrip(b"\n").rpartition(b"\n")[2]
        line = last.split(b" ", 3)[-1].decode(errors="replace")
    return ",".join(marks) or None, line


def _usage(pids: Iterable[int]) -> _Usage | None:
    """What processes have used; None if none of them lives."""
    seconds, moved, states = 0.0, 0, []
    for pid in pids:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            with process.oneshot():
                times = process.cpu_times()
                states.append(process.status())
                seconds += times.user + times.system
                if sys.platform == "linux":
                    counters = process.io_counters()
                    moved += counters.read_chars + counters.write_chars
    if not states:
        return None
    return _Usage(seconds, moved, all(state in _STOPPED for state in states))
