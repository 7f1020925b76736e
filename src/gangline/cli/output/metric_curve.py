"""Curves of metrics that a team reported, as text with their failures and restarts. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from gangline.cli.output.curve import AxisMark, Point, curve_lines
from gangline.cli.output.text import Span, StyledLine
from gangline.timeline.curves import NOT_ON_CURVES, prefers_log
from gangline.timeline.model import ProgressPoint, TimelineMark

CURVE_WIDTH, LABEL_WIDTH = 60, 14

ReplicaPoints = Mapping[str, Sequence[ProgressPoint]]
"""What each replica reported, in the order of time."""


def metric_names(points: ReplicaPoints) -> list[str]:
    """The metrics that the replicas reported, each once."""
    return list(dict.fromkeys(name for one in points.values() for point in one for name in point.metrics))


def metric_curve_lines(
    name: str, points: ReplicaPoints, marks: Iterable[TimelineMark] = (), width: int = 100
) -> list[StyledLine]:
    """The curve of a metric over the steps, and a line that names its axis. Empty if fewer than two steps reported it.

    The points of all replicas together: those of a single one are noisy. The axis is logarithmic where that tells more.
    """
    values = sorted(
        Point(point.step, point.metrics[name]) for one in points.values() for point in one if name in point.metrics
    )
    if not values or values[0].step == values[-1].step:
        return []
    log = prefers_log([point.value for point in values])
    columns = max(10, min(CURVE_WIDTH, width - LABEL_WIDTH))
    lines = curve_lines(values, columns, marks=axis_marks(points, marks), log=log)
    axis = f"{name} from step {values[0].step:g} to {values[-1].step:g}{', logarithmic' if log else ''}"
    return [*((Span(line),) for line in lines), (Span(axis, "dim"),)]


def axis_marks(points: ReplicaPoints, marks: Iterable[TimelineMark]) -> list[AxisMark]:
    """Each mark at the last step that its replica reported before it."""
    placed = []
    for mark in marks:
        # A mark of the job itself is placed by the reports of all replicas.
        own = points.get(mark.row) if mark.row is not None else [point for one in points.values() for point in one]
        before = [point.step for point in own or () if point.at <= mark.at]
        if before and mark.kind not in NOT_ON_CURVES:
            text = ": ".join(part for part in (mark.row, mark.text or mark.kind) if part)
            placed.append(AxisMark(max(before) if mark.row is None else before[-1], mark.kind, text))
    return placed
