"""Reads the logs that shims write: CRI lines, one log per run, rotated by size."""

import os
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, NamedTuple

from gangline.api.meta import Key
from gangline.base.clock import Clock
from gangline.base.files import open_regular
from gangline.kube.podstreams import LogOptions, NoLogs
from gangline.node.checkpoint import PodFolder, RunFiles, StateFolder

FOLLOW_INTERVAL = timedelta(milliseconds=100)
"""How often a followed file is read."""
MAX_BAR_BYTES = 4096
CHUNK_BYTES = 2**18
"""Bytes per read."""
TAIL_LINES, TAIL_BYTES = 80, 2048
"""The end of a log that becomes a termination message."""


class CriLine(NamedTuple):
    """One CRI line: a line of the program, or a part of one."""

    time: bytes
    stream: bytes
    # Whether the program's line ends here.
    complete: bool
    text: bytes

    @property
    def timestamp(self) -> datetime:
        # A datetime has no nanoseconds.
        return datetime.fromisoformat(f"{self.time[:26].decode().rstrip('Z')}+00:00")

    def render(self, *, timestamps: bool) -> bytes:
        return (self.time + b" " if timestamps else b"") + self.text + (b"\n" if self.complete else b"")


def parse_line(line: bytes) -> CriLine:
    """A line of a log file, parsed."""
    time, stream, mark, text = line.split(b" ", 3)
    return CriLine(time, stream, mark == b"F", text)


def log_files(log: Path) -> list[Path]:
    """The files of a log, oldest first."""
    rotated = [file for file in log.parent.glob(f"{log.name}.*") if file.suffix[1:].isdigit()]
    rotated.sort(key=lambda file: int(file.suffix[1:]), reverse=True)
    return [*rotated, log] if log.exists() else rotated


def read_lines(log: Path) -> Iterator[CriLine]:
    """All complete lines of a log."""
    for path in log_files(log):
        with suppress(FileNotFoundError), open_regular(path) as file:
            yield from (parse_line(line[:-1]) for line in file if line.endswith(b"\n"))


def append_lines(log: Path, lines: Sequence[str], at: datetime) -> None:
    """Add lines to the log of a run, as if its program had written them now. An error costs the lines, nothing else."""
    time = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
    text = "".join(f"{time} stderr F {line}\n" for entry in lines for line in entry.splitlines() or [""])
    with suppress(OSError):
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode(errors="replace"))


def tail_text(log: Path) -> str:
    """The end of a log, for a termination message."""
    text = b"".join(line.render(timestamps=False) for line in read_lines(log))
    tail = b"\n".join(text.split(b"\n")[-TAIL_LINES - 1 :])
    return tail[-TAIL_BYTES:].decode(errors="replace")


class NodeLogReader:
    """Reads the logs of the pods of one node."""

    def __init__(self, state: Path, clock: Clock) -> None:
        self._state, self._clock = StateFolder(state), clock

    def read(self, key: Key, container: str, options: LogOptions, *, uid: str = "") -> AsyncGenerator[bytes, None]:
        """The log of a container's newest run, or with `previous` of the run before. Raises `NoLogs` at once.

        A followed log ends when the run has ended and all lines are read.
        """
        return self._render(self._run_files(key, container, uid, previous=options.previous), options)

    def read_run(
        self, key: Key, uid: str, container: str, run_id: str, options: LogOptions
    ) -> AsyncGenerator[bytes, None]:
        """The log of the run with this id. Raises `NoLogs` at once."""
        return self._render(self._run_files_by_id(key, uid, container, run_id), options)

    async def attach(self, key: Key, uid: str, container: str, run_id: str) -> AsyncGenerator[CriLine, None]:
        """The lines that a run prints from now on, until it ends."""
        files = self._run_files_by_id(key, uid, container, run_id)
        async with aclosing(self._batches(files, LogOptions(follow=True, tail=0))) as batches:
            async for batch in batches:
                for line in batch:
                    yield line

    async def _render(self, files: RunFiles, options: LogOptions) -> AsyncGenerator[bytes, None]:
        remaining = options.limit_bytes
        # Without `aclosing`, a generator that is left early is closed some time later, by another task.
        async with aclosing(self._batches(files, options)) as batches:
            async for batch in batches:
                text = b"".join(line.render(timestamps=options.timestamps) for line in batch)
                if remaining is not None:
                    text, remaining = text[:remaining], remaining - len(text)
                if text:
                    yield text
                if remaining is not None and remaining <= 0:
                    return

    async def _batches(self, files: RunFiles, options: LogOptions) -> AsyncGenerator[list[CriLine], None]:
        """The lines that the options select, some at a time."""
        with closing(LogFollower(files.log_file)) as follower:
            tail: list[CriLine] = []
            for chunk in follower.chunks():
                lines = _lines_since(chunk, options.since)
                if options.tail is None:
                    yield lines
                else:
                    tail = _last_lines(tail + lines, options.tail)
                # A log may be long: let other tasks run.
                await self._clock.sleep(timedelta())
            yield tail
            ended = not options.follow
            while not ended:
                # First the state, then the lines: so the last lines before the end are read too.
                ended = not files.lock.is_held()
                for chunk in follower.chunks():
                    yield _lines_since(chunk, options.since)
                if not ended:
                    await self._clock.sleep(FOLLOW_INTERVAL)

    def _run_files(self, key: Key, container: str, uid: str, *, previous: bool) -> RunFiles:
        folders = [folder for folder in self._state.pods() if folder.key == key and uid in ("", folder.uid)]
        newest = max(folders, key=lambda folder: folder.path.stat().st_mtime, default=None)
        runs = newest.runs(container) if newest is not None else []
        if len(runs) < (2 if previous else 1):
            which = "previous terminated container" if previous else "container"
            raise NoLogs(f'{which} "{container}" in pod "{key.name}" not found')
        return runs[-2 if previous else -1]

    def _run_files_by_id(self, key: Key, uid: str, container: str, run_id: str) -> RunFiles:
        for files in reversed(self._state.pod(key, uid).runs(container)):
            record = files.run_record()
            if record is not None and record.id == run_id:
                return files
        raise NoLogs(f"unable to retrieve container logs for process://{run_id}")


class LogFollower:
    """Reads a log as it grows, across rotations. It keeps the file open, so a rotated file is read to its end."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._file: BinaryIO | None = None
        self._partial = b""
        # Files still to be read, oldest first.
        self._pending = log_files(log)

    def read(self) -> list[CriLine]:
        """The new lines."""
        return [line for chunk in self.chunks() for line in chunk]

    def chunks(self) -> Iterator[list[CriLine]]:
        """The new lines, in chunks of bounded size."""
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
                # Nothing is written to this file any more. Read once more, for lines written since the last read.
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
            self._file = open_regular(path)
        except FileNotFoundError:
            return False
        return True

    def _parse_chunk(self, data: bytes) -> list[CriLine]:
        *lines, self._partial = (self._partial + data).split(b"\n")
        return [parse_line(line) for line in lines]

    def _was_rotated(self, file: BinaryIO) -> bool:
        """Whether the file is not the current log file any more."""
        try:
            return self._log.stat().st_ino != os.fstat(file.fileno()).st_ino
        except FileNotFoundError:
            return False


class PodLogLine(NamedTuple):
    """A line of a program's output, with its pod and container."""

    pod: str
    container: str
    text: str


class NamespaceLogTail:
    """Reads the output of all pods of a namespace; each call returns what is new since the last."""

    def __init__(self, state: Path) -> None:
        self._state = StateFolder(state)
        self._followers: dict[Path, LogFollower] = {}
        self._partial: dict[Path, bytes] = {}

    def lines(self, namespace: str) -> Iterator[PodLogLine]:
        """The new complete lines, pods in the order of their names. A process that has ended completes its last line."""
        for folder in self._state.pods():
            if folder.key.namespace == namespace:
                for container in folder.containers():
                    yield from self._container_lines(folder, container)
        self._close_removed()

    def _container_lines(self, folder: PodFolder, container: str) -> Iterator[PodLogLine]:
        for files in folder.runs(container):
            texts = self._complete_lines(files.log_file)
            if files.log_file in self._partial and files.exit_file.exists():
                # The log is complete before the exit is recorded: the program did not end its last line.
                texts += self._complete_lines(files.log_file)
                texts += [self._partial.pop(files.log_file)] if files.log_file in self._partial else []
            for text in texts:
                yield PodLogLine(folder.key.name, container, text.decode(errors="replace"))

    def _close_removed(self) -> None:
        """Give up the files of runs that the node has removed: as long as they are open, they take space."""
        for log in [log for log in self._followers if not log.with_suffix(".json").exists()]:
            self._followers.pop(log).close()
            self._partial.pop(log, None)

    def _complete_lines(self, log: Path) -> list[bytes]:
        texts = []
        for line in self._followers.setdefault(log, LogFollower(log)).read():
            text = self._partial.pop(log, b"") + line.text
            if line.complete:
                texts.append(text)
            else:
                self._partial[log] = text
        return texts

    def bars(self, namespace: str) -> dict[str, str]:
        """The progress bars that programs draw now in a line that they overwrite, by pod."""
        bars: dict[str, str] = {}
        for folder in self._state.pods():
            if folder.key.namespace == namespace:
                for files in (files for container in folder.containers() for files in folder.runs(container)):
                    with suppress(FileNotFoundError), open_regular(files.bar_file) as file:
                        bars[folder.key.name] = file.read(MAX_BAR_BYTES).decode(errors="ignore")
        return bars

    def close(self) -> None:
        for follower in self._followers.values():
            follower.close()


def _lines_since(lines: list[CriLine], since: datetime | None) -> list[CriLine]:
    return lines if since is None else [line for line in lines if line.timestamp >= since]


def _last_lines(lines: list[CriLine], limit: int) -> list[CriLine]:
    """The CRI lines of the program's last lines; a long line of the program has several."""
    start, count = len(lines), 0
    for at in range(len(lines) - 1, -1, -1):
        if lines[at].complete or at == len(lines) - 1:
            count += 1
        if count > limit:
            break
        start = at
    return lines[start:]
