"""The moment that commands show instead of a server: `gangline at TIME COMMAND` sets it. Without heavy imports."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import NamedTuple

from gangline.base.clock import frozen_time


class PastView(NamedTuple):
    """A recorded moment."""

    history: str
    """The folder or URL of the history."""
    moment: datetime
    server: str = ""
    """The server to show, as in `RecordedSpan`; empty: all."""


_shown: ContextVar[PastView | None] = ContextVar("shown_past", default=None)


def shown_past() -> PastView | None:
    """The moment that commands show; None: the present."""
    return _shown.get()


@contextmanager
def show_past(view: PastView) -> Iterator[None]:
    """Let commands show a recorded moment until the block ends. The time stands still."""
    token = _shown.set(view)
    try:
        with frozen_time(view.moment):
            yield
    finally:
        _shown.reset(token)
