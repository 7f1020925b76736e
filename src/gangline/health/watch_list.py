"""The jobs that run, for the hang watcher, and its verdicts, for the job engine. Light: it is there from the start."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol

from gangline.api.core import Pod
from gangline.api.kubeflow.training import ConditionType, JobKind, TrainingJob
from gangline.api.meta import Key
from gangline.base.clock import Clock
from gangline.jobs.plan.stall import HangVerdict
from gangline.runtime.informer import Delta, Informer

START_DELAY = timedelta(seconds=5)
"""So long after the first job runs the watcher is loaded: before that there is nothing to see, and the job needs the CPU."""
NO_OPINION = HangVerdict()

PodsOfOwner = Callable[[str], Sequence[Pod]]
"""The pods that a job with this uid owns, from a cache."""


class Watcher(Protocol):
    """What watches the jobs of a list."""

    async def run(self) -> None:
        """Watch until cancelled."""
        ...


class WatchedKind:
    """The jobs of one kind: a source of keys for their controller."""

    def __init__(self, watch_list: "WatchList", kind: JobKind, jobs: Informer[Any], pods: PodsOfOwner) -> None:
        self.kind, self.pods = kind, pods
        self._watch_list, self._jobs = watch_list, jobs
        self.request_reconcile: Callable[[Key], None] = lambda key: None

    @contextmanager
    def attach(self, add: Callable[[Key], None]) -> Iterator[None]:
        self.request_reconcile = add
        with self._jobs.subscribe(self._on_change):
            yield

    async def wait_for_sync(self) -> None:
        await self._jobs.wait_for_sync()

    def job(self, key: Key) -> TrainingJob | None:
        """The job as the cache shows it."""
        job: TrainingJob | None = self._jobs.cache.get(key)
        return job

    def _on_change(self, delta: Delta[Any]) -> None:
        self._watch_list.update(self, delta.newest, is_deleted=delta.after is None)


class RunningJob:
    """A job that runs."""

    def __init__(self, kind: WatchedKind, job: TrainingJob) -> None:
        self.kind, self.key, self.uid = kind, job.metadata.key, job.metadata.uid

    @property
    def job(self) -> TrainingJob | None:
        """The job as the cache shows it now."""
        return self.kind.job(self.key)

    @property
    def pods(self) -> Sequence[Pod]:
        return self.kind.pods(self.uid)


class WatchList:
    """Which jobs run, and what the watcher says of them."""

    def __init__(self) -> None:
        # By uid, both.
        self.running: dict[str, RunningJob] = {}
        self._verdicts: dict[str, HangVerdict] = {}
        # Jobs that the watcher has not begun to watch.
        self.new_jobs: deque[RunningJob] = deque()
        self.has_jobs = asyncio.Event()

    def add_kind(self, kind: JobKind, jobs: Informer[Any], pods: PodsOfOwner) -> WatchedKind:
        """Watch the jobs of this kind, too. Returns a source of keys for their controller."""
        return WatchedKind(self, kind, jobs, pods)

    def verdict(self, uid: str) -> HangVerdict:
        """What the watcher says of a job."""
        return self._verdicts.get(uid, NO_OPINION)

    def set_verdict(self, job: RunningJob, verdict: HangVerdict) -> None:
        """Keep a verdict, and have the job reconciled."""
        self._verdicts[job.uid] = verdict
        job.kind.request_reconcile(job.key)

    def update(self, kind: WatchedKind, job: TrainingJob, *, is_deleted: bool) -> None:
        """Take in a change of a job: it is watched while it runs."""
        uid = job.metadata.uid
        if is_deleted or not is_watchable(job):
            self._verdicts.pop(uid, None)
            if self.running.pop(uid, None) is not None and not self.running:
                self.has_jobs.clear()
        elif uid not in self.running:
            self.running[uid] = RunningJob(kind, job)
            self.new_jobs.append(self.running[uid])
            self.has_jobs.set()

    async def run(self, start: Callable[[], Watcher], clock: Clock) -> None:
        """Run the watcher from shortly after the first job runs."""
        await self.has_jobs.wait()
        await clock.sleep(START_DELAY)
        await start().run()


def is_watchable(job: TrainingJob) -> bool:
    """Whether a job runs."""
    status = job.status
    return (
        status.holds(ConditionType.RUNNING)
        and not status.finished
        and job.metadata.deletion_timestamp is None
        and job.is_of_this_api
    )
