"""What is known of a sweep: one row per trial, the leaderboard of them, and both as text. Pure."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from gangline.api.meta import JSON
from gangline.cli.follow.view import lasted, number
from gangline.cli.output.curve import Point
from gangline.cli.sweep.space import Values

LINES = 8
"""So many trials have a colour and a name in the picture, the best ones; the others are grey."""


class State(StrEnum):
    """Where a trial is. It ends as one of the last four."""

    QUEUED = "Queued"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    STOPPED = "Stopped"

    @property
    def over(self) -> bool:
        return self not in (State.QUEUED, State.RUNNING)


class Aim(NamedTuple):
    """Which number counts, and whether more of it is better."""

    metric: str = "loss"
    most: bool = False

    def key(self, value: float) -> float:
        """The better, the smaller."""
        return -value if self.most else value


class Row(msgspec.Struct, frozen=True):
    """One trial, now."""

    number: int
    values: Values
    state: State = State.QUEUED
    # What it reported last of the metric, and at which step; how far it is.
    value: float | None = None
    step: float | None = None
    share: float | None = None
    seconds: float | None = None
    # What became of it, if it did not succeed.
    cause: str = ""


class Board(msgspec.Struct, frozen=True):
    """All trials in the order of their numbers."""

    aim: Aim
    rows: tuple[Row, ...]

    def ranked(self) -> list[Row]:
        """Those that succeeded with a value, the best first."""
        found = [row for row in self.rows if row.state is State.SUCCEEDED and row.value is not None]
        return sorted(found, key=lambda row: (self.aim.key(row.value or 0.0), row.number))

    def best(self) -> Row | None:
        return next(iter(self.ranked()), None)

    def ordered(self) -> list[Row]:
        """As on a leaderboard: the best first, then those that go on and wait, at last those that came to nothing."""
        first = {row.number: rank for rank, row in enumerate(self.ranked())}
        last = [State.SUCCEEDED, State.RUNNING, State.QUEUED, State.FAILED, State.TIMED_OUT, State.STOPPED]
        return sorted(
            self.rows,
            key=lambda row: (first.get(row.number, len(first)), last.index(row.state), row.number),
        )

    def count(self, *states: State) -> int:
        return sum(row.state in states for row in self.rows)

    def changed(self, row: Row) -> "Board":
        return msgspec.structs.replace(
            self, rows=tuple(row if each.number == row.number else each for each in self.rows)
        )


def fresh(aim: Aim, found: Iterable[Values]) -> Board:
    """Nothing has begun."""
    return Board(aim, tuple(Row(at, values) for at, values in enumerate(found, 1)))


def labels(rows: Sequence[Row]) -> dict[str, str]:
    """The parameters that differ between trials, and short names for them: of a path its end, if that is enough."""
    names = list(rows[0].values) if rows else []
    varied = [name for name in names if len({row.values[name] for row in rows}) > 1] or names
    ends = {name: name.replace("\\.", "_").rpartition(".")[2] for name in varied}
    short = list(ends.values())
    return {name: ends[name] if short.count(ends[name]) == 1 else name for name in varied}


def told(row: Row, named: Mapping[str, str]) -> str:
    """`lr=0.1 batch=32`."""
    return " ".join(f"{short}={row.values[name]}" for name, short in named.items())


def header(board: Board) -> list[str]:
    return ["RANK", "TRIAL", *labels(board.rows).values(), board.aim.metric.upper(), "STATE", "TIME", "CAUSE"]


def cells(board: Board) -> list[list[str]]:
    """The leaderboard as text, under `header`."""
    ranks = {row.number: str(rank) for rank, row in enumerate(board.ranked(), 1)}
    named = labels(board.rows)
    return [
        [
            ranks.get(row.number, "-"),
            str(row.number),
            *(row.values[name] for name in named),
            "-" if row.value is None else number(row.value),
            _state(row),
            "-" if row.seconds is None else lasted(row.seconds),
            row.cause or "-",
        ]
        for row in board.ordered()
    ]


def _state(row: Row) -> str:
    """With how far it is, while it goes on."""
    going = row.state is State.RUNNING and row.share is not None
    return f"{row.state} {row.share:.0%}" if going else str(row.state)


def as_csv(board: Board) -> str:
    """One line per trial, in order of their numbers, with every parameter."""
    names = list(board.rows[0].values) if board.rows else []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "state", *names, board.aim.metric, "step", "seconds", "cause"])
    for row in board.rows:
        numbers = [row.value, row.step, None if row.seconds is None else round(row.seconds, 2)]
        plain = ["" if each is None else each for each in numbers]
        writer.writerow([row.number, row.state, *(row.values[name] for name in names), *plain, row.cause])
    return text.getvalue()


def as_json(board: Board) -> JSON:
    """The leaderboard for programs: its fields are a promise."""
    best = board.best()
    return {
        "metric": board.aim.metric,
        "goal": "max" if board.aim.most else "min",
        "best": None if best is None else _plain(best),
        "trials": [_plain(row) for row in board.ordered()],
    }


def _plain(row: Row) -> dict[str, Any]:
    return {
        "trial": row.number,
        "state": str(row.state),
        "parameters": dict(row.values),
        "value": row.value,
        "step": row.step,
        "seconds": None if row.seconds is None else round(row.seconds, 2),
        "cause": row.cause,
    }


def merged(curves: Mapping[str, Sequence[Point]]) -> list[Point]:
    """One curve of those of all members: at every step, the mean of what was reported there."""
    found: dict[float, list[float]] = defaultdict(list)
    for points in curves.values():
        for point in points:
            found[point.step].append(point.value)
    return [Point(step, sum(values) / len(values)) for step, values in sorted(found.items())]


def remarks(board: Board, seen: Iterable[str] = ()) -> list[str]:
    """What a person should know of a sweep that is over; `seen` are the metrics that trials did report."""
    ranked, metric = board.ranked(), board.aim.metric
    values = {row.value for row in ranked}
    if len(ranked) > 1 and len(values) == 1:
        names = " and ".join(f"${name}" for name in board.rows[0].values if "." not in name)
        use = f"; does the program read {names}?" if names else ""
        return [f"all trials ended with the same {metric}{use}"]
    if not ranked and board.count(State.SUCCEEDED):
        others = sorted(set(seen) - {metric})
        instead = (
            f"it reports {', '.join(others)}: give --metric {others[0]}" if others else "see docs/progress.md"
        )
        return [f"no trial reported {metric}; {instead}"]
    return []
