"""What becomes of an attempt to deliver, and when the next one is due."""

import re
from datetime import timedelta

import msgspec

FIRST_DELAY, MAX_DELAY = timedelta(seconds=1), timedelta(minutes=5)
MAX_RETRY_AFTER = timedelta(hours=1)
"""A receiver may ask for a longer delay than ours, but not for one without end."""
_REFUSALS = frozenset({400, 413, 422})


class Delivered(msgspec.Struct, frozen=True):
    """The receiver has it."""


class RetryLater(msgspec.Struct, frozen=True):
    """The receiver did not take it now. `problem` is for logs: it contains no URL, no body and no secret."""

    problem: str
    after: timedelta | None = None


class Rejected(msgspec.Struct, frozen=True):
    """The receiver does not take this message, and would not take it later."""

    problem: str


Attempt = Delivered | RetryLater | Rejected


def http_result(status: int, retry_after: str = "") -> Attempt:
    """What the status of an HTTP response means. Redirects are not followed: settings alone say where messages go."""
    if 200 <= status < 300:
        return Delivered()
    if status in _REFUSALS:
        return Rejected(f"HTTP status {status}")
    if 300 <= status < 400:
        return RetryLater(f"HTTP status {status}: redirects are not followed")
    # Seconds; a date is not worth a parser.
    after = timedelta(seconds=int(retry_after)) if re.fullmatch("[0-9]{1,9}", retry_after) else None
    return RetryLater(f"HTTP status {status}", after)


def retry_delay(failures: int, jitter: float, after: timedelta | None = None) -> timedelta:
    """How long to wait after so many failures in a row: doubled with each, times `jitter` of 0.5 to 1."""
    doubled = min(MAX_DELAY, FIRST_DELAY * (1 << min(max(failures, 1) - 1, 16)))
    return max(doubled * jitter, min(after or timedelta(), MAX_RETRY_AFTER))
