"""The head of an HTTP/1.1 answer, and the pieces of a body that comes in chunks."""

from collections.abc import Mapping

import msgspec

MAX_HEAD_BYTES = 64 * 1024
_BODILESS_STATUSES = (204, 304)


class ResponseHead(msgspec.Struct, frozen=True):
    """What an answer begins with. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    chunked: bool
    # Of the body; None: in chunks, or until the server closes the connection.
    content_length: int | None
    # Whether another request can be sent after it.
    keep_alive: bool


def take_head(received: bytearray) -> ResponseHead | None:
    """Take the head out of what was received, once all of it is there. Raises ValueError."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        if len(received) > MAX_HEAD_BYTES:
            raise ValueError("its head has no end")
        return None
    head = _parsed_head(received[:end].decode("latin-1"))
    del received[: end + 4]
    return head


def take_chunk(received: bytearray) -> bytes | None:
    """Take one chunk of a body, once all of it is there; an empty one is the end. Raises ValueError."""
    end = received.find(b"\r\n")
    if end < 0:
        return None
    size = int(received[:end].partition(b";")[0], 16)
    begin = end + 2
    if size < 0:
        raise ValueError("a chunk is less than nothing")
    if len(received) < begin + size + 2:
        return None
    # No server of ours sends trailers.
    chunk = bytes(received[begin : begin + size])
    del received[: begin + size + 2]
    return chunk


def _parsed_head(text: str) -> ResponseHead:
    first, *lines = text.split("\r\n")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(f"it begins with {first[:50]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    status = int(rest[:3])
    chunked = "chunked" in headers.get("transfer-encoding", "").lower()
    length = None
    if not chunked and ("content-length" in headers or status in _BODILESS_STATUSES):
        length = int(headers.get("content-length", "0"))
    keeps = "close" not in headers.get("connection", "").lower() and version != "HTTP/1.0"
    return ResponseHead(status, headers, chunked, length, keeps)
