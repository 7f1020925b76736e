"""Curves of what a team reported: by metric over step or time, with failures and restarts marked, thinned to a size."""

import math
from collections.abc import Iterable, Iterator, Sequence

from gangline.api.meta import JSON
from gangline.progress.line import parse_progress
from gangline.timeline.facts import child, container_status, integer, moment, pod_replica, text, unix_time
from gangline.timeline.model import (
    CurveMark,
    Curves,
    MarkKind,
    MetricCurve,
    ProgressPoint,
    RecordedVersion,
    TimelineMark,
)

PROGRESS_ANNOTATION = "training.gangline.dev/progress"
MAX_POINTS = 500
LOG_RATIO = 30.0
"""A logarithmic axis needs values of such different size ..."""
LOG_MEDIAN = 0.15
"""... and half of them below this share of a linear axis."""
NOT_ON_CURVES = (MarkKind.OPERATOR, MarkKind.SCHEDULER)
LEADERS = ("chief", "master", "launcher")

Series = tuple[tuple[float, float], ...]


def curves(
    points: Iterable[ProgressPoint],
    marks: Iterable[TimelineMark] | None = None,
    *,
    over: str = "step",
    size: int = MAX_POINTS,
    replica: str = "",
) -> Curves:
    """A curve per metric of the leading replica, or of `replica`. Without the marks of a timeline, restarts are guessed."""
    ordered = sorted(points, key=lambda point: point.at)
    chosen = replica or leading_replica({point.replica for point in ordered})
    own = [point for point in ordered if point.replica == chosen]
    names = list(dict.fromkeys(name for point in own for name in point.metrics))
    shown = tuple(_curve_marks(own, restart_marks(own) if marks is None else marks, over))
    return Curves(over, tuple(_metric_curve(name, own, shown, over, size, chosen) for name in names))


def progress_points(versions: Iterable[RecordedVersion], job: str) -> list[ProgressPoint]:
    """The reports in recorded versions of pods, each once, in the order of time; without any, those of the job."""
    ordered = [
        (version, version.body) for version in sorted(versions, key=lambda one: one.at) if version.body is not None
    ]
    points: dict[tuple[str, int, str], ProgressPoint] = {}
    for version, body in ordered:
        if "/pods/" not in f"/{version.path}":
            continue
        line = text(child(body, "metadata", "annotations"), PROGRESS_ANNOTATION)
        progress = parse_progress(line)
        if progress is None:
            continue
        uid, attempt = text(child(body, "metadata"), "uid"), integer(container_status(body), "restartCount") or 0
        point = ProgressPoint(version.at, progress.step, dict(progress.metrics), pod_replica(body, job).name, attempt)
        points.setdefault((uid, attempt, line), point)
    return list(points.values()) or [
        point for version, body in ordered for point in _job_points(version.at, body) if not _is_child(version.path)
    ]


def _is_child(path: str) -> bool:
    return any(f"/{plural}/" in f"/{path}" for plural in ("pods", "events", "services", "podgroups", "nodes"))


def _job_points(at: float, job: JSON) -> Iterator[ProgressPoint]:
    progress = child(job, "status", "progress")
    step, metrics = progress.get("step"), child(progress, "metrics")
    if isinstance(step, int | float):
        numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
        yield ProgressPoint(moment(unix_time(progress.get("updated")), at), step, numbers, text(progress, "replica"))


def leading_replica(replicas: Iterable[str]) -> str:
    """The replica whose numbers stand for the team: chief, master, launcher, else the first by name."""
    ordered = sorted(replicas, key=lambda name: (len(name), name))
    return next((name for name in ordered if name.startswith(LEADERS)), ordered[0] if ordered else "")


def prefers_log(values: Sequence[float]) -> bool:
    """Whether a logarithmic axis tells more: on a linear one, most values would lie flat at the bottom."""
    if len(values) < 3 or min(values) <= 0:
        return False
    low, high = min(values), max(values)
    middle = sorted(values)[len(values) // 2]
    return high / low >= LOG_RATIO and (middle - low) / (high - low) <= LOG_MEDIAN


def thinned(points: Sequence[tuple[float, float]], size: int) -> Series:
    """At most `size` points, at least 4: first and last, and of each part between them the lowest and the highest."""
    if len(points) <= max(size, 4):
        return tuple(points)
    inner, parts = points[1:-1], max(1, (size - 2) // 2)
    kept = [points[0]]
    for part in range(parts):
        piece = inner[part * len(inner) // parts : (part + 1) * len(inner) // parts]
        if piece:
            low, high = min(piece, key=lambda point: point[1]), max(piece, key=lambda point: point[1])
            kept += sorted({low, high})
    return (*kept, points[-1])


def _metric_curve(
    name: str, points: Sequence[ProgressPoint], marks: tuple[CurveMark, ...], over: str, size: int, replica: str
) -> MetricCurve:
    counted: list[tuple[float, float]] = []
    repeated: list[tuple[float, float]] = []
    for point in points:
        value = point.metrics.get(name)
        if value is None or not math.isfinite(value):
            continue
        x = point.at if over == "time" else point.step
        # After a restart from a checkpoint, steps that are done again replace those from before.
        while counted and counted[-1][0] >= x:
            repeated.append(counted.pop())
        counted.append((x, value))
    shown = thinned(counted, size)
    log = prefers_log([value for _, value in counted])
    return MetricCurve(name, shown, thinned(sorted(repeated), size), marks, log, replica)


def _curve_marks(points: Sequence[ProgressPoint], marks: Iterable[TimelineMark], over: str) -> Iterator[CurveMark]:
    """The marks on the axis: over steps, each at the last step that was reported before it."""
    for mark in marks:
        if mark.kind in NOT_ON_CURVES:
            continue
        described = ": ".join(part for part in (mark.row or "", mark.text or mark.kind) if part)
        if over == "time":
            yield CurveMark(mark.at, mark.kind, described)
            continue
        before = [point.step for point in points if point.at <= mark.at]
        if before:
            yield CurveMark(before[-1], mark.kind, described)


def restart_marks(points: Iterable[ProgressPoint]) -> list[TimelineMark]:
    """The restarts that reports show by themselves: by the number of their attempt, or because steps are repeated."""
    marks: list[TimelineMark] = []
    last: dict[str, ProgressPoint] = {}
    for point in sorted(points, key=lambda point: point.at):
        before = last.get(point.replica)
        if before is not None and (point.attempt > before.attempt or point.step < before.step):
            marks.append(TimelineMark(MarkKind.RESTART, point.at, point.replica, f"at step {point.step:g} again"))
        last[point.replica] = point
    return marks
