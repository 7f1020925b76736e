"""The report of a simulation as text, JSON and SVG plots."""

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec

from gangline.api.durations import human_duration
from gangline.base.errors import InputError
from gangline.cli.output import curve, tables
from gangline.cli.output.formats import as_json as json_text
from gangline.cli.simulate.run import SimulateResult
from gangline.scheduler.simulation.report import SimulationReport, TimelinePoint, WaitSummary, percentile

MIN_CURVE_WIDTH, MAX_CURVE_WIDTH, SCALE_WIDTH = 10, 60, 8
"""Columns of a curve, and of the scale at its left."""


def as_json(result: SimulateResult) -> str:
    """The report as JSON. What was measured, and differs from run to run, is under `engine`."""
    body = msgspec.to_builtins(result.report)
    return json_text({**body, "engine": _engine_stats(result)})


def _engine_stats(result: SimulateResult) -> dict[str, float]:
    total = sum(result.cycle_seconds)
    return {
        "seconds": round(total, 3),
        "decisionsPerSecond": round(result.report.decisions / total, 1) if total else 0.0,
        "podsPerSecond": round(result.report.placed / total, 1) if total else 0.0,
        "roundP50": round(percentile(result.cycle_seconds, 50), 6),
        "roundP95": round(percentile(result.cycle_seconds, 95), 6),
        "roundLongest": round(percentile(result.cycle_seconds, 100), 6),
    }


def as_text(result: SimulateResult) -> str:
    """The report as tables, charts and a few lines of text."""
    report, nodes = result.report, sum(pool.count for pool in result.request.node_pools)
    head = f"{nodes:,} nodes, {report.jobs:,} jobs with {report.members:,} members ({result.request.source})"
    use = f"{report.used.get(report.scarcest, 0):.0%} on average"
    if report.busy < report.seconds:
        # Otherwise all jobs started at once.
        use += f" until the last job started, after {_time_text(report.busy)}"
    parts = [
        f"{head}: {_time_text(report.seconds)} of virtual time\n{_size_note(result)}",
        _wait_table("SIZE", [*report.by_size, *report.waiting]),
        _wait_table("QUEUE", report.by_queue),
        _chart_text(f"{report.scarcest} in use, % ({use})", report, _used_percent),
        _waiting_text(report),
        "".join(f"{line}\n" for line in _fact_lines(result)),
    ]
    return "\n".join(part for part in parts if part)


def _size_note(result: SimulateResult) -> str:
    """That gangs are larger than by default, if so: the reader wonders about the sizes otherwise."""
    factor = result.request.size_factor
    if factor == 1:
        return ""
    return f"gangs are {factor} times as large as usual, so that few jobs fill many nodes; --mix sets their sizes\n"


def _waiting_text(report: SimulationReport) -> str:
    if any(point.waiting for point in report.moments) or not report.moments:
        return _chart_text("jobs that wait", report, lambda point: point.waiting)
    return "no job waited: for a backlog, raise --load (1.2), or give more --jobs or fewer --nodes\n"


def _wait_table(title: str, rows: Sequence[WaitSummary]) -> str:
    never = any(row.never for row in rows)
    header = (title, "JOBS", "WAIT P50", "P95", "LONGEST", *(("NEVER STARTED",) if never else ()))
    return tables.render(
        header,
        [
            (
                row.of,
                f"{row.jobs:,}",
                *(_time_text(time) if row.jobs > row.never else "-" for time in (row.p50, row.p95, row.longest)),
                *((f"{row.never:,}",) if never else ()),
            )
            for row in rows
        ],
    )


def _chart_text(title: str, report: SimulationReport, value: Callable[[TimelinePoint], float]) -> str:
    points = [curve.Point(point.at / 3600, value(point)) for point in report.moments]
    if not points:
        return ""
    return "".join(f"{line}\n" for line in (title, *curve.curve_lines(points, _curve_width())))


def _curve_width() -> int:
    """The columns of a curve: what the terminal has beside the scale, at most `MAX_CURVE_WIDTH`."""
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else MAX_CURVE_WIDTH + SCALE_WIDTH
    return max(MIN_CURVE_WIDTH, min(MAX_CURVE_WIDTH, room - SCALE_WIDTH))


def _used_percent(point: TimelinePoint) -> float:
    return round(100 * point.used, 6)


def _fact_lines(result: SimulateResult) -> Iterator[str]:
    report, engine = result.report, _engine_stats(result)
    others = [f"{name} {part:.0%}" for name, part in report.used.items() if name != report.scarcest]
    if others:
        yield f"also in use: {', '.join(others)}"
    yield f"fragmentation: {report.fragmented:.0%} of free {report.scarcest} is on nodes that are partly used"
    if report.victims:
        lost = f"{report.lost_seconds / 3600:,.1f} h of running lost"
        yield f"preempted: {report.preempted:,} times a whole gang, {report.victims:,} pods in all, {lost}"
    else:
        yield "preempted: nobody"
    speed = f"{engine['decisionsPerSecond']:,.0f} decisions/s, {engine['podsPerSecond']:,.0f} pods/s"
    yield f"decisions: {report.decisions:,} in {report.rounds:,} rounds, {engine['seconds']:.2f} s of computing: {speed}"
    p50, p95, most = (1000 * engine[name] for name in ("roundP50", "roundP95", "roundLongest"))
    yield f"a round: {p50:.1f} ms (p50), {p95:.1f} ms (p95), {most:.1f} ms at most"


def _time_text(seconds: float) -> str:
    return human_duration(timedelta(seconds=seconds))


def write_plots(result: SimulateResult, folder: Path) -> None:
    """Draw resource use and waiting jobs over time as two SVG files. Raises `InputError` where they cannot be written."""
    report = result.report
    title = f"{sum(pool.count for pool in result.request.node_pools):,} nodes, {report.jobs:,} jobs"

    def line(label: str, colour: int, value: Callable[[TimelinePoint], float]) -> curve.Stroke:
        points = [curve.Point(round(point.at / 3600, 4), value(point)) for point in report.moments]
        return curve.Stroke(points, curve.LINE_COLOURS[colour], label)

    use = [
        line(f"{report.scarcest} in use, %", 0, _used_percent),
        line("of what is free, on partly used nodes, %", 4, lambda point: round(100 * point.fragmented, 6)),
    ]
    pictures = {
        "use.svg": curve.chart_svg(use, title, below=True, unit="hours"),
        "waiting.svg": curve.chart_svg([line("jobs that wait", 2, lambda point: point.waiting)], title, unit="hours"),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in pictures.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}") from error
    for name in pictures:
        sys.stderr.write(f"{folder / name}\n")
