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

from gangline.api.durations import human
from gangline.base.errors import InputError
from gangline.cli.manifests.files import STDIN
from gangline.cli.output import curve, tables
from gangline.cli.output.formats import as_json as json_text
from gangline.cli.simulate.command import CAPACITY, MOST_NODES, whole
from gangline.scheduler.simulation.engine import Event, Outcome, Park, Rules, Simulation, capacity_of
from gangline.scheduler.simulation.report import Moment, Report, Waiting, percentile, report
from gangline.scheduler.simulation.work import Work
from gangline.scheduler.simulation.workload import LONGEST, MOST_MEMBERS, Mix, checked, made_up, trace
from gangline.scheduler.types.cycle import Policy, QueueRule
from gangline.scheduler.types.resources import amounts

TOLD_EVERY = 1.0
"""Seconds between two lines about how far it is, on a terminal."""
NARROWEST, WIDEST, SCALE = 10, 60, 8
"""Columns of a curve, and those of the numbers at its left."""


class Wanted(msgspec.Struct, frozen=True):
    """A simulation to run."""

    parks: tuple[Park, ...]
    works: list[Work]
    rules: Rules
    # Where the jobs are from, for people.
    source: str


class Done(msgspec.Struct, frozen=True):
    """One that was run, and how long its decisions really took."""

    wanted: Wanted
    report: Report
    took: list[float]


def wanted(given: Mapping[str, object]) -> Wanted:
    """What the options say. Raises `InputError`."""
    parks = _parks(given["parks"], whole(given["nodes"]))
    queues = [_queue(text) for text in _texts(given["queues"])]
    known = {rule.name: rule for rule in queues}
    if len(known) < len(queues):
        raise InputError("--queue: one is there twice; write each once, with its weight and its cap")
    if given["trace"]:
        works, source = _read(str(given["trace"])), str(given["trace"])
    else:
        works, source = _made_up(given, parks, queues), f"seed {given['seed']}"
    # A queue that only a trace names is as good as one named here.
    rules = {work.queue: QueueRule(work.queue) for work in works} | known
    patience = _seconds(given, "patience")
    policy = Policy(
        patience=timedelta(seconds=patience) if patience else None,
        preemption=not given["no_preemption"],
        reclaim=not given["no_reclaim"],
    )
    times = {name: _seconds(given, name) for name in ("cycle", "grace", "checkpoint")}
    return Wanted(parks, works, Rules(queues=rules, policy=policy, **times), source)


def run(wanted: Wanted, log: Path | None) -> Done:
    """Do it. Writes the log as it goes, and on a terminal tells how far it is."""
    with _log(log) as write, _progress(len(wanted.works)) as look:

        def note(event: Event) -> None:
            write(event)
            look(event)

        # Millions of events in a long line: not made if nobody reads them.
        heard = note if log is not None or tables.obeys(sys.stderr) else None
        simulation = Simulation(
            wanted.parks, wanted.works, wanted.rules, note=heard, stopwatch=time.perf_counter
        )
        outcome = simulation.run()
    return Done(wanted, report(outcome), _timed(outcome))


def _timed(outcome: Outcome) -> list[float]:
    return sorted(outcome.took)


@contextmanager
def _log(path: Path | None) -> Iterator[Callable[[Event], None]]:
    if path is None:
        yield lambda _: None
        return
    encoder = msgspec.json.Encoder()
    try:
        with path.open("wb") as file:

            def write(event: Event) -> None:
                file.write(encoder.encode(event) + b"\n")

            yield write
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


@contextmanager
def _progress(jobs: int) -> Iterator[Callable[[Event], None]]:
    if not tables.obeys(sys.stderr):
        yield lambda _: None
        return
    ended, told = 0, time.monotonic()

    def look(event: Event) -> None:
        nonlocal ended, told
        ended += event.event == "end"
        if time.monotonic() - told >= TOLD_EVERY:
            told = time.monotonic()
            at = human(timedelta(seconds=event.at))
            sys.stderr.write(f"\r\x1b[K{at} simulated, {ended:,} of {jobs:,} jobs ended")
            sys.stderr.flush()

    try:
        yield look
    finally:
        sys.stderr.write("\r\x1b[K")


# Options


def _texts(given: object) -> tuple[str, ...]:
    assert isinstance(given, tuple)
    return given


def _seconds(given: Mapping[str, object], name: str) -> float:
    """The value of an option that is a time. Raises `InputError` for one that nobody can wait for."""
    found = given[name]
    assert isinstance(found, timedelta)
    value = found.total_seconds()
    if not 0 <= value <= LONGEST:
        raise InputError(
            f"--{name}: {value:g} s is {'less than nothing' if value < 0 else 'too long a time'}"
        )
    return value


def _parks(given: object, nodes: int) -> tuple[Park, ...]:
    texts = _texts(given) or (CAPACITY,)
    parks = []
    for text in texts:
        count, star, rest = text.partition("*")
        if not star and len(texts) > 1:
            raise InputError(f"--node {text}: with several kinds of node write how many of each: 10*{text}")
        parks.append(Park(whole(count) if star else nodes, _amounts(rest if star else text, "--node")))
    total = sum(park.count for park in parks)
    if any(park.count < 1 for park in parks) or total > MOST_NODES:
        raise InputError(f"--node: {total:,} nodes; 1 to {MOST_NODES:,} can be simulated")
    return tuple(parks)


def _amounts(text: str, option: str) -> dict[str, str]:
    """`cpu=8,memory=64Gi`. Raises `InputError`."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name.strip() and value.strip() for name, _, value in pairs):
        raise InputError(f"{option} {text}: is not like cpu=8,memory=64Gi")
    found = {name.strip(): value.strip() for name, _, value in pairs}
    try:
        checked(found)
    except InputError as error:
        raise InputError(f"{option} {text}: {error}") from error
    return found


def _queue(text: str) -> QueueRule:
    head, comma, cap = text.partition(",")
    name, _, weight = head.partition("=")
    if not name or (weight and not (weight.isdigit() and int(weight))):
        raise InputError(f"--queue {text}: is not like NAME=WEIGHT or NAME=WEIGHT,cpu=100")
    limits = amounts(_amounts(cap, "--queue")) if comma else {}
    return QueueRule(name, int(weight or 1), limits)


def _shares(text: str, option: str) -> dict[int, float]:
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


def _made_up(given: Mapping[str, object], parks: Sequence[Park], queues: Sequence[QueueRule]) -> list[Work]:
    changes: dict[str, object] = {"duration": _seconds(given, "duration"), "load": given["load"]}
    if not math.isfinite(float(str(given["load"]))):
        raise InputError(f"--load {given['load']}: write a number above 0, such as 0.9")
    if given["mix"]:
        sizes = changes["sizes"] = _shares(str(given["mix"]), "--mix")
        if not 1 <= min(sizes) <= max(sizes) <= MOST_MEMBERS:
            raise InputError(f"--mix {given['mix']}: a gang has 1 to {MOST_MEMBERS:,} members")
    if given["priorities"]:
        changes["priorities"] = _shares(str(given["priorities"]), "--priorities")
    if given["request"]:
        changes["request"] = _amounts(str(given["request"]), "--request")
    if queues:
        changes["queues"] = {rule.name: 1.0 for rule in queues}
    mix = msgspec.structs.replace(Mix(), **changes)
    return made_up(whole(given["jobs"]), whole(given["seed"]), mix, capacity_of(parks))


def _read(name: str) -> list[Work]:
    if name == STDIN:
        return trace(sys.stdin, "stdin")
    try:
        # Spreadsheets begin a file with a mark of its encoding.
        with Path(name).open(encoding="utf-8-sig") as file:
            return trace(file, name)
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: is not text") from error
    except OSError as error:
        raise InputError(f"{name}: {error.strerror}") from error


# What is told


def as_json(done: Done) -> str:
    """The report, and under `engine` what was measured, which differs from run to run."""
    body = msgspec.to_builtins(done.report)
    return json_text({**body, "engine": _engine(done)})


def _engine(done: Done) -> dict[str, float]:
    total = sum(done.took)
    return {
        "seconds": round(total, 3),
        "decisionsPerSecond": round(done.report.decisions / total, 1) if total else 0.0,
        "podsPerSecond": round(done.report.placed / total, 1) if total else 0.0,
        "roundP50": round(percentile(done.took, 50), 6),
        "roundP95": round(percentile(done.took, 95), 6),
        "roundLongest": round(percentile(done.took, 100), 6),
    }


def as_text(done: Done) -> str:
    found, nodes = done.report, sum(park.count for park in done.wanted.parks)
    head = f"{nodes:,} nodes, {found.jobs:,} jobs with {found.members:,} members ({done.wanted.source})"
    use = f"{found.used.get(found.scarcest, 0):.0%} on average"
    if found.busy < found.seconds:
        # Else all began at once.
        use += f" until the last job started, after {_time(found.busy)}"
    parts = [
        f"{head}: {_time(found.seconds)} of virtual time\n",
        _table("SIZE", [*found.by_size, *found.waiting]),
        _table("QUEUE", found.by_queue),
        _chart(f"{found.scarcest} in use, % ({use})", found, _used),
        _chart("jobs that wait", found, lambda moment: moment.waiting),
        "".join(f"{line}\n" for line in _facts(done)),
    ]
    return "\n".join(part for part in parts if part)


def _table(title: str, rows: Sequence[Waiting]) -> str:
    never = any(row.never for row in rows)
    header = (title, "JOBS", "WAIT P50", "P95", "LONGEST", *(("NEVER STARTED",) if never else ()))
    return tables.render(
        header,
        [
            (
                row.of,
                f"{row.jobs:,}",
                *(_time(time) if row.jobs > row.never else "-" for time in (row.p50, row.p95, row.longest)),
                *((f"{row.never:,}",) if never else ()),
            )
            for row in rows
        ],
    )


def _chart(title: str, found: Report, value: Callable[[Moment], float]) -> str:
    points = [curve.Point(moment.at / 3600, value(moment)) for moment in found.moments]
    if not points:
        return ""
    return "".join(f"{line}\n" for line in (title, *curve.curve(points, _columns())))


def _columns() -> int:
    """Of a curve: as many as a narrow terminal has beside the scale, and no more than elsewhere."""
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDEST + SCALE
    return max(NARROWEST, min(WIDEST, room - SCALE))


def _used(moment: Moment) -> float:
    return round(100 * moment.used, 6)


def _facts(done: Done) -> Iterator[str]:
    found, engine = done.report, _engine(done)
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


def _time(found: float) -> str:
    return human(timedelta(seconds=found))


def draw(done: Done, folder: Path) -> None:
    """Use and waiting over time, as two pictures. Raises `InputError` where nothing can be written."""
    found = done.report
    title = f"{sum(park.count for park in done.wanted.parks):,} nodes, {found.jobs:,} jobs"

    def line(label: str, colour: int, value: Callable[[Moment], float]) -> curve.Stroke:
        points = [curve.Point(round(moment.at / 3600, 4), value(moment)) for moment in found.moments]
        return curve.Stroke(points, curve.COLOURS[colour], label)

    use = [
        line(f"{found.scarcest} in use, %", 0, _used),
        line("of what is free, on partly used nodes, %", 4, lambda moment: round(100 * moment.fragmented, 6)),
    ]
    pictures = {
        "use.svg": curve.drawn(use, title, below=True, unit="hours"),
        "waiting.svg": curve.drawn(
            [line("jobs that wait", 2, lambda moment: moment.waiting)], title, unit="hours"
        ),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in pictures.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}") from error
    for name in pictures:
        sys.stderr.write(f"{folder / name}\n")
