"""Parses the progress lines that `report` writes. Pure."""

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

MAX_LINE_LENGTH = 16_384
"""A longer line is not a report: programs print large JSON of their own."""
MAX_METRICS, MAX_METRIC_NAME_LENGTH = 16, 63
"""The most metrics that are copied to the API, and the longest name of one."""
MAX_EXACT_INTEGER = 2**53
"""Larger integers are written as floating point, because many JSON readers cannot hold them exactly."""

CHECKPOINT_BEGIN = "begin"
CHECKPOINT_WORDS = (CHECKPOINT_BEGIN, "end")


MAX_REMAINING_SECONDS = 10 * 365 * 86400
"""A longer estimate is none: no calendar can hold it."""
_OWN_NAMES = frozenset({"step", "total", "remaining_seconds"})
"""Names in a line that are no metrics."""


class Progress(NamedTuple):
    """The progress of one replica, and its metrics in the order in which it reported them."""

    step: float
    total: float | None = None
    metrics: Mapping[str, float] = {}
    # How long the rest takes, if the program says so.
    remaining_seconds: float | None = None
    # `begin`: the program saves a checkpoint from now on; `end`: it has saved one.
    checkpoint: str = ""

    @property
    def fraction(self) -> float | None:
        """The completed fraction, 0 to 1; None if the program did not report a total."""
        if self.total is None or self.total <= 0:
            return None
        return min(1.0, max(0.0, self.step / self.total))


def parse_progress(text: str) -> Progress | None:
    """The report in a line of output; None for any other line. Never raises.

    `step` must be a number. Metrics that are not numbers, or whose names cannot be printed, are skipped, and so are a
    `total` and `remaining_seconds` that are none. `checkpoint` is `begin` or `end`; a number is a metric.
    """
    text = text.strip()
    if not text.startswith("{") or '"progress"' not in text or len(text) > MAX_LINE_LENGTH:
        return None
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return None
    # The object must have exactly this key: any other object belongs to the program.
    body = message["progress"] if isinstance(message, dict) and set(message) == {"progress"} else None
    if not isinstance(body, dict):
        return None
    numbers: dict[str, float] = {name: value for name, value in body.items() if is_number(value) and name.isprintable()}
    step, total = numbers.pop("step", None), numbers.pop("total", None)
    remaining = _credible_remaining(numbers.pop("remaining_seconds", None))
    checkpoint = body.get("checkpoint")
    checkpoint = checkpoint if checkpoint in CHECKPOINT_WORDS else ""
    return None if step is None else Progress(step, total, numbers, remaining, checkpoint)


def bounded_progress(progress: Progress) -> Progress:
    """The progress, small enough for an API object: only the first metrics, without those whose names cannot be kept."""
    names = [name for name in progress.metrics if _is_metric_name(name)][:MAX_METRICS]
    total = None if progress.total is None else _exact_number(progress.total)
    metrics = {name: _exact_number(progress.metrics[name]) for name in names}
    return Progress(
        _exact_number(progress.step),
        total,
        metrics,
        _credible_remaining(progress.remaining_seconds),
        progress.checkpoint,
    )


def progress_line(progress: Progress) -> str:
    """The line that `parse_progress` decodes to this progress."""
    total = {} if progress.total is None else {"total": progress.total}
    remaining = {} if progress.remaining_seconds is None else {"remaining_seconds": progress.remaining_seconds}
    checkpoint = {"checkpoint": progress.checkpoint} if progress.checkpoint else {}
    body = {"step": progress.step, **total, **remaining, **checkpoint, **progress.metrics}
    return json.dumps({"progress": body}, separators=(",", ":"))


def _is_metric_name(name: str) -> bool:
    return 0 < len(name) <= MAX_METRIC_NAME_LENGTH and name.isprintable() and name not in _OWN_NAMES


def _credible_remaining(seconds: float | None) -> float | None:
    return seconds if seconds is not None and 0 <= seconds <= MAX_REMAINING_SECONDS else None


def _exact_number(value: float) -> float:
    return value if not isinstance(value, int) or abs(value) <= MAX_EXACT_INTEGER else float(value)


def is_number(value: Any) -> bool:
    # In Python, true is a number, and Python's JSON parser accepts NaN.
    return isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False
