"""SPDY/3.1 frames, as far as Kubernetes uses them: exec, attach and port-forward of older clients, and the tunnel of newer ones.

Pure: bytes in, frames out, and back. There is no flow control, because no client of Kubernetes has any: frames of
settings and windows are skipped.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping

import msgspec

VERSION = 3
CONTROL_BIT = 0x8000
FIN = 0x01
MAX_CONTROL_BYTES = 2**16
"""The longest control frame that is accepted. Headers of Kubernetes have less than 100 bytes."""
MAX_HEADER_BYTES = 2**16
"""The most bytes of headers in a frame after decompression."""
MAX_DATA_BYTES = 2**24 - 1

SYN_STREAM, SYN_REPLY, RST_STREAM, PING, GO_AWAY, HEADERS = 1, 2, 3, 6, 7, 8
REFUSED_STREAM = 3

_DICTIONARY_WORDS = (
    b"options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow "
    b"authorization cache-control connection content-base content-encoding content-language content-length "
    b"content-location content-md5 content-range content-type date etag expect expires from host if-match "
    b"if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    b"proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    b"user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie "
    b"keep-alive origin"
)
_DICTIONARY_REST = (
    b"100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 "
    b"Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 "
    b"Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept "
    b"Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,"
    b"application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,"
    b"sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _length_prefixed(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


HEADER_DICTIONARY = (
    b"".join(_length_prefixed(word.replace(b"_", b" ")) for word in _DICTIONARY_WORDS.split()) + _DICTIONARY_REST
)
"""With what headers are compressed: a constant of the protocol."""


class SpdyError(Exception):
    """The peer has sent what is no SPDY."""


class SynStream(msgspec.Struct, frozen=True):
    """A new stream."""

    stream: int
    headers: Mapping[str, str]
    fin: bool = False


class SynReply(msgspec.Struct, frozen=True):
    """The peer has accepted a stream."""

    stream: int


class StreamReset(msgspec.Struct, frozen=True):
    """The peer gives a stream up, in both directions."""

    stream: int
    status: int = 0


class StreamData(msgspec.Struct, frozen=True):
    """Data of a stream; with `fin` the peer sends no more on it. A long frame arrives in pieces."""

    stream: int
    data: bytes
    fin: bool = False


class Ping(msgspec.Struct, frozen=True):
    """A sign of life, to be sent back."""

    id: int


class GoAway(msgspec.Struct, frozen=True):
    """The peer opens no more streams."""


Frame = SynStream | SynReply | StreamReset | StreamData | Ping | GoAway


class FrameDecoder:
    """The frames of one direction of a connection. All headers of a direction are one compressed stream."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._headers = zlib.decompressobj(zdict=HEADER_DICTIONARY)
        # The data frame whose end has not arrived: its stream, the number of missing bytes, and whether it is the last.
        self._open_data: tuple[int, int, bool] | None = None

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete with these bytes. Raises `SpdyError`."""
        self._buffer += data
        while True:
            if self._open_data is not None:
                frame: Frame | None = self._data_frame(*self._open_data)
                if frame is None:
                    return
                yield frame
                continue
            if len(self._buffer) < 8:
                return
            first, second = struct.unpack_from(">II", self._buffer)
            flags, length = second >> 24, second & 0xFFFFFF
            if not first >> 31:
                del self._buffer[:8]
                self._open_data = (first, length, bool(flags & FIN))
                continue
            if first >> 16 & 0x7FFF != VERSION:
                raise SpdyError(f"version {first >> 16 & 0x7FFF} of SPDY is not supported; write version {VERSION}")
            if length > MAX_CONTROL_BYTES:
                raise SpdyError(f"a control frame of {length} bytes is too long")
            if len(self._buffer) < 8 + length:
                return
            body = bytes(self._buffer[8 : 8 + length])
            del self._buffer[: 8 + length]
            frame = self._control_frame(first & 0xFFFF, flags, body)
            if frame is not None:
                yield frame

    def _data_frame(self, stream: int, missing: int, fin: bool) -> StreamData | None:
        """What has arrived of the open data frame; None if that is nothing."""
        piece = bytes(self._buffer[:missing])
        if missing and not piece:
            return None
        del self._buffer[: len(piece)]
        missing -= len(piece)
        self._open_data = (stream, missing, fin) if missing else None
        return StreamData(stream, piece, fin=fin and not missing)

    def _control_frame(self, kind: int, flags: int, body: bytes) -> Frame | None:
        try:
            match kind:
                case 1:
                    (stream,) = struct.unpack_from(">I", body)
                    return SynStream(stream & 0x7FFFFFFF, self._header_block(body[10:]), fin=bool(flags & FIN))
                case 2 | 8:
                    (stream,) = struct.unpack_from(">I", body)
                    # Also those that nobody reads: what follows is compressed with them.
                    self._header_block(body[4:])
                    return SynReply(stream & 0x7FFFFFFF) if kind == SYN_REPLY else None
                case 3:
                    stream, status = struct.unpack_from(">II", body)
                    return StreamReset(stream & 0x7FFFFFFF, status)
                case 6:
                    return Ping(*struct.unpack_from(">I", body))
                case 7:
                    return GoAway()
                case _:
                    return None
        except (struct.error, zlib.error) as error:
            raise SpdyError(f"a control frame of type {kind} is malformed: {error}") from error

    def _header_block(self, compressed: bytes) -> dict[str, str]:
        data = self._headers.decompress(compressed, MAX_HEADER_BYTES)
        if self._headers.unconsumed_tail:
            raise SpdyError("the headers of a stream are too long")
        headers: dict[str, str] = {}
        (count,) = struct.unpack_from(">I", data)
        at = 4
        for _ in range(count):
            pair = []
            for _ in range(2):
                (length,) = struct.unpack_from(">I", data, at)
                pair.append(data[at + 4 : at + 4 + length].decode(errors="replace"))
                at += 4 + length
            headers[pair[0].lower()] = pair[1].partition("\0")[0]
        return headers


class FrameEncoder:
    """Encodes the frames of one direction of a connection, in the order in which they are sent."""

    def __init__(self) -> None:
        self._headers = zlib.compressobj(zdict=HEADER_DICTIONARY)

    def syn_stream(self, stream: int, headers: Mapping[str, str], *, fin: bool = False) -> bytes:
        body = struct.pack(">IIH", stream, 0, 0) + self._header_block(headers)
        return _control_frame(SYN_STREAM, body, FIN if fin else 0)

    def syn_reply(self, stream: int) -> bytes:
        return _control_frame(SYN_REPLY, struct.pack(">I", stream) + self._header_block({}))

    def reset(self, stream: int, status: int = REFUSED_STREAM) -> bytes:
        return _control_frame(RST_STREAM, struct.pack(">II", stream, status))

    def ping(self, number: int) -> bytes:
        return _control_frame(PING, struct.pack(">I", number))

    def data(self, stream: int, data: bytes, *, fin: bool = False) -> bytes:
        """A data frame. Raises ValueError for more than `MAX_DATA_BYTES`."""
        if len(data) > MAX_DATA_BYTES:
            raise ValueError(f"a frame has at most {MAX_DATA_BYTES} bytes")
        return struct.pack(">II", stream, (FIN if fin else 0) << 24 | len(data)) + data

    def _header_block(self, headers: Mapping[str, str]) -> bytes:
        pairs = [_length_prefixed(text.encode()) for pair in headers.items() for text in (pair[0].lower(), pair[1])]
        block = struct.pack(">I", len(headers)) + b"".join(pairs)
        return self._headers.compress(block) + self._headers.flush(zlib.Z_SYNC_FLUSH)


def _control_frame(kind: int, body: bytes, flags: int = 0) -> bytes:
    return struct.pack(">HHI", CONTROL_BIT | VERSION, kind, flags << 24 | len(body)) + body
