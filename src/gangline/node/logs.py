"""Reading the logs that shims write: CRI lines in files per run, rotated by size."""

import os
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, closing, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO, NamedTuple

from gangline.api.meta import Key
from gangline.base.clock import Clock
from gangline.kube.podstreams import LogOptions, NoLogs
from gangline.node.checkpoint import PodFolder, RunFiles, StateFolder

FOLLOW_INTERVAL = timedelta(milliseconds=100)
"""How often a followed file is looked at."""
CHUNK_BYTES = 2**18
"""How many bytes are read at a time."""
TAIL_LINES, TAIL_BYTES = 80, 2048
"""What of a log becomes a termination message."""


class CriLine(NamedTuple):
    """One CRI line."""

    time: bytes
    stream: bytes
    # Whether the line of the program ends here.
    complete: bool
    text: bytes

    @property
    def timestamp(self) -> datetime:
        # Nanoseconds are more than a datetime holds.
        return datetime.fromisoformat(f"{self.time[:26].decode().rstrip('Z')}+00:00")

    def render(self, *, timestamps: bool) -> bytes:
        return (self.time + b" " if timestamps else b"") + self.text + (b"\n" if self.complete else b"")


def parse_line(line: bytes) -> CriLine:
    """A line of a log file."""
    time, stream, mark, text = line.split(b" ", 3)
    return CriLine(time, stream, mark == b"F", text)


def log_files(log: Path) -> list[Path]:
    """The files of a log, oldest first."""
    older = [file for file in log.parent.glob(f"{log.name}.*") if file.suffix[1:].isdigit()]
    older.sort(key=lambda file: int(file.suffix[1:]), reverse=True)
    return [*older, log] if log.exists() else older


def read_lines(log: Path) -> Iterator[CriLine]:
    """All there is now. A line that is still being written is left out."""
    for path in log_files(log):
        with suppress(FileNotFoundError), path.open("rb") as file:
            yield from (parse_line(line[:-1]) for line in file if line.endswith(b"\n"))


def tail_text(log: Path) -> str:
    """The end of a log, as a termination message has it."""
    text = b"".join(entry.render(timestamps=False) for entry in read_lines(log))
    last = b"\n".join(text.split(b"\n")[-TAIL_LINES - 1 :])
    return last[-TAIL_BYTES:].decode(errors="replace")


class NodeLogReader:
    """Logs of the pods of one node."""

    def __init__(self, state: Path, clock: Clock) -> None:
        self._state, self._clock = StateFolder(state), clock

    def read(self, key: Key, container: str, options: LogOptions, *, uid: str = "") -> AsyncGenerator[bytes, None]:
        """The log of a container's newest run, or of the one before. Raises `NoLogs` at once.

        Following ends when the run has ended and all of it was read.
        """
        return self._render(self._run_files(key, container, uid, previous=options.previous), options)

    def read_run(
        self, key: Key, uid: str, container: str, run: str, options: LogOptions
    ) -> AsyncGenerator[bytes, None]:
        """The same of the run with that identity. Raises `NoLogs` at once."""
        return self._render(self._run_files_by_id(key, uid, container, run), options)

    async def attach(self, key: Key, uid: str, container: str, run: str) -> AsyncGenerator[CriLine, None]:
        """What a run prints from now on, until it ends."""
        files = self._run_files_by_id(key, uid, container, run)
        async with aclosing(self._batches(files, LogOptions(follow=True, tail=0))) as found:
            async for batch in found:
                for entry in batch:
                    yield entry

    async def _render(self, files: RunFiles, options: LogOptions) -> AsyncGenerator[bytes, None]:
        left = options.limit_bytes
        # Left early, a generator would be closed by a task of its own, some time later.
        async with aclosing(self._batches(files, options)) as found:
            async for batch in found:
                shown = b"".join(entry.render(timestamps=options.timestamps) for entry in batch)
                if left is not None:
                    shown, left = shown[:left], left - len(shown)
                if shown:
                    yield shown
                if left is not None and left <= 0:
                    return

    async def _batches(self, files: RunFiles, options: LogOptions) -> AsyncGenerator[list[CriLine], None]:
        """Entries, some at a time."""
        with closing(LogFollower(files.log_file)) as follower:
            kept: list[CriLine] = []
            for piece in follower.chunks():
                found = _lines_since(piece, options.since)
                if options.tail is None:
                    yield found
                else:
                    kept = _last_lines(kept + found, options.tail)
                # A log may be long, and others want to be served.
                await self._clock.sleep(timedelta())
            yield kept
            over = not options.follow
            while not over:
                # In this order: what was written before the end is read after the end was seen.
                over = not files.is_alive()
                for piece in follower.chunks():
                    yield _lines_since(piece, options.since)
                if not over:
                    await self._clock.sleep(FOLLOW_INTERVAL)

    def _run_files(self, key: Key, container: str, uid: str, *, previous: bool) -> RunFiles:
        folders = [each for each in self._state.pods() if each.key == key and uid in ("", each.uid)]
        newest = max(folders, key=lambda each: each.path.stat().st_mtime, default=None)
        runs = newest.runs(container) if newest is not None else []
        if len(runs) < (2 if previous else 1):
            which = "previous terminated container" if previous else "container"
            raise NoLogs(f'{which} "{container}" in pod "{key.name}" not found')
        return runs[-2 if previous else -1]

    def _run_files_by_id(self, key: Key, uid: str, container: str, run: str) -> RunFiles:
        for files in reversed(self._state.pod(key, uid).runs(container)):
            record = files.run_record()
            if record is not None and record.id == run:
                return files
        raise NoLogs(f"unable to retrieve container logs for process://{run}")


class LogFollower:
    """Reads a log as it grows, across rotations. Holds the file open, so that a rotated one is read to its end."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._file: BinaryIO | None = None
        self._partial = b""
        # Where to begin: the oldest file there is.
        self._pending = log_files(log)

    def read(self) -> list[CriLine]:
        """What is new."""
        return [entry for piece in self.chunks() for entry in piece]

    def chunks(self) -> Iterator[list[CriLine]]:
        """What is new, a bounded piece at a time."""
        last = False
        while self._file is not None or self._open():
            assert self._file is not None
            data = self._file.read(CHUNK_BYTES)
            if data:
                yield self._parse_chunk(data)
            elif last:
                self.close()
                last = False
            elif self._pending or self._was_rotated(self._file):
                # Nothing is written to it any more: once more, for what came since it was looked at.
                last = True
            else:
                return

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None

    def _open(self) -> bool:
        path = self._pending.pop(0) if self._pending else self._log
        try:
            self._file = path.open("rb")
        except FileNotFoundError:
            return False
        return True

    def _parse_chunk(self, data: bytes) -> list[CriLine]:
        *lines, self._partial = (self._partial + data).split(b"\n")
        return [parse_line(line) for line in lines]

    def _was_rotated(self, file: BinaryIO) -> bool:
        """Whether the file was rotated away and read to its end."""
        try:
            return self._log.stat().st_ino != os.fstat(file.fileno()).st_ino
        except FileNotFoundError:
            return False


class PodLogLine(NamedTuple):
    """A line of a program's output, and whose it is."""

    pod: str
    container: str
    text: str


class NamespaceLogTail:
    """Everything that pods of a namespace print, from now on or from the start, whenever it is asked for."""

    def __init__(self, state: Path) -> None:
        self._state = StateFolder(state)
        self._followers: dict[Path, LogFollower] = {}
        self._partial: dict[Path, bytes] = {}

    def lines(self, namespace: str) -> Iterator[PodLogLine]:
        """Whole lines that are new. Pods in the order of their names."""
        for folder in self._state.pods():
            if folder.key.namespace == namespace:
                for container in folder.containers():
                    yield from self._container_lines(folder, container)

    def _container_lines(self, folder: PodFolder, container: str) -> Iterator[PodLogLine]:
        for files in folder.runs(container):
            follower = self._followers.setdefault(files.log_file, LogFollower(files.log_file))
            for entry in follower.read():
                text = self._partial.pop(files.log_file, b"") + entry.text
                if entry.complete:
                    yield PodLogLine(folder.key.name, container, text.decode(errors="replace"))
                else:
                    self._partial[files.log_file] = text

    def close(self) -> None:
        for follower in self._followers.values():
            follower.close()


def _lines_since(found: list[CriLine], since: datetime | None) -> list[CriLine]:
    return found if since is None else [entry for entry in found if entry.timestamp >= since]


def _last_lines(found: list[CriLine], lines: int) -> list[CriLine]:
    """The entries of the last lines; a long line has several."""
    start, count = len(found), 0
    for at in range(len(found) - 1, -1, -1):
        if found[at].complete or at == len(found) - 1:
            count += 1
        if count > lines:
            break
        start = at
    return found[start:]
