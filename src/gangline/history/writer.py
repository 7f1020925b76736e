"""Writes a history: an append-only sequence of segments in a folder."""

import secrets
from pathlib import Path

from gangline.api.meta import JSON
from gangline.base.files import private_folder, private_opener
from gangline.history.deltas import patch_between
from gangline.history.records import (
    FORMAT_VERSION,
    BodyLine,
    DeletionLine,
    Line,
    LogLine,
    ObjectLine,
    PatchLine,
    PulseLine,
    SegmentStart,
    VerdictLine,
)
from gangline.history.segments import SUFFIX, SegmentFile, encode_line


class HistoryWriter:
    """Appends to one stream of a folder. Lines are in memory until `flush`."""

    def __init__(self, folder: Path, now: float) -> None:
        private_folder(folder)
        self._stream = secrets.token_hex(4)
        self._began = now
        name = f"{round(now * 1000):013d}-{self._stream}-0{SUFFIX}"
        self._file = SegmentFile(open(folder / name, "xb", opener=private_opener))  # noqa: SIM115 - closed by `close`
        self._bodies: dict[str, JSON] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._pending: list[bytes] = []
        self._add(SegmentStart(FORMAT_VERSION, self._stream, 0, now))
        self.flush()

    def record(self, at: float, path: str, body: JSON | None, about: str = "") -> None:
        """Add a version of the object at a path; None: it was deleted."""
        before = self._bodies.get(path)
        if body is None:
            if before is not None:
                self._add(DeletionLine(self._number(path, before, about), self._offset(at)))
                del self._bodies[path]
            return
        number = self._number(path, body, about)
        same_object = before is not None and before["metadata"].get("uid") == body["metadata"].get("uid")
        patch = patch_between(before, body) if before is not None and same_object else None
        self._bodies[path] = body
        if patch is None:
            self._add(BodyLine(number, self._offset(at), body))
        elif patch:
            self._add(PatchLine(number, self._offset(at), patch))

    def record_log(self, at: float, path: str, container: str, attempt: int, text: str) -> None:
        """Add the end of the log of a container of the pod at a path."""
        self._add(LogLine(self._number(path, self._bodies[path]), self._offset(at), container, attempt, text))

    def record_verdict(self, at: float, path: str, report: JSON) -> None:
        """Add what `why` said of the job at a path."""
        self._add(VerdictLine(self._number(path, self._bodies[path]), self._offset(at), report))

    def flush(self) -> None:
        """Hand the pending lines to the operating system: they survive the end of this process."""
        if self._pending:
            self._file.append(self._pending)
            self._pending.clear()

    def close(self, at: float) -> None:
        """End the stream in order."""
        self._add(PulseLine(self._offset(at), last=True))
        self.flush()
        self._file.close()

    def _number(self, path: str, body: JSON, about: str = "") -> int:
        key = path, str(body["metadata"].get("uid", ""))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            self._add(ObjectLine(number, *key, about))
        return number

    def _offset(self, at: float) -> int:
        return round((at - self._began) * 1000)

    def _add(self, line: Line) -> None:
        self._pending.append(encode_line(line))
