"""The end of a log, one line of which is longer than what is read of it."""

from collections.abc import AsyncGenerator
from typing import Any, cast

from gangline.api.meta import Key
from gangline.kube.pods import PodSubresources
from gangline.operator.engine import MAX_LOG_BYTES, PodLogs


class StoredLog:
    """A log as a server returns it: the last lines, of which it leaves out the end beyond the limit."""

    def __init__(self, *lines: bytes) -> None:
        self._lines, self.requests = lines, 0

    async def logs(self, pod: Key, *, tail: int, limit_bytes: int, **_: Any) -> AsyncGenerator[bytes]:
        self.requests += 1
        text = b"".join(line + b"\n" for line in self._lines[-tail:])[:limit_bytes]
        for line in text.splitlines():
            yield line


async def read(log: StoredLog) -> tuple[str, ...]:
    return await PodLogs(cast(PodSubresources, log)).tail(Key("default", "bert-worker-0"), "pytorch", 100)


ERROR = (
    b"Traceback (most recent call last):",
    b'  File "train.py", line 3, in main',
    b"    step()",
    b"KeyError: 'label'",
)


async def test_an_error_after_a_very_long_line_is_read_in_full() -> None:
    for before in range(8):
        log = StoredLog(*[b"step"] * before, b"x" * (2 * MAX_LOG_BYTES), *ERROR)
        assert await read(log) == tuple(line.decode() for line in ERROR)
        assert log.requests < 10


async def test_a_usual_log_is_read_once() -> None:
    log = StoredLog(*[b"step"] * 200, *ERROR)
    assert len(await read(log)) == 100
    assert log.requests == 1


async def test_of_a_last_line_that_is_too_long_its_beginning_is_read() -> None:
    (line,) = await read(StoredLog(b"step", b"fatal: " + b"y" * (2 * MAX_LOG_BYTES)))
    assert line.startswith("fatal: yyy")
