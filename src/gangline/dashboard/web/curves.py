"""The curves of a job: every reported number over steps or time, from the history, else from the job's logs."""

from collections.abc import Sequence
from datetime import datetime

from aiohttp import web

from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.dashboard.live.past import Past
from gangline.dashboard.live.rights import AccessRefused, Refusal
from gangline.dashboard.live.viewer import Viewer
from gangline.dashboard.rows.job_row import ViewStruct
from gangline.dashboard.rows.log_page import AttemptLine
from gangline.dashboard.web.guard import Refused
from gangline.dashboard.web.jobs import query_number
from gangline.dashboard.web.logs import read_lines
from gangline.history.records import ObjectVersion
from gangline.kube.errors import NotFound
from gangline.progress.line import parse_progress
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


async def read_curves(
    request: web.Request, viewer: Viewer, past: Past | None, kind: Resource[JSON], key: Key
) -> CurvesView:
    """The curves that a request asks for. Raises `Refused`."""
    over, size = request.query.get("over", "step"), min(query_number(request, "points", 500), MAX_POINTS)
    if over not in ("step", "time"):
        raise Refused(400, f"over: {over[:20]!r} is none; write step or time")
    points, marks, source, not_read = await _points(request, viewer, past, kind, key)
    drawn: Curves = curves(points, marks, over=over, size=max(size, 2), replica=request.query.get("replica", ""))
    wanted = tuple(filter(None, request.query.get("metric", "").split(",")))
    metrics = tuple(curve for curve in drawn.metrics if not wanted or curve.name in wanted)
    return CurvesView(over=over, metrics=metrics, source=source, not_read=not_read)


async def _points(
    request: web.Request, viewer: Viewer, past: Past | None, kind: Resource[JSON], key: Key
) -> tuple[Sequence[ProgressPoint], Sequence[TimelineMark] | None, str, list[str]]:
    refused: list[Refusal] = []
    if past is not None:
        versions: Sequence[ObjectVersion] = ()
        try:
            versions, refused = await past.versions(kind, key, request.query.get("uid", ""))
        except AccessRefused as error:
            refused = [error.refusal]
        points = progress_points(versions, key.name)
        if points:
            return points, team_timeline(versions, viewer.clock.now().timestamp()).marks, "history", []
    try:
        lines, not_read = await read_lines(viewer, kind, key)
    except NotFound:
        if past is None:
            raise
        return [], None, "history", [item.message for item in refused]
    return log_points(lines), None, "logs", not_read


def log_points(lines: Sequence[AttemptLine]) -> list[ProgressPoint]:
    """The progress that a team reported in its logs."""
    points: list[ProgressPoint] = []
    for item in lines:
        progress = parse_progress(item.line.text)
        if progress is not None and item.line.timestamp:
            at = datetime.fromisoformat(f"{item.line.timestamp[:26]}+00:00").timestamp()
            points.append(ProgressPoint(at, progress.step, dict(progress.metrics), item.line.replica, item.attempt))
    return points
