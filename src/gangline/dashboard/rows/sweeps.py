"""Sweeps: jobs that are the same but for some values, ranked by what they reported. Pure."""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from gangline.api.meta import JSON
from gangline.api.scheme import Resource
from gangline.dashboard.rows.job_row import JobRow, ViewStruct, job_row
from gangline.history.selection import SWEEP_LABEL

TRIAL_ANNOTATION = "training.gangline.dev/trial"
"""Annotation of the job of a trial, as JSON: its number, its parameters, the metric, and whether larger is better."""


class TrialView(ViewStruct, frozen=True):
    """One trial of a sweep."""

    # The rank among trials that succeeded and reported the metric; None for others.
    rank: int | None
    number: int
    parameters: Mapping[str, str]
    value: float | None
    metrics: Mapping[str, float]
    row: JobRow


class SweepView(ViewStruct, frozen=True):
    """A sweep with all trials: the ranked ones first."""

    name: str
    metric: str
    maximize: bool
    parameters: list[str]
    trials: list[TrialView]


class TrialNote(ViewStruct, frozen=True):
    """What the job of a trial says of itself."""

    sweep: str
    number: int = 0
    parameters: Mapping[str, str] = {}
    metric: str = "loss"
    maximize: bool = False


Trial = tuple[TrialNote, JobRow]
"""A trial, and the row of its job."""


def deleted_trial_row(kind: Resource[JSON], body: JSON, now: datetime) -> JobRow:
    """The row of a trial's job that was deleted: its state is how it ended, not that it was being deleted."""
    metadata = {name: value for name, value in body["metadata"].items() if name != "deletionTimestamp"}
    return job_row(kind, {**body, "metadata": metadata}, now, deleted=True)


def trial_note(job: JSON) -> TrialNote | None:
    """The trial of a job; None if the job belongs to no sweep."""
    metadata = job.get("metadata") or {}
    sweep = (metadata.get("labels") or {}).get(SWEEP_LABEL)
    if not sweep:
        return None
    try:
        note = msgspec.json.decode((metadata.get("annotations") or {}).get(TRIAL_ANNOTATION) or "{}")
        parameters = {str(name): str(value) for name, value in dict(note.get("parameters") or {}).items()}
        number = int(note.get("trial") or 0)
    except (msgspec.MsgspecError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        # Whoever creates a job writes it, and others look at it.
        return TrialNote(sweep=sweep)
    return TrialNote(
        sweep=sweep,
        number=number,
        parameters=parameters,
        metric=str(note.get("metric") or "loss"),
        maximize=bool(note.get("maximize")),
    )


def sweep_views(trials: Iterable[Trial]) -> list[SweepView]:
    """All sweeps, the newest first."""
    by_name: dict[str, list[Trial]] = {}
    for note, row in trials:
        by_name.setdefault(note.sweep, []).append((note, row))
    views = [_sweep_view(name, members) for name, members in by_name.items()]
    return sorted(views, key=lambda view: max(trial.row.created_at or "" for trial in view.trials), reverse=True)


def _sweep_view(name: str, members: list[Trial]) -> SweepView:
    first = members[0][0]
    sign = -1 if first.maximize else 1

    def value(row: JobRow) -> float | None:
        return row.progress.metrics.get(first.metric) if row.progress is not None else None

    ranked = sorted(
        (member for member in members if member[1].state == "Succeeded" and value(member[1]) is not None),
        key=lambda member: (sign * (value(member[1]) or 0.0), member[0].number),
    )
    others = sorted((member for member in members if member not in ranked), key=lambda member: member[0].number)
    return SweepView(
        name=name,
        metric=first.metric,
        maximize=first.maximize,
        parameters=sorted({parameter for note, _ in members for parameter in note.parameters}),
        trials=[
            TrialView(
                rank=rank if rank <= len(ranked) else None,
                number=note.number,
                parameters=note.parameters,
                value=value(row),
                metrics=row.progress.metrics if row.progress is not None else {},
                row=row,
            )
            for rank, (note, row) in enumerate([*ranked, *others], 1)
        ],
    )
