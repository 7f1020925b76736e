"""The other end of `report`: what a line of a program's output says about its progress. Pure."""

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

LONGEST = 16_384
"""A longer line is no report: a program may well print big JSON of its own."""
MOST, LONG = 16, 63
"""How many metrics are passed on to the API, and how long their names may be."""
EXACT = 2**53
"""Whole numbers beyond this are passed on as floating point: not everyone can read them otherwise."""


class Progress(NamedTuple):
    """How far one member is, and its numbers in the order in which it gave them."""

    step: float
    total: float | None = None
    metrics: Mapping[str, float] = {}

    @property
    def share(self) -> float | None:
        """The part that is done, 0 to 1; None where nobody said how much there is."""
        if self.total is None or self.total <= 0:
            return None
        return min(1.0, max(0.0, self.step / self.total))


def progress(text: str) -> Progress | None:
    """What a line reports, or None for any other line. Never raises: programs print what they like.

    `step` must be a number. Members that are no numbers are passed over, as is a `total` that is none.
    """
    text = text.strip()
    if not text.startswith("{") or '"progress"' not in text or len(text) > LONGEST:
        return None
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    # Exactly this key: any other object is the program's own business.
    body = said["progress"] if isinstance(said, dict) and set(said) == {"progress"} else None
    if not isinstance(body, dict):
        return None
    numbers: dict[str, float] = {name: value for name, value in body.items() if _number(value)}
    step, total = numbers.pop("step", None), numbers.pop("total", None)
    return None if step is None else Progress(step, total, numbers)


def bounded(found: Progress) -> Progress:
    """The same, small enough for an object of the API: the first metrics, those with names that are too long left out."""
    names = [name for name in found.metrics if name and len(name) <= LONG][:MOST]
    total = None if found.total is None else _exact(found.total)
    return Progress(_exact(found.step), total, {name: _exact(found.metrics[name]) for name in names})


def written(found: Progress) -> str:
    """The line that says this: `progress` reads it back."""
    total = {} if found.total is None else {"total": found.total}
    return json.dumps({"progress": {"step": found.step, **total, **found.metrics}}, separators=(",", ":"))


def _exact(value: float) -> float:
    return value if not isinstance(value, int) or abs(value) <= EXACT else float(value)


def _number(value: Any) -> bool:
    # In Python true is a number, and JSON as Python reads it has NaN.
    return isinstance(value, int | float) and not isinstance(value, bool) and _finite(value)


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
