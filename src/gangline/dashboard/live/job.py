"""The page of one job, live: its row, timeline, pods, conditions and events, each sent again when it changes."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from typing import Any

import msgspec

from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.apiserver.store.paths import object_path
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.base.tasks import run_all, time_limit
from gangline.dashboard.live.feed import Feed
from gangline.dashboard.live.past import Past
from gangline.dashboard.live.rights import Access, AccessRefused, ReadScopes, Refusal, ViewerRights
from gangline.dashboard.live.watches import WatchPool, WatchSpec, first_problem
from gangline.dashboard.rows.detail import (
    NOTHING_ALLOWED,
    AllowedActions,
    JobDetail,
    JobObjects,
    job_detail,
)
from gangline.history.records import ObjectVersion
from gangline.kube.errors import Status, error_from_status
from gangline.runtime.informer import Delta, Informer
from gangline.summary.event_rows import is_about
from gangline.summary.job_state import is_finished
from gangline.summary.objects import EVENTS, PODS, ServerJob, object_key
from gangline.summary.pending_reasons import PODGROUPS
from gangline.summary.replicas import JOB_NAME, owns_pod, sorted_pods
from gangline.timeline.live import LiveTimeline
from gangline.timeline.model import TeamTimeline

FIRST_LIST_PATIENCE = timedelta(seconds=10)
LEFT_OUT_OF_PATCHES = ("yaml", "refused", "recorded")
"""Parts that a patch never has: a page reads the YAML again when it shows it."""


def untracked(body: JSON) -> JSON:
    """An object without the server's record of who wrote which field."""
    metadata = {name: value for name, value in body["metadata"].items() if name != "managedFields"}
    return {**body, "metadata": metadata}


async def allowed_actions(rights: ViewerRights, kind: Resource[JSON], body: JSON) -> AllowedActions:
    """What the viewer may do to a job, as far as the state of the job permits it."""
    namespace, finished = object_key(body).namespace, is_finished(body)
    open_to_change = not finished and await rights.may(Access("patch", kind, namespace))
    suspended = bool(((body.get("spec") or {}).get("runPolicy") or {}).get("suspend"))
    return AllowedActions(
        suspend=open_to_change and not suspended,
        resume=open_to_change and suspended,
        scale=open_to_change,
        restart=not finished and await rights.may(Access("delete", PODS, namespace)),
        delete=await rights.may(Access("delete", kind, namespace)),
    )


class JobFeed(Feed):
    """The page of one job of one viewer. `past`: what was recorded of its objects so far."""

    def __init__(
        self,
        kind: Resource[JSON],
        key: Key,
        rights: ViewerRights,
        watches: WatchPool,
        clock: Clock,
        past: Past | None = None,
    ) -> None:
        super().__init__(clock)
        self._kind, self._key, self._rights, self._watches = kind, key, rights, watches
        self._scopes, self._past = ReadScopes(rights), past
        self._pods: Informer[JSON] | None = None
        self._events: Informer[JSON] | None = None
        self._groups: Informer[JSON] | None = None
        self._body: JSON | None = None
        self._deleted = False
        self._refused: list[Refusal] = []
        self._allowed = NOTHING_ALLOWED
        self._body_changed = asyncio.Event()
        self._timeline = LiveTimeline()
        self._sent: dict[str, Any] = {}
        self._jobs: Informer[JSON] | None = None

    def watch_problem(self) -> str:
        return first_problem((self._jobs, self._pods, self._events))

    async def _rights_have_changed(self) -> bool:
        return await self._scopes.have_changed()

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            fields = f"metadata.name={self._key.name}"
            # Asked for together: each answer is remembered.
            await self._scopes.read_all((self._kind, PODS, EVENTS, PODGROUPS), self._key.namespace)
            jobs = await self._watch(stack, self._kind, fields=fields)
            self._pods = await self._watch(stack, PODS, labels=f"{JOB_NAME}={self._key.name}")
            self._events = await self._watch(stack, EVENTS)
            self._groups = await self._watch(stack, PODGROUPS, fields=fields)
            informers = [each for each in (jobs, self._pods, self._events, self._groups) if each is not None]
            with suppress(TimeoutError):
                async with time_limit(FIRST_LIST_PATIENCE, self.clock):
                    await run_all(informer.wait_for_answer() for informer in informers)
            body = jobs.cache.get(self._key) if jobs is not None else None
            if jobs is None or body is None:
                self.end(self._missing(jobs))
                return
            self._jobs = jobs
            uid = body["metadata"].get("uid", "")
            for version in await self._recorded_versions(uid):
                self._timeline.add(version.at, version.path, version.body)
            stack.enter_context(jobs.subscribe(self.guarded(self._on_job)))
            for informer, plural in ((self._groups, "podgroups"), (self._pods, "pods"), (self._events, "events")):
                if informer is not None:
                    stack.enter_context(informer.subscribe(self.guarded(self._on_part(plural))))
            await self._ask_for_actions()
            self._ready.set()
            self.mark_changed()
            while True:
                await self._body_changed.wait()
                self._body_changed.clear()
                await self._ask_for_actions()
                self.mark_changed()

    async def _recorded_versions(self, uid: str) -> list[ObjectVersion]:
        """What was recorded of the job so far, as far as the viewer may read it."""
        if self._past is None:
            return []
        try:
            return (await self._past.versions(self._kind, self._key, uid))[0]
        except AccessRefused:
            return []

    def _missing(self, jobs: Informer[JSON] | None) -> GanglineError:
        name = f"{self._kind.plural}.{self._kind.group} {self._key}"
        if jobs is None:
            refusals = [item for item in self._refused if item.resource == self._kind.plural]
            if refusals:
                return AccessRefused(refusals[0])
        if jobs is not None and jobs.problem is not None and not jobs.is_synced:
            return error_from_status(Status(code=502, message=jobs.problem))
        return error_from_status(Status(code=404, reason="NotFound", message=f"{name}: there is no such job"))

    async def _watch(
        self, stack: AsyncExitStack, resource: Resource[JSON], *, labels: str = "", fields: str = ""
    ) -> Informer[JSON] | None:
        scope = await self._scopes.read(resource, self._key.namespace)
        self._refused += scope.refusals
        if scope.is_empty:
            return None
        spec = WatchSpec(resource, Selector(self._key.namespace, labels, fields), (), untracked)
        return await stack.enter_async_context(self._watches.informer(spec))

    def _on_job(self, delta: Delta[JSON]) -> None:
        self._body, self._deleted = delta.newest, delta.after is None
        self.is_over = self._deleted
        self._add_version(self._kind.plural, delta)
        self._body_changed.set()
        self.mark_changed()

    def _on_part(self, plural: str) -> Callable[[Delta[JSON]], None]:
        def changed(delta: Delta[JSON]) -> None:
            if plural == "events" and not self._is_own_event(delta.newest):
                return
            if plural != "events" or delta.after is not None:
                self._add_version(plural, delta)
            self.mark_changed()

        return changed

    def _add_version(self, plural: str, delta: Delta[JSON]) -> None:
        groups = {self._kind.plural: self._kind.group, "podgroups": PODGROUPS.group}
        path = object_path(groups.get(plural, ""), plural, *object_key(delta.newest))
        self._timeline.add(self.clock.now().timestamp(), path, delta.after)

    def _is_own_event(self, event: JSON) -> bool:
        return self._body is not None and is_about(event, ServerJob(self._kind, self._body))

    async def _ask_for_actions(self) -> None:
        if self._body is not None:
            self._allowed = (
                NOTHING_ALLOWED if self._deleted else await allowed_actions(self._rights, self._kind, self._body)
            )

    # Content

    def content(self) -> JobDetail:
        return self._detail(with_yaml=True)

    def _detail(self, *, with_yaml: bool) -> JobDetail:
        assert self._body is not None
        job = ServerJob(self._kind, self._body)
        pods = self._pods.cache if self._pods is not None else ()
        objects = JobObjects(
            job=job,
            pods=sorted_pods(pod for pod in pods if owns_pod(job, pod)),
            events=[event for event in self._events.cache if is_about(event, job)] if self._events is not None else [],
            group=self._groups.cache.get(self._key) if self._groups is not None else None,
        )
        now = self.clock.now()
        timeline = self._timeline.timeline(now.timestamp())
        detail = job_detail(objects, timeline, now, deleted=self._deleted, with_yaml=with_yaml)
        return msgspec.structs.replace(detail, allowed=self._allowed, refused=self._refused)

    def take_patch(self) -> dict[str, Any] | None:
        if not self._ready.is_set() or self._body is None:
            return None
        detail = self._detail(with_yaml=False)
        parts = {
            wire: getattr(detail, name)
            for name, wire in zip(detail.__struct_fields__, detail.__struct_encode_fields__, strict=True)
            if wire not in LEFT_OUT_OF_PATCHES
        }
        changed = {name: part for name, part in parts.items() if not _is_same(part, self._sent.get(name))}
        self._sent = parts
        return changed or None


def _is_same(part: Any, before: Any) -> bool:
    """Whether a part is as it was. The end of a timeline that goes on moves with the clock, which a page has itself."""
    if isinstance(part, TeamTimeline) and isinstance(before, TeamTimeline):
        return part == msgspec.structs.replace(before, end=part.end)
    return bool(part == before)
