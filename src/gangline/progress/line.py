"""The other end of `report`: what a line of a program's output says about its progress. Pure."""

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

MAX_LINE_LENGTH = 16_384
"""A longer line is no report: a program may well print big JSON of its own."""
MAX_METRICS, MAX_METRIC_NAME_LENGTH = 16, 63
"""How many metrics are passed on to the API, and how long their names may be."""
MAX_EXACT_INTEGER = 2**53
"""Whole numbers beyond this are passed on as floating point: not everyone can read them otherwise."""


class Progress(NamedTuple):
    """How far one member is, and its numbers in the order in which it gave them."""

    step: float
    total: float | None = None
    metrics: Mapping[str, float] = {}

    @property
    def fraction(self) -> float | None:
        """The part that is done, 0 to 1; None where nobody said how much there is."""
        if self.total is None or self.total <= 0:
            return None
        return min(1.0, max(0.0, self.step / self.total))


def parse_progress(text: str) -> Progress | None:
    """What a line reports, or None for any other line. Never raises: programs print what they like.

    `step` must be a number. Members that are no numbers are passed over, as is a `total` that is none.
    """
    text = text.strip()
    if not text.startswith("{") or '"progress"' not in text or len(text) > MAX_LINE_LENGTH:
        return None
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    # Exactly this key: any other object is the program's own business.
    body = said["progress"] if isinstance(said, dict) and set(said) == {"progress"} else None
    if not isinstance(body, dict):
        return None
    numbers: dict[str, float] = {name: value for name, value in body.items() if _is_number(value)}
    step, total = numbers.pop("step", None), numbers.pop("total", None)
    return None if step is None else Progress(step, total, numbers)


def bounded_progress(found: Progress) -> Progress:
    """The same, small enough for an object of the API: the first metrics, those with names that are too long left out."""
    names = [name for name in found.metrics if name and len(name) <= MAX_METRIC_NAME_LENGTH][:MAX_METRICS]
    total = None if found.total is None else _exact_number(found.total)
    return Progress(_exact_number(found.step), total, {name: _exact_number(found.metrics[name]) for name in names})


def progress_line(found: Progress) -> str:
    """The line that says this: `parse_progress` reads it back."""
    total = {} if found.total is None else {"total": found.total}
    return json.dumps({"progress": {"step": found.step, **total, **found.metrics}}, separators=(",", ":"))


def _exact_number(value: float) -> float:
    return value if not isinstance(value, int) or abs(value) <= MAX_EXACT_INTEGER else float(value)


def _is_number(value: Any) -> bool:
    # In Python true is a number, and JSON as Python reads it has NaN.
    return isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
