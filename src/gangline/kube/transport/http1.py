"""HTTP/1.1 responses out of received bytes (RFC 9112). No socket and no clock: both socket transports use it.

The bytes may be cut anywhere. Chunk extensions and trailers are read and dropped, interim responses (1xx) are skipped.
"""

import re
from collections.abc import Mapping

import msgspec

MAX_LINE = 64 * 1024
"""Bytes of a head, or of one line between chunks or in trailers."""
_NO_CONTENT = (204, 304)
_OBS_FOLD = re.compile(r"[ \t]*\r\n[ \t]+")
# An extension may be a quoted string with any character but a line end, so the first CRLF always ends the line.
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")


class Head(msgspec.Struct, frozen=True):
    """Status line, headers and the framing of the body they announce."""

    status: int
    # Names are in lower case; the values of a repeated name are joined by commas.
    headers: Mapping[str, str]
    chunked: bool
    # Of the body; None: it is chunked, or ends when the server closes the connection.
    length: int | None
    # Whether another request can be sent on the connection.
    keep_alive: bool

    @property
    def until_close(self) -> bool:
        return self.length is None and not self.chunked


class ResponseParser:
    """The responses on one connection, one after the other. Not to be used again after a ValueError."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.complete = False
        self._body: list[bytes] = []
        # Received and not parsed: part of a head or of a line, or what follows a complete response.
        self._rest = b""
        # Bytes missing of the body, or of a chunk and its CRLF. 0 in a chunked body: the next chunk's size is due.
        self._missing = 0
        self._in_trailers = False

    @property
    def has_excess(self) -> bool:
        """Whether something follows a complete response."""
        return self.complete and bool(self._rest)

    def feed(self, data: bytes) -> None:
        """Parse on. Stops after a complete response and keeps what follows it for `next`. Raises ValueError."""
        if self._rest:
            data = self._rest + data
        at = 0
        if self.head is None:
            at = self._parse_head(data)
        if self.head is not None and not self.complete:
            at = self._parse_body(self.head, data, at)
        self._rest = data[at:]

    def take_body(self) -> bytes:
        """What has been received of the body since the last call."""
        body, self._body = b"".join(self._body), []
        return body

    def next(self) -> None:
        """Go on to the response after a complete one. Raises ValueError."""
        rest, self._rest = self._rest, b""
        self.head, self.complete, self._in_trailers, self._missing = None, False, False, 0
        if rest:
            self.feed(rest)

    def close(self) -> bool:
        """The server has closed the connection. Whether the response is complete."""
        if self.head is not None and self.head.until_close:
            self.complete = True
        return self.complete

    # Each of these parses from a position on and returns the position it got to.

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

    def _parse_body(self, head: Head, data: bytes, at: int) -> int:
        if head.chunked:
            if not self._in_trailers:
                at = self._parse_chunks(data, at)
            return self._parse_trailers(data, at) if self._in_trailers else at
        end = len(data) if head.length is None else min(at + self._missing, len(data))
        if end > at:
            self._body.append(data[at:end])
        if head.length is not None:
            self._missing -= end - at
            self.complete = not self._missing
        return end

    def _parse_chunks(self, data: bytes, at: int) -> int:
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
                    return at
            end = min(at + missing - 2, size)
            if end > at:
                self._body.append(data[at:end])
                missing -= end - at
                at = end
            if missing > 2 or size < at + 2:
                break
            if data[at : at + 2] != b"\r\n":
                raise ValueError("a chunk is longer than its size")
            missing = 0
            at += 2
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
    """A line or head that has no end yet."""
    if len(data) - at > MAX_LINE:
        raise ValueError("a head or a line without an end")


def _check_chunk_line(data: bytes, at: int) -> None:
    """One that gives no size, or none yet."""
    end = data.find(b"\r\n", at)
    if end >= 0:
        raise ValueError(f"not the size of a chunk: {data[at:end][:50]!r}")
    _check_line(data, at)


def _head(text: str) -> Head:
    if "\r\n " in text or "\r\n\t" in text:
        text = _OBS_FOLD.sub(" ", text)
    first, *lines = text.split("\r\n")
    version, _, rest = first.partition(" ")
    code = rest[:3]
    if not version.startswith("HTTP/1.") or len(code) < 3 or not _is_number(code):
        raise ValueError(f"not a status line of HTTP/1.1: {first[:50]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        name, value = name.lower(), value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    status, coding = int(code), headers.get("transfer-encoding", "").lower()
    if status == 101 or coding not in ("", "chunked"):
        raise ValueError(f"neither asked for nor understood: {first[:50]!r}, transfer coding {coding[:50]!r}")
    chunked, length = bool(coding), None
    if status in _NO_CONTENT or status < 200:
        chunked, length = False, 0
    elif not chunked and "content-length" in headers:
        length = _content_length(headers["content-length"])
    keep_alive = version != "HTTP/1.0" and "close" not in headers.get("connection", "").lower()
    return Head(status, headers, chunked, length, keep_alive and (chunked or length is not None))


def _content_length(text: str) -> int:
    if not _is_number(text):
        # Repeated, it has to be the same (RFC 9110, 8.6).
        text, *others = {one.strip(" \t") for one in text.split(",")}
        if others or not _is_number(text):
            raise ValueError(f"not a length: {text[:50]!r}")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
