"""Decodes what Kubeflow Trainer's clients post, `transformers` among them, into progress. Pure, standard library only.

    {"trainerStatus": {"progressPercentage": 45, "estimatedRemainingSeconds": 795, "lastUpdatedTime": "2026-11-18T04:00:00Z",
                       "metrics": [{"name": "loss", "value": "0.2347"}, {"name": "current_step", "value": "450"}]}}

Values of metrics are strings. `transformers` sends its steps as the metrics `current_step` and `total_steps`; its last
report has neither. `lastUpdatedTime` is not read: the clock of a sender proves nothing.
"""

import json
import math
from typing import Any, NamedTuple

from gangline.progress.line import Progress, is_number

STEP_METRIC, TOTAL_METRIC = "current_step", "total_steps"
PERCENT = 100.0


class BadReport(ValueError):
    """A body that is no such report. The message says what is wrong, and what to write instead."""


class TrainerStatus(NamedTuple):
    """A report, with the numbers of its metrics in their order."""

    percentage: float | None = None
    remaining_seconds: float | None = None
    metrics: dict[str, float] = {}

    @property
    def is_last(self) -> bool:
        """Whether it says that the training is done: nothing else follows."""
        return self.percentage is not None and self.percentage >= PERCENT


def decode_trainer_status(body: bytes) -> TrainerStatus:
    """The report in a body. Raises `BadReport`. Metrics that are no finite numbers are skipped."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        raise BadReport('the body is not JSON; send {"trainerStatus": {"progressPercentage": 45}}') from None
    status = message.get("trainerStatus") if isinstance(message, dict) else None
    if not isinstance(status, dict):
        raise BadReport('the body has no object "trainerStatus"; send {"trainerStatus": {"progressPercentage": 45}}')
    percentage = _number(status, "progressPercentage")
    if percentage is not None and not 0 <= percentage <= PERCENT:
        raise BadReport(f"trainerStatus.progressPercentage: is {percentage:g}; send a number from 0 to 100")
    remaining = _number(status, "estimatedRemainingSeconds")
    if remaining is not None and remaining < 0:
        raise BadReport(f"trainerStatus.estimatedRemainingSeconds: is {remaining:g}; send 0 or more")
    return TrainerStatus(percentage, remaining, _metrics(status.get("metrics")))


def progress_of(status: TrainerStatus, before: Progress | None) -> Progress:
    """The report as progress: in steps if this report or the one before names their number, else in percent."""
    metrics = dict(status.metrics)
    step, total = metrics.pop(STEP_METRIC, None), metrics.pop(TOTAL_METRIC, None)
    if total is None and before is not None:
        total = before.total
    share = None if status.percentage is None else status.percentage / PERCENT
    if step is None and share is not None:
        total = PERCENT if total is None else total
        # Rounded down: only the end is the last step.
        step = float(math.floor(share * total))
    if step is None:
        step = before.step if before is not None else 0.0
    return Progress(_whole(step), None if total is None else _whole(total), metrics, status.remaining_seconds)


def _number(status: dict[str, Any], name: str) -> float | None:
    value = status.get(name)
    if value is not None and not is_number(value):
        raise BadReport(f"trainerStatus.{name}: is not a number; send one, without quotation marks")
    return value


def _metrics(values: Any) -> dict[str, float]:
    if values is None:
        return {}
    if not isinstance(values, list):
        raise BadReport('trainerStatus.metrics: is not a list; send [{"name": "loss", "value": "0.2"}]')
    numbers: dict[str, float] = {}
    for metric in values:
        if not isinstance(metric, dict) or not isinstance(metric.get("name"), str):
            raise BadReport('trainerStatus.metrics: has an item without a name; send {"name": "loss", "value": "0.2"}')
        number = _finite(metric.get("value"))
        if number is not None:
            numbers[metric["name"]] = number
    return numbers


def _finite(value: Any) -> float | None:
    """The number that a value, or its text, stands for; None if it is none."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return _whole(value) if is_number(value) else None


def _whole(value: float) -> float:
    """An integer where the number is one, so that it is written without a fraction."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value
