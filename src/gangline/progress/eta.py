"""How long a training still takes, computed from its steps and the time they took. Pure."""

from typing import NamedTuple

from gangline.progress.line import MAX_REMAINING_SECONDS

SMOOTHING = 0.5
"""The weight of the newest pace: steps are not equally long, and an estimate that jumps is not believed."""
MIN_SECONDS = 1.0
"""Reports that follow each other more closely tell nothing about the pace: times are known to the second."""


class StepReport(NamedTuple):
    """A step, when it was reported (in seconds of any clock), and what was estimated then."""

    step: float
    at: float
    remaining_seconds: float | None = None


def estimated_remaining(before: StepReport | None, step: float, total: float | None, now: float) -> float | None:
    """The seconds until `total` is reached, at the pace since the report before; None if that cannot be known.

    An earlier estimate is smoothed with the new one. A step that went back, as after a restart, begins anew.
    """
    if total is None or before is None or step < before.step:
        return None
    if step >= total:
        return 0.0
    elapsed = now - before.at
    earlier = None if before.remaining_seconds is None else max(0.0, before.remaining_seconds - elapsed)
    if elapsed < MIN_SECONDS or step == before.step:
        return earlier
    estimate = (total - step) * elapsed / (step - before.step)
    if earlier is not None:
        estimate = SMOOTHING * estimate + (1 - SMOOTHING) * earlier
    return estimate if estimate <= MAX_REMAINING_SECONDS else None
