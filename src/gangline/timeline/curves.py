"""Curves of what a team reported: by metric over step or time, with failures and restarts marked, thinned to a size."""

import math
from collections.abc import Iterable, Sequence
from statistics import median

from gangline.progress.line import parse_progress
from gangline.timeline.facts import child, container_status, integer, pod_replica, text
from gangline.timeline.model import (
    CurveMark,
    Curves,
    MetricCurve,
    ObjectVersion,
    ProgressPoint,
    TimelineMark,
)

PROGRESS_ANNOTATION = "training.gangline.dev/progress"
MAX_POINTS = 500
LOG_RATIO = 30.0
"""A logarithmic axis needs values of such different size ..."""
LOG_MEDIAN = 0.15
"""... and half of them below this share of a linear axis."""
LEADERS = ("chief", "master", "launcher")

Series = tuple[tuple[float, float], ...]


def curves(
    points: Iterable[ProgressPoint],
    marks: Iterable[TimelineMark] = (),
    *,
    over: str = "step",
    size: int = MAX_POINTS,
    replica: str = "",
) -> Curves:
    """A curve per metric of the leading replica, or of `replica`. `marks` are those of the timeline."""
    ordered = sorted(points, key=lambda point: point.at)
    chosen = replica or leading_replica({point.replica for point in ordered})
    own = [point for point in ordered if point.replica == chosen]
    names = list(dict.fromkeys(name for point in own for name in point.metrics))
    shown = tuple(_curve_marks(own, marks, over))
    return Curves(over, tuple(_metric_curve(name, own, shown, over, size, chosen) for name in names))


def progress_points(versions: Iterable[ObjectVersion], job: str) -> list[ProgressPoint]:
    """The reports in recorded versions of pods, each once, in the order of time."""
    points: dict[tuple[str, int, str], ProgressPoint] = {}
    for version in sorted(versions, key=lambda version: version.at):
        if version.body is None or "/pods/" not in f"/{version.path}":
            continue
        line = text(child(version.body, "metadata", "annotations"), PROGRESS_ANNOTATION)
        progress = parse_progress(line)
        if progress is None:
            continue
        uid, attempt = (
            text(child(version.body, "metadata"), "uid"),
            integer(container_status(version.body), "restartCount"),
        )
        point = ProgressPoint(
            version.at, progress.step, dict(progress.metrics), pod_replica(version.body, job).name, attempt or 0
        )
        points.setdefault((uid, 0, line), point)
    return list(points.values())


def leading_replica(replicas: Iterable[str]) -> str:
    """The replica whose numbers stand for the team: chief, master, launcher, else the first by name."""
    ordered = sorted(replicas, key=lambda name: (len(name), name))
    return next((name for name in ordered if name.startswith(LEADERS)), ordered[0] if ordered else "")


def prefers_log(values: Sequence[float]) -> bool:
    """Whether a logarithmic axis tells more: on a linear one, most values would lie flat at the bottom."""
    if len(values) < 3 or min(values) <= 0:
        return False
    low, high = min(values), max(values)
    return high / low >= LOG_RATIO and (median(values) - low) / (high - low) <= LOG_MEDIAN


def thinned(points: Sequence[tuple[float, float]], size: int) -> Series:
    """At most `size` points: the first, the last, and of each part between them the lowest and the highest."""
    if len(points) <= max(size, 2):
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


def _curve_marks(points: Sequence[ProgressPoint], marks: Iterable[TimelineMark], over: str) -> Iterable[CurveMark]:
    """The marks on the axis: over steps, each at the last step that was reported before it."""
    for mark in marks:
        if mark.kind in ("operator", "scheduler"):
            continue
        described = ": ".join(part for part in (mark.row or "", mark.text or mark.kind) if part)
        if over == "time":
            yield CurveMark(mark.at, mark.kind, described)
            continue
        before = [point.step for point in points if point.at <= mark.at]
        if before:
            yield CurveMark(before[-1], mark.kind, described)
