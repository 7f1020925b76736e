"""What `gangline simulate` is asked for, does and tells."""

import math
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import msgspec

from gangline.api.durations import human_duration
from gangline.base.errors import InputError
from gangline.cli.manifests.files import STDIN
from gangline.cli.output import curve, tables
from gangline.cli.output.formats import as_json as json_text
from gangline.cli.simulate.command import MAX_NODES, NODE_CAPACITY, parse_count
from gangline.scheduler.simulation.engine import (
    NodePool,
    Simulation,
    SimulationEvent,
    SimulationResult,
    SimulationRules,
    total_capacity,
)
from gangline.scheduler.simulation.report import (
    SimulationReport,
    TimelinePoint,
    WaitSummary,
    percentile,
    simulation_report,
)
from gangline.scheduler.simulation.workload import (
    MAX_MEMBERS,
    MAX_SECONDS,
    WorkloadJob,
    WorkloadMix,
    generated_jobs,
    parsed_amounts,
    trace_jobs,
)
from gangline.scheduler.types.cycle import QueueQuota, SchedulerPolicy
from gangline.scheduler.types.resources import amounts

PROGRESS_INTERVAL = 1.0
"""Seconds between two lines about how far it is, on a terminal."""
MIN_CURVE_WIDTH, MAX_CURVE_WIDTH, SCALE_WIDTH = 10, 60, 8
"""Columns of a curve, and those of the numbers at its left."""


class SimulateRequest(msgspec.Struct, frozen=True):
    """A simulation to run."""

    node_groups: tuple[NodePool, ...]
    jobs: list[WorkloadJob]
    rules: SimulationRules
    # Where the jobs are from, for people.
    source: str


class SimulateResult(msgspec.Struct, frozen=True):
    """One that was run, and how long its decisions really took."""

    request: SimulateRequest
    report: SimulationReport
    cycle_seconds: list[float]


def simulate_request(given: Mapping[str, object]) -> SimulateRequest:
    """What the options say. Raises `InputError`."""
    parks = _node_groups(given["parks"], parse_count(given["nodes"]))
    queues = [_parse_queue(text) for text in _text_values(given["queues"])]
    known = {rule.name: rule for rule in queues}
    if len(known) < len(queues):
        raise InputError("--queue: one is there twice; write each once, with its weight and its cap")
    if given["trace"]:
        works, source = _read_trace(str(given["trace"])), str(given["trace"])
    else:
        works, source = _generated_jobs(given, parks, queues), f"seed {given['seed']}"
    # A queue that only a trace names is as good as one named here.
    rules = {work.queue: QueueQuota(work.queue) for work in works} | known
    patience = _option_seconds(given, "patience")
    policy = SchedulerPolicy(
        starvation_timeout=timedelta(seconds=patience) if patience else None,
        preemption=not given["no_preemption"],
        reclaim=not given["no_reclaim"],
    )
    times = {name: _option_seconds(given, name) for name in ("cycle", "grace", "checkpoint")}
    return SimulateRequest(parks, works, SimulationRules(queues=rules, policy=policy, **times), source)


def run_simulation(wanted: SimulateRequest, log: Path | None) -> SimulateResult:
    """Do it. Writes the log as it goes, and on a terminal tells how far it is."""
    with _event_log(log) as write, _progress_line(len(wanted.jobs)) as look:

        def note(event: SimulationEvent) -> None:
            write(event)
            look(event)

        # Millions of events in a long line: not made if nobody reads them.
        heard = note if log is not None or tables.is_ansi_terminal(sys.stderr) else None
        simulation = Simulation(
            wanted.node_groups, wanted.jobs, wanted.rules, on_event=heard, stopwatch=time.perf_counter
        )
        outcome = simulation.run()
    return SimulateResult(wanted, simulation_report(outcome), _sorted_durations(outcome))


def _sorted_durations(outcome: SimulationResult) -> list[float]:
    return sorted(outcome.cycle_seconds)


@contextmanager
def _event_log(path: Path | None) -> Iterator[Callable[[SimulationEvent], None]]:
    if path is None:
        yield lambda _: None
        return
    encoder = msgspec.json.Encoder()
    try:
        with path.open("wb") as file:

            def write(event: SimulationEvent) -> None:
                file.write(encoder.encode(event) + b"\n")

            yield write
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


@contextmanager
def _progress_line(jobs: int) -> Iterator[Callable[[SimulationEvent], None]]:
    if not tables.is_ansi_terminal(sys.stderr):
        yield lambda _: None
        return
    ended, told = 0, time.monotonic()

    def look(event: SimulationEvent) -> None:
        nonlocal ended, told
        ended += event.event == "end"
        if time.monotonic() - told >= PROGRESS_INTERVAL:
            told = time.monotonic()
            at = human_duration(timedelta(seconds=event.at))
            sys.stderr.write(f"\r\x1b[K{at} simulated, {ended:,} of {jobs:,} jobs ended")
            sys.stderr.flush()

    try:
        yield look
    finally:
        sys.stderr.write("\r\x1b[K")


# Options


def _text_values(given: object) -> tuple[str, ...]:
    assert isinstance(given, tuple)
    return given


def _option_seconds(given: Mapping[str, object], name: str) -> float:
    """The value of an option that is a time. Raises `InputError` for one that nobody can wait for."""
    found = given[name]
    assert isinstance(found, timedelta)
    value = found.total_seconds()
    if not 0 <= value <= MAX_SECONDS:
        raise InputError(f"--{name}: {value:g} s is {'less than nothing' if value < 0 else 'too long a time'}")
    return value


def _node_groups(given: object, nodes: int) -> tuple[NodePool, ...]:
    texts = _text_values(given) or (NODE_CAPACITY,)
    parks = []
    for text in texts:
        count, star, rest = text.partition("*")
        if not star and len(texts) > 1:
            raise InputError(f"--node {text}: with several kinds of node write how many of each: 10*{text}")
        parks.append(NodePool(parse_count(count) if star else nodes, _parse_amounts(rest if star else text, "--node")))
    total = sum(park.count for park in parks)
    if any(park.count < 1 for park in parks) or total > MAX_NODES:
        raise InputError(f"--node: {total:,} nodes; 1 to {MAX_NODES:,} can be simulated")
    return tuple(parks)


def _parse_amounts(text: str, option: str) -> dict[str, str]:
    """`cpu=8,memory=64Gi`. Raises `InputError`."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name.strip() and value.strip() for name, _, value in pairs):
        raise InputError(f"{option} {text}: is not like cpu=8,memory=64Gi")
    found = {name.strip(): value.strip() for name, _, value in pairs}
    try:
        parsed_amounts(found)
    except InputError as error:
        raise InputError(f"{option} {text}: {error}") from error
    return found


def _parse_queue(text: str) -> QueueQuota:
    head, comma, cap = text.partition(",")
    name, _, weight = head.partition("=")
    if not name or (weight and not (weight.isdigit() and int(weight))):
        raise InputError(f"--queue {text}: is not like NAME=WEIGHT or NAME=WEIGHT,cpu=100")
    limits = amounts(_parse_amounts(cap, "--queue")) if comma else {}
    return QueueQuota(name, int(weight or 1), limits)


def _parse_shares(text: str, option: str) -> dict[int, float]:
    """`1:40,8:10`. Raises `InputError`."""
    try:
        pairs = [part.split(":") for part in text.split(",")]
        found = {int(value): float(share) for value, share in pairs}
    except ValueError as error:
        raise InputError(f"{option} {text}: is not like 1:40,8:10") from error
    total = sum(found.values())
    if min(found.values()) < 0 or not total or not math.isfinite(total):
        raise InputError(f"{option} {text}: shares are numbers above 0")
    return found


def _generated_jobs(
    given: Mapping[str, object], parks: Sequence[NodePool], queues: Sequence[QueueQuota]
) -> list[WorkloadJob]:
    changes: dict[str, object] = {"duration": _option_seconds(given, "duration"), "load": given["load"]}
    if not math.isfinite(float(str(given["load"]))):
        raise InputError(f"--load {given['load']}: write a number above 0, such as 0.9")
    if given["mix"]:
        sizes = changes["sizes"] = _parse_shares(str(given["mix"]), "--mix")
        if not 1 <= min(sizes) <= max(sizes) <= MAX_MEMBERS:
            raise InputError(f"--mix {given['mix']}: a gang has 1 to {MAX_MEMBERS:,} members")
    if given["priorities"]:
        changes["priorities"] = _parse_shares(str(given["priorities"]), "--priorities")
    if given["request"]:
        changes["request"] = _parse_amounts(str(given["request"]), "--request")
    if queues:
        changes["queues"] = {rule.name: 1.0 for rule in queues}
    mix = msgspec.structs.replace(WorkloadMix(), **changes)
    return generated_jobs(parse_count(given["jobs"]), parse_count(given["seed"]), mix, total_capacity(parks))


def _read_trace(name: str) -> list[WorkloadJob]:
    if name == STDIN:
        return trace_jobs(sys.stdin, "stdin")
    try:
        # Spreadsheets begin a file with a mark of its encoding.
        with Path(name).open(encoding="utf-8-sig") as file:
            return trace_jobs(file, name)
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: is not text") from error
    except OSError as error:
        raise InputError(f"{name}: {error.strerror}") from error


# What is told


def as_json(done: SimulateResult) -> str:
    """The report, and under `engine` what was measured, which differs from run to run."""
    body = msgspec.to_builtins(done.report)
    return json_text({**body, "engine": _engine_stats(done)})


def _engine_stats(done: SimulateResult) -> dict[str, float]:
    total = sum(done.cycle_seconds)
    return {
        "seconds": round(total, 3),
        "decisionsPerSecond": round(done.report.decisions / total, 1) if total else 0.0,
        "podsPerSecond": round(done.report.placed / total, 1) if total else 0.0,
        "roundP50": round(percentile(done.cycle_seconds, 50), 6),
        "roundP95": round(percentile(done.cycle_seconds, 95), 6),
        "roundLongest": round(percentile(done.cycle_seconds, 100), 6),
    }


def as_text(done: SimulateResult) -> str:
    found, nodes = done.report, sum(park.count for park in done.request.node_groups)
    head = f"{nodes:,} nodes, {found.jobs:,} jobs with {found.members:,} members ({done.request.source})"
    use = f"{found.used.get(found.scarcest, 0):.0%} on average"
    if found.busy < found.seconds:
        # Else all began at once.
        use += f" until the last job started, after {_time_text(found.busy)}"
    parts = [
        f"{head}: {_time_text(found.seconds)} of virtual time\n",
        _wait_table("SIZE", [*found.by_size, *found.waiting]),
        _wait_table("QUEUE", found.by_queue),
        _chart_text(f"{found.scarcest} in use, % ({use})", found, _used_percent),
        _chart_text("jobs that wait", found, lambda moment: moment.waiting),
        "".join(f"{line}\n" for line in _fact_lines(done)),
    ]
    return "\n".join(part for part in parts if part)


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


def _chart_text(title: str, found: SimulationReport, value: Callable[[TimelinePoint], float]) -> str:
    points = [curve.Point(moment.at / 3600, value(moment)) for moment in found.moments]
    if not points:
        return ""
    return "".join(f"{line}\n" for line in (title, *curve.curve_lines(points, _curve_width())))


def _curve_width() -> int:
    """Of a curve: as many as a narrow terminal has beside the scale, and no more than elsewhere."""
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else MAX_CURVE_WIDTH + SCALE_WIDTH
    return max(MIN_CURVE_WIDTH, min(MAX_CURVE_WIDTH, room - SCALE_WIDTH))


def _used_percent(moment: TimelinePoint) -> float:
    return round(100 * moment.used, 6)


def _fact_lines(done: SimulateResult) -> Iterator[str]:
    found, engine = done.report, _engine_stats(done)
    others = [f"{name} {part:.0%}" for name, part in found.used.items() if name != found.scarcest]
    if others:
        yield f"also in use: {', '.join(others)}"
    yield f"fragmentation: {found.fragmented:.0%} of free {found.scarcest} is on nodes that are partly used"
    if found.victims:
        lost = f"{found.lost_seconds / 3600:,.1f} h of running lost"
        yield f"preempted: {found.preempted:,} times a whole gang, {found.victims:,} pods in all, {lost}"
    else:
        yield "preempted: nobody"
    speed = f"{engine['decisionsPerSecond']:,.0f} decisions/s, {engine['podsPerSecond']:,.0f} pods/s"
    yield f"decisions: {found.decisions:,} in {found.rounds:,} rounds, {engine['seconds']:.2f} s of computing: {speed}"
    p50, p95, most = (1000 * engine[name] for name in ("roundP50", "roundP95", "roundLongest"))
    yield f"a round: {p50:.1f} ms (p50), {p95:.1f} ms (p95), {most:.1f} ms at most"


def _time_text(found: float) -> str:
    return human_duration(timedelta(seconds=found))


def write_plots(done: SimulateResult, folder: Path) -> None:
    """Use and waiting over time, as two pictures. Raises `InputError` where nothing can be written."""
    found = done.report
    title = f"{sum(park.count for park in done.request.node_groups):,} nodes, {found.jobs:,} jobs"

    def line(label: str, colour: int, value: Callable[[TimelinePoint], float]) -> curve.Stroke:
        points = [curve.Point(round(moment.at / 3600, 4), value(moment)) for moment in found.moments]
        return curve.Stroke(points, curve.LINE_COLOURS[colour], label)

    use = [
        line(f"{found.scarcest} in use, %", 0, _used_percent),
        line("of what is free, on partly used nodes, %", 4, lambda moment: round(100 * moment.fragmented, 6)),
    ]
    pictures = {
        "use.svg": curve.chart_svg(use, title, below=True, unit="hours"),
        "waiting.svg": curve.chart_svg([line("jobs that wait", 2, lambda moment: moment.waiting)], title, unit="hours"),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in pictures.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}") from error
    for name in pictures:
        sys.stderr.write(f"{folder / name}\n")
