"""The endpoints of jobs: pages of rows, and all about one job."""

from collections.abc import Iterable

import msgspec
import yaml
from aiohttp import web

from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.dashboard.live.rights import Access, Refusal
from gangline.dashboard.live.viewer import Viewer
from gangline.dashboard.rows import detail
from gangline.dashboard.rows.detail import AllowedActions, JobDetail, JobObjects
from gangline.dashboard.rows.job_row import JobRow, ViewStruct, progress_view
from gangline.dashboard.web.guard import Refused
from gangline.kube.errors import NotFound
from gangline.summary.event_rows import is_about
from gangline.summary.job_state import is_finished
from gangline.summary.objects import EVENTS, JOB_KINDS, PODS, ServerJob
from gangline.summary.pending_reasons import PODGROUPS
from gangline.summary.replicas import list_replicas

MAX_PAGE = 500
KINDS_BY_PLURAL = {kind.plural: kind for kind in JOB_KINDS}


class JobPage(ViewStruct, frozen=True):
    """Some of the jobs that match."""

    total: int
    rows: list[JobRow]


class JobFilter(ViewStruct, frozen=True):
    """Which jobs, and which of their page."""

    state: str = ""
    kind: str = ""
    text: str = ""
    offset: int = 0
    limit: int = 100

    def page(self, rows: Iterable[JobRow]) -> JobPage:
        """The page of those rows that match, newest first."""
        matching = sorted(filter(self._matches, rows), key=lambda row: row.created_at or "", reverse=True)
        return JobPage(total=len(matching), rows=matching[self.offset : self.offset + self.limit])

    def _matches(self, row: JobRow) -> bool:
        if self.state and row.state.lower() != self.state.lower():
            return False
        if self.kind and self.kind.lower() not in (row.kind.lower(), row.plural):
            return False
        return self.text.lower() in f"{row.id} {row.reason} {row.queue}".lower()


def job_filter(request: web.Request) -> JobFilter:
    """The filter of a request. Raises `Refused`."""
    query = request.query
    return JobFilter(
        state=query.get("state", ""),
        kind=query.get("kind", ""),
        text=query.get("text", ""),
        offset=query_number(request, "offset", 0),
        limit=min(query_number(request, "limit", 100), MAX_PAGE),
    )


def query_number(request: web.Request, name: str, default: int) -> int:
    """A number in the query. Raises `Refused`."""
    text = request.query.get(name, "")
    if not text:
        return default
    if not text.isdecimal():
        raise Refused(400, f"{name}: {text[:40]!r} is no number")
    return int(text)


def job_address(request: web.Request) -> tuple[Resource[JSON], Key]:
    """The job in the path of a request. Raises `Refused` for a kind that is no training job."""
    parts = request.match_info
    kind = KINDS_BY_PLURAL.get(parts["plural"])
    if kind is None:
        raise Refused(404, f"{parts['plural']}: no kind of training job; there are {', '.join(KINDS_BY_PLURAL)}")
    return kind, Key(parts["namespace"], parts["name"])


async def read_objects(viewer: Viewer, kind: Resource[JSON], key: Key) -> tuple[JobObjects, list[Refusal]]:
    """The objects of a job, and what of them the viewer may not read. Raises `KubeError` if that is the job itself."""
    job = ServerJob(kind, await viewer.client.get(kind, key))
    refused: list[Refusal] = []
    pods: list[JSON] = []
    events: list[JSON] = []
    group: JSON | None = None
    if await _may_list(viewer, PODS, key.namespace, refused):
        pods = await list_replicas(viewer.client, job)
    if await _may_list(viewer, EVENTS, key.namespace, refused):
        events = [event async for event in viewer.client.iterate(EVENTS, Selector(key.namespace))]
    if await viewer.rights.may(Access("get", PODGROUPS, key.namespace)):
        try:
            group = await viewer.client.get(PODGROUPS, key)
        except NotFound:
            group = None
    return JobObjects(job=job, pods=pods, events=events, group=group), refused


async def _may_list(viewer: Viewer, kind: Resource[JSON], namespace: str, refused: list[Refusal]) -> bool:
    access = Access("list", kind, namespace)
    if await viewer.rights.may(access):
        return True
    refused.append(await viewer.rights.refusal(access))
    return False


async def allowed_actions(viewer: Viewer, kind: Resource[JSON], body: JSON) -> AllowedActions:
    """What the viewer may do to a job, as far as the job's state permits it."""
    key = Key(body["metadata"].get("namespace", ""), body["metadata"]["name"])
    may_patch = await viewer.rights.may(Access("patch", kind, key.namespace))
    open_to_change = may_patch and not is_finished(body)
    suspended = bool(((body.get("spec") or {}).get("runPolicy") or {}).get("suspend"))
    may_delete_pods = await viewer.rights.may(Access("delete", PODS, key.namespace))
    return AllowedActions(
        suspend=open_to_change and not suspended,
        resume=open_to_change and suspended,
        scale=open_to_change,
        restart=may_delete_pods and not is_finished(body),
        delete=await viewer.rights.may(Access("delete", kind, key.namespace)),
    )


async def job_detail(viewer: Viewer, kind: Resource[JSON], key: Key) -> JobDetail:
    """All about one job."""
    objects, refused = await read_objects(viewer, kind, key)
    allowed = await allowed_actions(viewer, kind, objects.job.body)
    return detail_of(viewer, objects, refused, allowed)


def detail_of(viewer: Viewer, objects: JobObjects, refused: list[Refusal], allowed: AllowedActions) -> JobDetail:
    """The page of a job, from its objects."""
    body, now = objects.job.body, viewer.clock.now()
    status = body.get("status") or {}
    own = [event for event in objects.events if is_about(event, objects.job)]
    objects = msgspec.structs.replace(objects, events=own)
    return JobDetail(
        row=detail.detail_row(objects, now),
        timeline=None,
        conditions=detail.condition_rows(body),
        pods=detail.pod_rows(objects.job, objects.pods),
        events=detail.event_views(own),
        yaml=yaml.safe_dump(detail.shown_object(body), sort_keys=False, allow_unicode=True),
        progress=progress_view(status.get("progress")),
        first_failure=status.get("firstFailure"),
        allowed=allowed,
        recorded=False,
        deleted=False,
        refused=refused,
    )
