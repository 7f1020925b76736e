"""What is known of a sweep: one row per trial, the leaderboard of them, and both as text. Pure."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from gangline.api.meta import JSON
from gangline.cli.follow.view import duration_text, number_text
from gangline.cli.output.curve import Point
from gangline.cli.sweep.space import TrialValues

MAX_NAMED_CURVES = 8
"""So many trials have a colour and a name in the picture, the best ones; the others are grey."""


class TrialState(StrEnum):
    """Where a trial is. It ends as one of the last four."""

    QUEUED = "Queued"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    TIMED_OUT = "TimedOut"
    STOPPED = "Stopped"

    @property
    def is_over(self) -> bool:
        return self not in (TrialState.QUEUED, TrialState.RUNNING)


class Objective(NamedTuple):
    """Which number counts, and whether more of it is better."""

    metric: str = "loss"
    maximize: bool = False

    def sort_key(self, value: float) -> float:
        """The better, the smaller."""
        return -value if self.maximize else value


class TrialRow(msgspec.Struct, frozen=True):
    """One trial, now."""

    number: int
    values: TrialValues
    state: TrialState = TrialState.QUEUED
    # What it reported last of the metric, and at which step; how far it is.
    value: float | None = None
    step: float | None = None
    share: float | None = None
    seconds: float | None = None
    # What became of it, if it did not succeed.
    cause: str = ""


class Leaderboard(msgspec.Struct, frozen=True):
    """All trials in the order of their numbers."""

    objective: Objective
    rows: tuple[TrialRow, ...]

    def ranked_rows(self) -> list[TrialRow]:
        """Those that succeeded with a value, the best first."""
        found = [row for row in self.rows if row.state is TrialState.SUCCEEDED and row.value is not None]
        return sorted(found, key=lambda row: (self.objective.sort_key(row.value or 0.0), row.number))

    def best_row(self) -> TrialRow | None:
        return next(iter(self.ranked_rows()), None)

    def sorted_rows(self) -> list[TrialRow]:
        """As on a leaderboard: the best first, then those that go on and wait, at last those that came to nothing."""
        first = {row.number: rank for rank, row in enumerate(self.ranked_rows())}
        last = [
            TrialState.SUCCEEDED,
            TrialState.RUNNING,
            TrialState.QUEUED,
            TrialState.FAILED,
            TrialState.TIMED_OUT,
            TrialState.STOPPED,
        ]
        return sorted(
            self.rows,
            key=lambda row: (first.get(row.number, len(first)), last.index(row.state), row.number),
        )

    def count(self, *states: TrialState) -> int:
        return sum(row.state in states for row in self.rows)

    def with_row(self, row: TrialRow) -> "Leaderboard":
        return msgspec.structs.replace(
            self, rows=tuple(row if each.number == row.number else each for each in self.rows)
        )


def new_leaderboard(aim: Objective, found: Iterable[TrialValues]) -> Leaderboard:
    """Nothing has begun."""
    return Leaderboard(aim, tuple(TrialRow(at, values) for at, values in enumerate(found, 1)))


def parameter_labels(rows: Sequence[TrialRow]) -> dict[str, str]:
    """The parameters that differ between trials, and short names for them: of a path its end, if that is enough."""
    names = list(rows[0].values) if rows else []
    varied = [name for name in names if len({row.values[name] for row in rows}) > 1] or names
    ends = {name: name.replace("\\.", "_").rpartition(".")[2] for name in varied}
    short = list(ends.values())
    return {name: ends[name] if short.count(ends[name]) == 1 else name for name in varied}


def trial_label(row: TrialRow, named: Mapping[str, str]) -> str:
    """`lr=0.1 batch=32`."""
    return " ".join(f"{short}={row.values[name]}" for name, short in named.items())


def leaderboard_header(board: Leaderboard) -> list[str]:
    return [
        "RANK",
        "TRIAL",
        *parameter_labels(board.rows).values(),
        board.objective.metric.upper(),
        "STATE",
        "TIME",
        "CAUSE",
    ]


def leaderboard_rows(board: Leaderboard) -> list[list[str]]:
    """The leaderboard as text, under `leaderboard_header`."""
    ranks = {row.number: str(rank) for rank, row in enumerate(board.ranked_rows(), 1)}
    named = parameter_labels(board.rows)
    return [
        [
            ranks.get(row.number, "-"),
            str(row.number),
            *(row.values[name] for name in named),
            "-" if row.value is None else number_text(row.value),
            _state_text(row),
            "-" if row.seconds is None else duration_text(row.seconds),
            row.cause or "-",
        ]
        for row in board.sorted_rows()
    ]


def _state_text(row: TrialRow) -> str:
    """With how far it is, while it goes on."""
    going = row.state is TrialState.RUNNING and row.share is not None
    return f"{row.state} {row.share:.0%}" if going else str(row.state)


def leaderboard_csv(board: Leaderboard) -> str:
    """One line per trial, in order of their numbers, with every parameter."""
    names = list(board.rows[0].values) if board.rows else []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "state", *names, board.objective.metric, "step", "seconds", "cause"])
    for row in board.rows:
        numbers = [row.value, row.step, None if row.seconds is None else round(row.seconds, 2)]
        plain = ["" if each is None else each for each in numbers]
        writer.writerow([row.number, row.state, *(row.values[name] for name in names), *plain, row.cause])
    return text.getvalue()


def leaderboard_json(board: Leaderboard) -> JSON:
    """The leaderboard for programs: its fields are a promise."""
    best = board.best_row()
    return {
        "metric": board.objective.metric,
        "goal": "max" if board.objective.maximize else "min",
        "best": None if best is None else _row_json(best),
        "trials": [_row_json(row) for row in board.sorted_rows()],
    }


def _row_json(row: TrialRow) -> dict[str, Any]:
    return {
        "trial": row.number,
        "state": str(row.state),
        "parameters": dict(row.values),
        "value": row.value,
        "step": row.step,
        "seconds": None if row.seconds is None else round(row.seconds, 2),
        "cause": row.cause,
    }


def mean_curve(curves: Mapping[str, Sequence[Point]]) -> list[Point]:
    """One curve of those of all members: at every step, the mean of what was reported there."""
    found: dict[float, list[float]] = defaultdict(list)
    for points in curves.values():
        for point in points:
            found[point.step].append(point.value)
    return [Point(step, sum(values) / len(values)) for step, values in sorted(found.items())]


def remarks(board: Leaderboard, seen: Iterable[str] = ()) -> list[str]:
    """What a person should know of a sweep that is over; `seen` are the metrics that trials did report."""
    ranked, metric = board.ranked_rows(), board.objective.metric
    values = {row.value for row in ranked}
    if len(ranked) > 1 and len(values) == 1:
        names = " and ".join(f"${name}" for name in board.rows[0].values if "." not in name)
        use = f"; does the program read {names}?" if names else ""
        return [f"all trials ended with the same {metric}{use}"]
    if not ranked and board.count(TrialState.SUCCEEDED):
        others = sorted(set(seen) - {metric})
        instead = f"it reports {', '.join(others)}: give --metric {others[0]}" if others else "see docs/progress.md"
        return [f"no trial reported {metric}; {instead}"]
    return []
