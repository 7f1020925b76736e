"""The timeline of a running or finished job on its screen: as much of it as there is room for. Pure."""

import math
from collections.abc import Mapping, Sequence

import msgspec

from gangline.cli.output.text import StyledLine
from gangline.cli.output.timeline import (
    TimelineStyle,
    is_eventful,
    legend_lines,
    mark_lines,
    timeline_lines,
    timeline_metrics,
)
from gangline.timeline.curves import leading_replica
from gangline.timeline.model import ProgressPoint, TeamTimeline

MIN_SECONDS = 1.0
"""A timeline that is shorter tells nothing."""


def timeline_block(
    timeline: TeamTimeline, points: Mapping[str, Sequence[ProgressPoint]], style: TimelineStyle, room: int
) -> list[StyledLine]:
    """The timeline in at most `room` lines: all replicas, else those to which something happened, else nothing."""
    timeline = with_even_end(timeline)
    leading = points.get(leading_replica(points), ())
    metrics = timeline_metrics(leading)
    is_telling = len(timeline.rows) > 1 or bool(metrics) or is_eventful(timeline)
    if timeline.end - timeline.start < MIN_SECONDS or not is_telling:
        return []
    rows = room - 1 - len(metrics)
    if rows < len(timeline.rows):
        # One line says how many replicas are not shown.
        rows = rows - 1 if is_eventful(timeline) else 0
    return timeline_lines(timeline, style._replace(rows=rows), leading, metrics) if rows > 0 else []


def with_even_end(timeline: TeamTimeline) -> TeamTimeline:
    """The timeline up to the next second: a screen whose axis moved with every redraw would be written in vain."""
    if timeline.finished:
        return timeline
    return msgspec.structs.replace(timeline, end=timeline.start + math.ceil(timeline.end - timeline.start))


def event_lines(timeline: TeamTimeline, style: TimelineStyle, *, legend: bool = True) -> list[StyledLine]:
    """What happened to the job, for the end of a run; empty if nothing did."""
    if not is_eventful(timeline):
        return []
    return [*(legend_lines(timeline, style) if legend else ()), *mark_lines(timeline, style)]
