"""The curves of a job: every reported number over steps or time, from the history, else from its logs; CPU and memory."""

from collections.abc import Sequence
from datetime import datetime
from math import inf
from typing import NamedTuple

from aiohttp import web

from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.dashboard.live.rights import AccessRefused, Refusal
from gangline.dashboard.live.usage import UsagePoint, UsageView, usage_view
from gangline.dashboard.live.viewer import Viewer
from gangline.dashboard.rows.job_row import ViewStruct
from gangline.dashboard.web.guard import Refused
from gangline.dashboard.web.jobs import query_number
from gangline.history.records import ObjectVersion
from gangline.kube.errors import NotFound
from gangline.summary.objects import ServerJob
from gangline.timeline.build import team_timeline
from gangline.timeline.curves import curves, progress_points
from gangline.timeline.model import Curves, MetricCurve, ProgressPoint, TimelineMark

MAX_POINTS = 5000


class CurvesView(ViewStruct, frozen=True):
    """The curves of a job."""

    over: str
    metrics: tuple[MetricCurve, ...]
    # Where the numbers come from: history or logs.
    source: str
    # What could not be read, in words.
    not_read: list[str]
    usage: UsageView


class _Reported(NamedTuple):
    points: Sequence[ProgressPoint]
    marks: Sequence[TimelineMark] | None
    source: str
    not_read: list[str]


async def read_curves(
    request: web.Request, viewer: Viewer, kind: Resource[JSON], key: Key, moment: datetime | None = None
) -> CurvesView:
    """The curves that a request asks for; with `moment`, as they were then. Raises `Refused`."""
    over, size = request.query.get("over", "step"), max(min(query_number(request, "points", 500), MAX_POINTS), 2)
    if over not in ("step", "time"):
        raise Refused(400, f"over: {over[:20]!r} is none; write step or time")
    uid = request.query.get("uid", "")
    job = await _current_job(viewer, kind, key, uid) if moment is None else None
    until = moment.timestamp() if moment is not None else inf
    reported = await _reported(viewer, kind, key, uid, job, until)
    drawn: Curves = curves(
        reported.points, reported.marks, over=over, size=size, replica=request.query.get("replica", "")
    )
    wanted = tuple(filter(None, request.query.get("metric", "").split(",")))
    metrics = tuple(curve for curve in drawn.metrics if not wanted or curve.name in wanted)
    used, note = await _used(viewer, kind, key, uid, job, until)
    return CurvesView(
        over=over,
        metrics=metrics,
        source=reported.source,
        not_read=reported.not_read,
        usage=usage_view(used, note, size),
    )


async def _current_job(viewer: Viewer, kind: Resource[JSON], key: Key, uid: str) -> ServerJob | None:
    """The job that the server has; None if it is gone, and the history may have it. Raises `NotFound`."""
    try:
        job = ServerJob(kind, await viewer.client.get(kind, key))
    except NotFound:
        if viewer.past is None:
            raise
        return None
    if uid and job.body["metadata"].get("uid") != uid:
        return None
    return job


async def _reported(
    viewer: Viewer, kind: Resource[JSON], key: Key, uid: str, job: ServerJob | None, until: float
) -> _Reported:
    refused: list[Refusal] = []
    if viewer.past is not None:
        versions: Sequence[ObjectVersion] = ()
        try:
            versions, refused = await viewer.past.versions(kind, key, uid)
        except AccessRefused as error:
            refused = [error.refusal]
        versions = [version for version in versions if version.at <= until]
        points = progress_points(versions, key.name)
        if points:
            end = min(viewer.clock.now().timestamp(), until)
            return _Reported(points, team_timeline(versions, end).marks, "history", [])
    if job is None:
        return _Reported([], None, "history", [item.message for item in refused])
    points, not_read = await viewer.log_points.read(job)
    return _Reported(points, None, "logs", not_read)


async def _used(
    viewer: Viewer, kind: Resource[JSON], key: Key, uid: str, job: ServerJob | None, until: float
) -> tuple[list[UsagePoint], str]:
    """What the team used, and why there is no more."""
    uid = uid or (str(job.body["metadata"].get("uid", "")) if job is not None else "")
    recorded = await viewer.past.usage(kind, key, uid) if viewer.past is not None else []
    recorded = [point for point in recorded if point.at <= until]
    measured, note = await viewer.usage.read(job) if job is not None else ([], "")
    return [*recorded, *measured], note
