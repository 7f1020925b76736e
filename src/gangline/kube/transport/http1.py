"""A parser for HTTP/1.1 responses (RFC 9112). No I/O: both socket transports feed it with received bytes.

The bytes may be cut anywhere. Chunk extensions and trailers are dropped, interim responses (1xx) are skipped.
"""

import re
from collections.abc import Mapping

import msgspec

MAX_LINE = 64 * 1024
"""Most bytes of a head, of a chunk-size line, or of a trailer line."""
_STATUS_CODES = {str(code): code for code in range(100, 1000)}
_NO_CONTENT = (204, 304)
_OBS_FOLD = r"[ \t]*\r\n[ \t]+"
# Not even a quoted string in an extension may contain a line end, so the first CRLF always ends the line.
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")


class Head(msgspec.Struct, frozen=True):
    """Status, headers, and how the body is delimited."""

    status: int
    # Names are in lower case; the values of a repeated name are joined by commas.
    headers: Mapping[str, str]
    chunked: bool
    # Bytes of the body. None: it is chunked, or ends when the server closes the connection.
    length: int | None
    # Whether the body ends when the server closes the connection.
    until_close: bool
    # Whether another request can be sent on the connection.
    keep_alive: bool


class ResponseParser:
    """Parses the responses on one connection, one after the other. Cannot be used after it raised ValueError."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.complete = False
        # Whether bytes follow a complete response.
        self.has_excess = False
        self._body: list[bytes] = []
        # Received but not parsed: an incomplete head or line, or bytes after a complete response.
        self._rest = b""
        # Bytes missing of the body, or of a chunk and its CRLF. 0 in a chunked body: a chunk-size line comes next.
        self._missing = 0
        self._in_trailers = False

    def feed(self, data: bytes) -> None:
        """Parse received bytes. Bytes after a complete response are kept for `next`. Raises ValueError."""
        if self._rest:
            data = self._rest + data
        at = self._parse_head(data) if self.head is None else 0
        head = self.head
        if head is not None and not self.complete:
            at = self._parse_chunks(data, at) if head.chunked else self._parse_plain_body(head, data, at)
        self._rest = data[at:]
        self.has_excess = self.complete and at < len(data)

    def take_body(self) -> bytes:
        """The part of the body received since the last call."""
        parts = self._body
        if not parts:
            return b""
        self._body = []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def next(self) -> None:
        """Start with the response after a complete one. Raises ValueError."""
        rest, self._rest = self._rest, b""
        self.head, self.complete, self.has_excess, self._in_trailers, self._missing = None, False, False, False, 0
        if rest:
            self.feed(rest)

    def close(self) -> bool:
        """Note that the server has closed the connection. Returns whether the response is complete."""
        if self.head is not None and self.head.until_close:
            self.complete = True
        return self.complete

    # Each of these parses `data` from position `at` and returns the position where it stopped.

    def _parse_head(self, data: bytes) -> int:
        at = 0
        while (end := data.find(b"\r\n\r\n", at)) >= 0:
            head = _head(data[at:end].decode("latin-1"))
            at = end + 4
            if head.status >= 200:
                self.head, self._missing = head, head.length or 0
                return at
        _check_line(data, at)
        return at

    def _parse_plain_body(self, head: Head, data: bytes, at: int) -> int:
        end = len(data) if head.length is None else min(at + self._missing, len(data))
        if end > at:
            self._body.append(data[at:end])
        if head.length is not None:
            self._missing -= end - at
            self.complete = not self._missing
        return end

    def _parse_chunks(self, data: bytes, at: int) -> int:
        # Runs for every event of a watch.
        if self._in_trailers:
            return self._parse_trailers(data, at)
        missing, size = self._missing, len(data)
        while at < size:
            if not missing:
                line = _CHUNK_LINE.match(data, at)
                if line is None:
                    _check_chunk_line(data, at)
                    break
                at, missing = line.end(), int(line[1], 16) + 2
                if missing == 2:
                    self._in_trailers = True
                    return self._parse_trailers(data, at)
            end = at + missing - 2
            if end + 2 > size:
                # The rest of the chunk, or of its CRLF, is still to come.
                end = min(size, end)
                if end > at:
                    self._body.append(data[at:end])
                    missing -= end - at
                    at = end
                break
            if data[end : end + 2] != b"\r\n":
                raise ValueError("a chunk is longer than its size")
            if end > at:
                self._body.append(data[at:end])
            at, missing = end + 2, 0
        self._missing = missing
        return at

    def _parse_trailers(self, data: bytes, at: int) -> int:
        while (end := data.find(b"\r\n", at)) >= 0:
            if end == at:
                self.complete = True
                return at + 2
            at = end + 2
        _check_line(data, at)
        return at


def _check_line(data: bytes, at: int) -> None:
    """Raise ValueError if an incomplete line or head is too long."""
    if len(data) - at > MAX_LINE:
        raise ValueError("a head or a line without an end")


def _check_chunk_line(data: bytes, at: int) -> None:
    """Raise ValueError if the line at `at` is complete but not a chunk size, or too long."""
    end = data.find(b"\r\n", at)
    if end >= 0:
        raise ValueError(f"not the size of a chunk: {data[at:end][:50]!r}")
    _check_line(data, at)


def _head(text: str) -> Head:
    if "\r\n " in text or "\r\n\t" in text:
        text = re.sub(_OBS_FOLD, " ", text)
    first, *lines = text.split("\r\n")
    version, _, rest = first.partition(" ")
    status = _STATUS_CODES.get(rest[:3])
    if status is None or not version.startswith("HTTP/1."):
        raise ValueError(f"not a status line of HTTP/1.1: {first[:50]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        name, value = name.lower(), value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    coding = headers.get("transfer-encoding", "").lower()
    if status == 101 or coding not in ("", "chunked"):
        raise ValueError(f"neither asked for nor understood: {first[:50]!r}, transfer coding {coding[:50]!r}")
    chunked, length = bool(coding), None
    if status in _NO_CONTENT or status < 200:
        chunked, length = False, 0
    elif not chunked and "content-length" in headers:
        text = headers["content-length"]
        length = int(text) if text.isdecimal() and text.isascii() else _repeated_length(text)
    keep_alive = version != "HTTP/1.0" and "close" not in headers.get("connection", "").lower()
    until_close = not chunked and length is None
    return Head(status, headers, chunked, length, until_close, keep_alive and not until_close)


def _repeated_length(text: str) -> int:
    """The length in a header that was sent several times. The values must be equal (RFC 9110, 8.6)."""
    value, *others = {value.strip(" \t") for value in text.split(",")}
    if others or not (value.isascii() and value.isdecimal()):
        raise ValueError(f"not a length: {value[:50]!r}")
    return int(value)
