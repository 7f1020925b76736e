"""Segments: the files of a history.

A segment is a sequence of frames: length, checksum, form, payload. Payloads are JSON lines, compressed; the frames of a
segment share one deflate stream, so that a frame of few lines is small too. A process that dies leaves a torn frame at
most: reading stops there. A closed segment ends with an index, by which readers know what it holds without reading it.
"""

import fcntl
import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from gangline.base.errors import GanglineError
from gangline.base.files import private_opener, write_private
from gangline.history.records import FORMAT_VERSION, Line, SegmentIndex, SegmentStart

SUFFIX = ".history"
MAGIC = b"gangline history\n"
LINES, INDEX = 0, 1
"""Forms of frames."""
COMPRESSION_LEVEL = 6
PACKED_LINES = 5000
"""Lines in a frame of a closed segment."""
_FRAME = struct.Struct(">IIB")
_TRAILER = struct.Struct(">I8s")
_TRAILER_MAGIC = b"gl-index"
_MAX_TAIL = 64 * 2**10
"""Bytes that are read first of a segment's end: most indexes are shorter."""

encode_line = msgspec.json.Encoder().encode
decode_line = msgspec.json.Decoder(Line).decode
_encode_index = msgspec.json.Encoder().encode
_decode_index = msgspec.json.Decoder(SegmentIndex).decode


class HistoryDamaged(GanglineError):
    """A segment that cannot be read: another program wrote it, or a later version of gangline."""


class SegmentName(NamedTuple):
    """The name of a segment's file says when it began, and where it is in its stream."""

    began_ms: int
    stream: str
    number: int

    @property
    def text(self) -> str:
        return f"{self.began_ms:014d}-{self.stream}-{self.number:06d}{SUFFIX}"


def parse_name(name: str) -> SegmentName | None:
    """The parts of a file name; None if it is no segment's."""
    began, _, rest = name.removesuffix(SUFFIX).partition("-")
    stream, _, number = rest.partition("-")
    if not name.endswith(SUFFIX) or not (began.isdecimal() and stream and number.isdecimal()):
        return None
    return SegmentName(int(began), stream, int(number))


class SegmentFile:
    """Writes one segment, which is locked until it is closed. Frames survive the end of the process, not of the machine.

    Frames of a few lines are a quarter larger than long ones, so closing writes the segment anew, and syncs it to the
    disk.
    """

    def __init__(self, path: Path) -> None:
        # Unbuffered: each frame is one write, so it is complete or torn, and only the last can be torn.
        self._file = open(path, "xb", buffering=0, opener=private_opener)  # noqa: SIM115 - closed by `close`
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._compressor = zlib.compressobj(COMPRESSION_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        self.path = path
        self.size = self._file.write(MAGIC) or 0

    def append(self, lines: Iterable[bytes]) -> None:
        """Add encoded lines as one frame."""
        text = b"\n".join((*lines, b""))
        payload = self._compressor.compress(text) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
        self._write(_frame(LINES, payload))

    def close(self, index: SegmentIndex) -> None:
        """Pack the segment, with its index."""
        try:
            close_segment(self.path, read_lines(self.path.read_bytes()), index)
        finally:
            self._file.close()

    def abandon(self) -> None:
        """Close the file as it is."""
        self._file.close()

    def _write(self, data: bytes) -> None:
        position = 0
        while position < len(data):
            position += self._file.write(data[position:]) or 0
        self.size += len(data)


def _frame(form: int, payload: bytes) -> bytes:
    return _FRAME.pack(len(payload), zlib.crc32(payload), form) + payload


def close_segment(path: Path, lines: Sequence[bytes], index: SegmentIndex) -> None:
    """Replace a segment by a packed one with an index, at once."""
    compressor = zlib.compressobj(COMPRESSION_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    parts = [MAGIC]
    for start in range(0, len(lines), PACKED_LINES):
        text = b"\n".join((*lines[start : start + PACKED_LINES], b""))
        parts.append(_frame(LINES, compressor.compress(text) + compressor.flush(zlib.Z_SYNC_FLUSH)))
    footer = _frame(INDEX, zlib.compress(_encode_index(index)))
    write_private(path, b"".join((*parts, footer, _TRAILER.pack(len(footer), _TRAILER_MAGIC))), durable=True)


def is_in_use(path: Path) -> bool:
    """Whether a process writes the segment now."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


# Reading


def index_in(tail: bytes) -> SegmentIndex | int | None:
    """The index at the end of a segment; the number of bytes needed if the tail is too short; None if there is none."""
    if len(tail) < _TRAILER.size:
        return None
    length, magic = _TRAILER.unpack(tail[-_TRAILER.size :])
    if magic != _TRAILER_MAGIC:
        return None
    needed = length + _TRAILER.size
    if length < _FRAME.size:
        return None
    if needed > len(tail):
        return int(needed)
    frame = tail[-needed : -_TRAILER.size]
    size, checksum, form = _FRAME.unpack_from(frame)
    payload = frame[_FRAME.size :]
    if form != INDEX or size != len(payload) or zlib.crc32(payload) != checksum:
        return None
    return _decode_index(zlib.decompress(payload))


def read_index(path: Path) -> SegmentIndex | None:
    """The index of a closed segment; None if the segment was not closed."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        found: SegmentIndex | int | None = _MAX_TAIL
        while isinstance(found, int):
            length = min(size, found)
            file.seek(size - length)
            tail = file.read(length)
            if isinstance(found := index_in(tail), int) and found > size:
                return None
    return found


def read_text(data: bytes) -> bytes:
    """The lines of a segment's bytes, all of them complete. Raises `HistoryDamaged` if they are none of a segment."""
    if not data.startswith(MAGIC):
        if MAGIC.startswith(data):
            return b""
        raise HistoryDamaged("is no history of gangline")
    decompressor, parts, position = zlib.decompressobj(-zlib.MAX_WBITS), list[bytes](), len(MAGIC)
    while position + _FRAME.size <= len(data):
        length, checksum, form = _FRAME.unpack_from(data, position)
        payload = data[position + _FRAME.size : position + _FRAME.size + length]
        if form != LINES or len(payload) < length or zlib.crc32(payload) != checksum:
            break
        position += _FRAME.size + length
        parts.append(decompressor.decompress(payload))
    return b"".join(parts)


def read_lines(data: bytes) -> list[bytes]:
    """The lines of a segment's bytes. Raises `HistoryDamaged` if they are none of a segment."""
    return read_text(data).splitlines()


def segment_start(text: bytes, name: str) -> SegmentStart | None:
    """The first line of a segment; None if there is none yet. Raises `HistoryDamaged` for another version's."""
    if not text:
        return None
    try:
        first = decode_line(text[: text.index(b"\n")])
    except msgspec.DecodeError:
        first = None
    if not isinstance(first, SegmentStart) or first.format != FORMAT_VERSION:
        raise HistoryDamaged(f"{name}: was written by another version of gangline")
    return first
