"""The leaderboard of a sweep, one row per trial; as text, CSV and JSON. Pure."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from gangline.api.meta import JSON
from gangline.cli.output.curve import Point
from gangline.cli.output.text import duration_text, number_text
from gangline.cli.sweep.space import TrialValues, is_path

MAX_NAMED_CURVES = 8
"""In the picture so many of the best trials have a colour and a name; the others are grey."""


class TrialState(StrEnum):
    """The state of a trial. The last four are final."""

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
    """The metric that trials are ranked by, and whether larger values are better."""

    metric: str = "loss"
    maximize: bool = False

    def sort_key(self, value: float) -> float:
        """A sort key: better values have smaller keys."""
        return -value if self.maximize else value


class TrialRow(msgspec.Struct, frozen=True):
    """The current state of one trial."""

    number: int
    values: TrialValues
    state: TrialState = TrialState.QUEUED
    # The last reported value of the metric and its step, and the share of steps done.
    value: float | None = None
    step: float | None = None
    share: float | None = None
    seconds: float | None = None
    # Why it did not succeed.
    cause: str = ""


class Leaderboard(msgspec.Struct, frozen=True):
    """All trials, in the order of their numbers."""

    objective: Objective
    rows: tuple[TrialRow, ...]

    def ranked_rows(self) -> list[TrialRow]:
        """The trials that succeeded and reported a value, best first."""
        rows = [row for row in self.rows if row.state is TrialState.SUCCEEDED and row.value is not None]
        return sorted(rows, key=lambda row: (self.objective.sort_key(row.value or 0.0), row.number))

    def best_row(self) -> TrialRow | None:
        return next(iter(self.ranked_rows()), None)

    def sorted_rows(self) -> list[TrialRow]:
        """All trials: the ranked ones first, then running and queued ones, then those that did not succeed."""
        ranks = {row.number: rank for rank, row in enumerate(self.ranked_rows())}
        state_order = [
            TrialState.SUCCEEDED,
            TrialState.RUNNING,
            TrialState.QUEUED,
            TrialState.FAILED,
            TrialState.TIMED_OUT,
            TrialState.STOPPED,
        ]
        return sorted(
            self.rows, key=lambda row: (ranks.get(row.number, len(ranks)), state_order.index(row.state), row.number)
        )

    def count(self, *states: TrialState) -> int:
        return sum(row.state in states for row in self.rows)

    def with_row(self, row: TrialRow) -> "Leaderboard":
        return msgspec.structs.replace(
            self, rows=tuple(row if other.number == row.number else other for other in self.rows)
        )


def new_leaderboard(objective: Objective, trials: Iterable[TrialValues]) -> Leaderboard:
    """A leaderboard with all trials queued."""
    return Leaderboard(objective, tuple(TrialRow(number, values) for number, values in enumerate(trials, 1)))


def parameter_labels(rows: Sequence[TrialRow]) -> dict[str, str]:
    """Short labels of the parameters that differ between trials: of a path its last part, if that is unique."""
    names = list(rows[0].values) if rows else []
    varied = [name for name in names if len({row.values[name] for row in rows}) > 1] or names
    last_parts = {name: name.replace("\\.", "_").rpartition(".")[2] for name in varied}
    labels = list(last_parts.values())
    return {name: last_parts[name] if labels.count(last_parts[name]) == 1 else name for name in varied}


def trial_label(row: TrialRow, labels: Mapping[str, str]) -> str:
    """`lr=0.1 batch=32`; `labels` are those of `parameter_labels`."""
    return " ".join(f"{label}={row.values[name]}" for name, label in labels.items())


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
    """The cells of the leaderboard, for the columns of `leaderboard_header`."""
    ranks = {row.number: str(rank) for rank, row in enumerate(board.ranked_rows(), 1)}
    labels = parameter_labels(board.rows)
    return [
        [
            ranks.get(row.number, "-"),
            str(row.number),
            *(row.values[name] for name in labels),
            "-" if row.value is None else number_text(row.value),
            _state_text(row),
            "-" if row.seconds is None else duration_text(row.seconds),
            row.cause or "-",
        ]
        for row in board.sorted_rows()
    ]


def _state_text(row: TrialRow) -> str:
    """The state; of a running trial also the share of steps done."""
    if row.state is TrialState.RUNNING and row.share is not None:
        return f"{row.state} {row.share:.0%}"
    return str(row.state)


def leaderboard_csv(board: Leaderboard) -> str:
    """One line per trial with all parameters, in the order of the trials' numbers."""
    names = list(board.rows[0].values) if board.rows else []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "state", *names, board.objective.metric, "step", "seconds", "cause"])
    for row in board.rows:
        numbers = [row.value, row.step, None if row.seconds is None else round(row.seconds, 2)]
        cells = ["" if number is None else number for number in numbers]
        writer.writerow([row.number, row.state, *(row.values[name] for name in names), *cells, row.cause])
    return text.getvalue()


def leaderboard_json(board: Leaderboard) -> JSON:
    """The leaderboard as JSON. The fields are a public format."""
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
    """The mean of the replicas' curves: at every step, the mean of the values reported there."""
    values_by_step: dict[float, list[float]] = defaultdict(list)
    for points in curves.values():
        for point in points:
            values_by_step[point.step].append(point.value)
    return [Point(step, sum(values) / len(values)) for step, values in sorted(values_by_step.items())]


def remarks(board: Leaderboard, reported: Iterable[str] = ()) -> list[str]:
    """Hints about a finished sweep that ranked nothing or found no difference; `reported` are the reported metrics."""
    ranked, metric = board.ranked_rows(), board.objective.metric
    values = {row.value for row in ranked}
    if len(ranked) > 1 and len(values) == 1:
        names = " and ".join(f"${name}" for name in board.rows[0].values if not is_path(name))
        question = f"; does the program read {names}?" if names else ""
        return [f"all trials ended with the same {metric}{question}"]
    if not ranked and board.count(TrialState.SUCCEEDED):
        others = sorted(set(reported) - {metric})
        advice = f"it reports {', '.join(others)}: give --metric {others[0]}" if others else "see docs/progress.md"
        return [f"no trial reported {metric}; {advice}"]
    return []
