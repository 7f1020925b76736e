"""How a training program says how far it is: one line of JSON on standard output. Standard library only.

    from gangline.progress import report

    report(step=240, total=400, loss=0.113)

prints `{"progress": {"step": 240, "total": 400, "loss": 0.113}}`, which is all there is to it: a program that must
not depend on gangline prints the same line itself. docs/progress.md has one to copy.
"""

import json
import sys
from typing import Literal

__all__ = ["report"]


def report(
    *,
    step: float,
    total: float | None = None,
    checkpoint: Literal["begin", "end"] | float | None = None,
    **metrics: float,
) -> None:
    """Report that `step` of `total` is done, with any metrics. Never raises because of a metric's value.

    `checkpoint="begin"` says that a checkpoint is being saved, until the next report, such as `checkpoint="end"`. A
    number is a metric of that name.

    The line is written whole and at once, also to a pipe. Numbers that JSON does not have (NaN, infinity) are
    left out;
    numbers of other libraries (numpy, torch) are converted.
    """
    _offer_stacks_once()
    values = {"step": step, "total": total, **metrics, "checkpoint": checkpoint}
    body = {name: number for name, value in values.items() if (number := _json_number(value)) is not None}
    saving = {"checkpoint": checkpoint} if isinstance(checkpoint, str) else {}
    sys.stdout.write(json.dumps({"progress": {**body, **saving}}) + "\n")
    sys.stdout.flush()


_stacks_offered = False


def _offer_stacks_once() -> None:
    """Let `gangline stacks` see where this program stands. Imported here: a program that never reports needs none of it."""
    global _stacks_offered
    if not _stacks_offered:
        _stacks_offered = True
        from gangline.progress.stacks import offer_stacks

        offer_stacks()


def _json_number(value: object) -> float | int | None:
    """The value as a JSON number; None if it is not a finite number."""
    if isinstance(value, int):
        return int(value)
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    if number != number or number in (float("inf"), float("-inf")):
        return None
    return int(number) if number.is_integer() and abs(number) < 2**53 else number
