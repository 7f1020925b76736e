"""What Ctrl-C does to something that runs."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def cancel_on_interrupt(first: Callable[[], object], again: Callable[[], object] | None = None) -> Iterator[None]:
    """At the first interrupt `first` is told and the block is cancelled; at each one after that comes `again`.

    Without `again` the block is cancelled once more, so that it does not wait for its own end.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    repeated = again or task.cancel
    times = 0

    def interrupt() -> None:
        nonlocal times
        times += 1
        if times == 1:
            first()
            task.cancel()
        else:
            repeated()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupt)
    # Not taken away at the end of the block: processes are still being stopped then. The loop does it when it closes.
    yield
