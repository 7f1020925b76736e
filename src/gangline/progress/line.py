"""The other end of `report`: what a line of a program's output says about its progress. Pure."""

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

LONGEST = 16_384
"""A longer line is no report: a program may well print big JSON of its own."""


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


def _number(value: Any) -> bool:
    # In Python true is a number, and JSON as Python reads it has NaN.
    return isinstance(value, int | float) and not isinstance(value, bool) and _finite(value)


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
