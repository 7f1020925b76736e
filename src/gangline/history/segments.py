"""Segments: the files of a history.

A segment is a sequence of frames: length, checksum, form, payload. Payloads are JSON lines, compressed; the frames of a
segment share one deflate stream, so that a frame of few lines is small too. A process that dies leaves a torn frame at
most: reading stops there. A closed segment ends with an index, by which readers know what it holds without reading it.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from gangline.base.errors import GanglineError
from gangline.history.records import FORMAT_VERSION, Line, SegmentStart

SUFFIX = ".history"
MAGIC = b"gangline history\n"
_FRAME = struct.Struct(">IIB")
LINES, INDEX = 0, 1
"""Forms of frames."""
MAX_FRAME_BYTES = 64 * 2**20

encode_line = msgspec.json.Encoder().encode
decode_line = msgspec.json.Decoder(Line).decode


class HistoryDamaged(GanglineError):
    """A segment that cannot be read: another program wrote it, or a later version of gangline."""


class SegmentFile:
    """Writes one segment."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._compressor = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
        self.size = file.write(MAGIC)

    def append(self, lines: Iterable[bytes]) -> None:
        """Add encoded lines as one frame, and hand it to the operating system."""
        text = b"\n".join((*lines, b""))
        payload = self._compressor.compress(text) + self._compressor.flush(zlib.Z_SYNC_FLUSH)
        self._write_frame(LINES, payload)

    def _write_frame(self, form: int, payload: bytes) -> None:
        self.size += self._file.write(_FRAME.pack(len(payload), zlib.crc32(payload), form) + payload)
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The form and payload of each complete frame. Raises `HistoryDamaged` if the data is no segment."""
    if not data.startswith(MAGIC):
        if MAGIC.startswith(data):
            return
        raise HistoryDamaged("no history of gangline")
    position = len(MAGIC)
    while position + _FRAME.size <= len(data):
        length, checksum, form = _FRAME.unpack_from(data, position)
        position += _FRAME.size
        payload = data[position : position + length]
        if len(payload) < length or zlib.crc32(payload) != checksum:
            return
        position += length
        yield form, payload


def raw_lines(data: bytes) -> Iterator[bytes]:
    """The lines of a segment's bytes, as JSON."""
    decompressor = zlib.decompressobj(-zlib.MAX_WBITS)
    for form, payload in frames(data):
        if form == LINES:
            yield from decompressor.decompress(payload).splitlines()


def read_segment(path: Path) -> Iterator[Line]:
    """The lines of a segment. Raises `HistoryDamaged`."""
    for number, line in enumerate(raw_lines(path.read_bytes())):
        decoded = decode_line(line)
        if number == 0 and not (isinstance(decoded, SegmentStart) and decoded.format == FORMAT_VERSION):
            raise HistoryDamaged(f"{path}: of another version of gangline")
        yield decoded
