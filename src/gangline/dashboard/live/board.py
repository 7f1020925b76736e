"""The board: the rows of all jobs of a namespace or of all namespaces, and the queues."""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, ExitStack, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.base.tasks import run_all, time_limit
from gangline.dashboard.live.feed import Feed
from gangline.dashboard.live.rights import ReadScope, ReadScopes, Refusal, ViewerRights
from gangline.dashboard.live.watches import WatchPool, WatchSpec, first_problem
from gangline.dashboard.rows.job_row import JobRow, ViewStruct, job_id, job_row
from gangline.dashboard.rows.queues import QueueRow, gang_phase, places_in_line, queue_rows
from gangline.dashboard.rows.sweeps import SweepView, Trial, TrialNote, deleted_trial_row, sweep_views, trial_note
from gangline.dashboard.rows.trimmed import (
    JobFields,
    PodFields,
    trimmed_event,
    trimmed_group,
    trimmed_job,
    trimmed_pod,
    trimmed_workload,
    with_fields,
)
from gangline.runtime.informer import Delta, Informer
from gangline.summary import job_rows
from gangline.summary.job_rows import NO_DETAILS, UNOBSERVED_AFTER, PodDetails
from gangline.summary.job_state import conditions
from gangline.summary.objects import EVENTS, JOB_KINDS, PODS, ServerJob, json_resource, object_key
from gangline.summary.pending_reasons import (
    PODGROUPS,
    WARNINGS,
    WORKLOADS,
    pod_details,
    podgroup_reasons,
    workload_reasons,
)
from gangline.summary.replicas import JOB_NAME, owns_pod

QUEUES = json_resource("scheduling.gangline.dev", "v1alpha1", "Queue", "queues", namespaced=False)
FIRST_LIST_PATIENCE = timedelta(seconds=10)
"""How long a first snapshot waits for jobs; after that it has what there is."""
MAX_SNAPSHOT_ROWS = 5000
"""The most rows of a snapshot, newest first; further ones are in `/api/jobs`, page by page."""

MAX_ENDED_TRIALS = 1000
"""The most trials of sweeps that are kept after they were deleted."""

JobRef = tuple[str, Key]
"""The plural and the key of a job."""


class BoardSnapshot(ViewStruct, frozen=True):
    """The whole board."""

    rows: list[JobRow]
    # How many jobs there are, also beyond the rows of the snapshot.
    total: int
    queues: list[QueueRow]
    refused: list[Refusal]


class BoardPatch(ViewStruct, frozen=True):
    """What has changed on the board. `queues` and `refused`: all of them, if any has changed."""

    upsert: list[JobRow]
    remove: list[str]
    queues: list[QueueRow] | None
    refused: list[Refusal] | None


def _by_job(pod: JSON) -> Iterable[Key]:
    name = (pod["metadata"].get("labels") or {}).get(JOB_NAME, "")
    return (Key(pod["metadata"].get("namespace", ""), name),) if name else ()


def _by_involved(event: JSON) -> Iterable[Key]:
    return (Key(event["metadata"].get("namespace", ""), str(event["involvedObject"].get("name", ""))),)


def _by_owner(workload: JSON) -> Iterable[Key]:
    owners = workload["metadata"].get("ownerReferences") or ()
    return [Key(workload["metadata"].get("namespace", ""), str(owner.get("name", ""))) for owner in owners]


class BoardFeed(Feed):
    """The board of one viewer. Rows are computed only for jobs that changed, or whose pods or gang did."""

    def __init__(self, namespace: str, rights: ViewerRights, watches: WatchPool, clock: Clock) -> None:
        super().__init__(clock)
        self._namespace, self._scopes, self._watches = namespace, ReadScopes(rights), watches
        self._jobs: dict[str, Informer[JSON]] = {}
        self._kinds = {kind.plural: kind for kind in JOB_KINDS}
        self._pods: Informer[JSON] | None = None
        self._groups: Informer[JSON] | None = None
        self._events: Informer[JSON] | None = None
        self._queues: Informer[JSON] | None = None
        self._workloads: Informer[JSON] | None = None
        self._waits_for_kueue = asyncio.Event()
        self._rows: dict[str, JobRow] = {}
        self._dirty: dict[JobRef, None] = {}
        self._queues_changed = True
        self._queue_rows: list[QueueRow] = []
        self._places: Mapping[Key, int] = {}
        self._refused: list[Refusal] = []
        self._refused_changed = False
        # The uids of jobs without a condition that were looked at again, or will be.
        self._unobserved: set[str] = set()
        self._ended_trials: dict[str, Trial] = {}

    def watch_problem(self) -> str:
        informers = (*self._jobs.values(), self._pods, self._groups)
        return first_problem(informers)

    async def _rights_have_changed(self) -> bool:
        return await self._scopes.have_changed()

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            subscribed = stack.enter_context(ExitStack())
            scopes = await self._scopes.read_all(JOB_KINDS, self._namespace)
            for kind in JOB_KINDS:
                jobs = with_fields(kind, JobFields)
                informer = await self._watch(stack, jobs, scopes[kind.name], trim=trimmed_job)
                if informer is not None:
                    self._jobs[kind.plural] = informer
                    subscribed.enter_context(informer.subscribe(self.guarded(self._on_job(kind.plural))))
            await self._wait_for_first_lists(self._jobs.values())
            self._ready.set()
            self.mark_changed()
            await self._watch_details(stack, subscribed)
            await self._waits_for_kueue.wait()
            await self._watch_workloads(stack, subscribed)
            await asyncio.Event().wait()

    async def _watch_details(self, stack: AsyncExitStack, subscribed: ExitStack) -> None:
        """Watch what makes a row more exact than the job's own status does."""
        scopes = await self._scopes.read_all((PODGROUPS, QUEUES, PODS, EVENTS), self._namespace)
        watch = partial(self._watch, stack)
        self._groups = await watch(PODGROUPS, scopes[PODGROUPS.name], trim=trimmed_group)
        self._queues = await watch(QUEUES, scopes[QUEUES.name])
        pods = with_fields(PODS, PodFields)
        self._pods = await watch(pods, scopes[PODS.name], labels=JOB_NAME, trim=trimmed_pod, index=_by_job)
        self._events = await watch(EVENTS, scopes[EVENTS.name], fields=WARNINGS, trim=trimmed_event, index=_by_involved)
        for informer, subscriber in (
            (self._groups, self._on_group),
            (self._queues, self._on_queue),
            (self._pods, self._on_pod),
            (self._events, self._on_event),
        ):
            if informer is not None:
                subscribed.enter_context(informer.subscribe(self.guarded(subscriber)))

    async def _watch_workloads(self, stack: AsyncExitStack, subscribed: ExitStack) -> None:
        """Watch what Kueue says of jobs that it has not admitted."""
        scopes = await self._scopes.read_all((WORKLOADS,), self._namespace)
        scope = scopes[WORKLOADS.name]
        self._workloads = await self._watch(stack, WORKLOADS, scope, trim=trimmed_workload, index=_by_owner)
        if self._workloads is not None:
            subscribed.enter_context(self._workloads.subscribe(self.guarded(self._on_workload)))

    async def _watch(
        self,
        stack: AsyncExitStack,
        resource: Resource[JSON],
        scope: ReadScope,
        *,
        labels: str = "",
        fields: str = "",
        trim: Any = None,
        index: Any = None,
    ) -> Informer[JSON] | None:
        """An informer of what the viewer may read of a resource; None if that is nothing. Notes what is refused."""
        if scope.refusals:
            self._refused += scope.refusals
            self._refused_changed = True
            self.mark_changed()
        if scope.is_empty:
            return None
        spec = WatchSpec(resource, Selector("", labels, fields), scope.namespaces, trim)
        return await stack.enter_async_context(
            self._watches.informer(spec, {"job": index} if index is not None else None)
        )

    async def _wait_for_first_lists(self, informers: Iterable[Informer[JSON]]) -> None:
        """Wait for the first lists. A kind that the server does not have, or does not answer about, is not waited for."""
        with suppress(TimeoutError):
            async with time_limit(FIRST_LIST_PATIENCE, self.clock):
                await run_all(informer.wait_for_answer() for informer in informers)

    # What has changed

    def _on_job(self, plural: str) -> Any:
        def changed(delta: Delta[JSON]) -> None:
            if delta.after is None and (note := trial_note(delta.newest)) is not None:
                self._keep_trial(plural, delta.newest, note)
            self._dirty[plural, object_key(delta.newest)] = None
            self.mark_changed()

        return changed

    def _keep_trial(self, plural: str, body: JSON, note: TrialNote) -> None:
        """A trial is deleted when it has ended; its sweep still ranks it."""
        while len(self._ended_trials) >= MAX_ENDED_TRIALS:
            del self._ended_trials[next(iter(self._ended_trials))]
        row = deleted_trial_row(self._kinds[plural], body, self.clock.now())
        self._ended_trials[row.uid] = (note, row)

    def _on_pod(self, delta: Delta[JSON]) -> None:
        for key in _by_job(delta.newest):
            self._mark_job(key)

    def _on_event(self, delta: Delta[JSON]) -> None:
        key = next(iter(_by_involved(delta.newest)))
        pod = self._pods.cache.get(key) if self._pods is not None else None
        for job in _by_job(pod) if pod is not None else (key,):
            self._mark_job(job)

    def _on_workload(self, delta: Delta[JSON]) -> None:
        for key in _by_owner(delta.newest):
            self._mark_job(key)

    def _on_group(self, delta: Delta[JSON]) -> None:
        self._queues_changed = True
        self._mark_job(object_key(delta.newest))
        self.mark_changed()

    def _on_queue(self, delta: Delta[JSON]) -> None:
        self._queues_changed = True
        self.mark_changed()

    def _mark_job(self, key: Key) -> None:
        for plural, informer in self._jobs.items():
            if key in informer.cache:
                self._dirty[plural, key] = None
                self.mark_changed()

    # Content

    def content(self) -> BoardSnapshot:
        rows = sorted(self._rows.values(), key=lambda row: row.created_at or "", reverse=True)
        return BoardSnapshot(
            rows=rows[:MAX_SNAPSHOT_ROWS], total=len(rows), queues=self._queue_rows, refused=self._refused
        )

    def rows(self) -> Iterable[JobRow]:
        """All rows, as of now."""
        self.publish_now()
        return self._rows.values()

    def sweeps(self, recorded: Iterable[Trial] = ()) -> list[SweepView]:
        """The sweeps among the jobs, with trials that are gone as far as this feed or `recorded` has them."""
        rows = {row.id: row for row in self.rows()}
        bodies = ((plural, body) for plural, informer in self._jobs.items() for body in informer.cache)
        notes = ((job_id(plural, *object_key(body)), trial_note(body)) for plural, body in bodies)
        trials = [(note, rows[name]) for name, note in notes if note is not None and name in rows]
        by_uid = {row.uid: (note, row) for note, row in (*recorded, *self._ended_trials.values(), *trials)}
        return sweep_views(by_uid.values())

    def take_patch(self) -> BoardPatch | None:
        if not self._ready.is_set():
            return None
        queues = self._new_queues()
        upsert, remove = self._new_rows()
        refused = self._refused if self._refused_changed else None
        self._refused_changed = False
        if not (upsert or remove or queues is not None or refused is not None):
            return None
        return BoardPatch(upsert=upsert, remove=remove, queues=queues, refused=refused)

    def _new_rows(self) -> tuple[list[JobRow], list[str]]:
        dirty, self._dirty = self._dirty, {}
        upsert: list[JobRow] = []
        remove: list[str] = []
        now = self.clock.now()
        for plural, key in dirty:
            identity = job_id(plural, key.namespace, key.name)
            body = self._jobs[plural].cache.get(key)
            if body is None:
                row = self._rows.pop(identity, None)
                if row is not None:
                    self._unobserved.discard(row.uid)
                    remove.append(identity)
                continue
            row = self._row(self._kinds[plural], key, body, now)
            if self._rows.get(identity) != row:
                self._rows[identity] = row
                upsert.append(row)
        return upsert, remove

    def _row(self, kind: Resource[JSON], key: Key, body: JSON, now: datetime) -> JobRow:
        group = self._groups.cache.get(key) if self._groups is not None else None
        if not conditions(body):
            self._look_again(kind.plural, key, body["metadata"].get("uid", ""))
        details = self._details(kind, key, body, group)
        return job_row(kind, body, now, pods=details, gang_phase=gang_phase(group), place=self._places.get(key))

    def _look_again(self, plural: str, key: Key, uid: str) -> None:
        """A job that no operator has seen yet: its reason changes with time, once."""
        if uid in self._unobserved:
            return
        self._unobserved.add(uid)

        def check() -> None:
            self._dirty[plural, key] = None
            self.mark_changed()

        self.clock.call_later(UNOBSERVED_AFTER + timedelta(seconds=1), check)

    def _details(self, kind: Resource[JSON], key: Key, body: JSON, group: JSON | None) -> PodDetails:
        if not conditions(body) or not job_rows.needs_pods(body):
            return NO_DETAILS
        if job_rows.waits_for_kueue(body):
            self._waits_for_kueue.set()
            workloads = self._workloads.cache.by_index("job", key) if self._workloads is not None else ()
            return PodDetails(workload_reasons(workloads).get(key, ""))
        waits = job_rows.may_wait(body)
        if group is not None and waits and (reason := podgroup_reasons([group]).get(key)):
            return PodDetails(reason)
        if self._pods is None or not self._pods.has_listed(key.namespace):
            return NO_DETAILS
        job = ServerJob(kind, body)
        pods = [pod for pod in self._pods.cache.by_index("job", key) if owns_pod(job, pod)]
        return pod_details(body, pods, self._warnings(key, pods) if waits else ())

    def _warnings(self, key: Key, pods: Iterable[JSON]) -> list[JSON]:
        """The warnings about a job and its pods."""
        if self._events is None:
            return []
        keys = (key, *map(object_key, pods))
        return [event for each in keys for event in self._events.cache.by_index("job", each)]

    def _new_queues(self) -> list[QueueRow] | None:
        if not self._queues_changed:
            return None
        self._queues_changed = False
        groups = tuple(self._groups.cache) if self._groups is not None else ()
        places = places_in_line(groups)
        for key in places.keys() | self._places.keys():
            if places.get(key) != self._places.get(key):
                self._mark_job(key)
        self._places = places
        rows = queue_rows(self._queues.cache if self._queues is not None else (), groups)
        if rows == self._queue_rows:
            return None
        self._queue_rows = rows
        return rows
