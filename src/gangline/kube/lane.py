"""One kept connection that carries one request at a time, and the answer to it: HTTP/1.1 and nothing else."""

import asyncio
from typing import cast

from gangline.kube.errors import Unreachable
from gangline.kube.transport import Response

LONGEST_HEAD = 64 * 1024


class Lane(asyncio.Protocol):
    """One connection: one request at a time, and the answer to it."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.used = 0.0
        # When the answer has to be there.
        self.due = 0.0
        self._answer: asyncio.Future[Response] | None = None
        self._received = bytearray()
        self._parts: list[bytes] = []
        # Once the head of an answer is there: its status, headers, and how long its body is (None: in chunks).
        self._head: tuple[int, dict[str, str], int | None] | None = None
        self._keeps = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None
        self._fail(str(error) if error is not None else "the server closed the connection")

    @property
    def open(self) -> bool:
        return self.transport is not None and self._keeps and not self.transport.is_closing()

    def ask(self, text: bytes) -> asyncio.Future[Response]:
        """Send it."""
        assert self.transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._head = None
        self.transport.write(text)
        return self._answer

    def give_up(self) -> None:
        """The answer is `Unreachable`, and the connection is closed."""
        self._fail("no answer in time")
        self.close()

    def close(self) -> None:
        if self.transport is not None:
            # Not `close`: a TLS goodbye may take long and serves nobody.
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            response = self._read()
        except ValueError as error:
            self._keeps = False
            self._fail(f"an answer that cannot be read: {error}")
            self.close()
            return
        if response is not None:
            answer = self._over()
            if answer is not None:
                answer.set_result(response)

    def _fail(self, why: str) -> None:
        answer = self._over()
        if answer is not None:
            answer.set_exception(Unreachable(why))

    def _over(self) -> asyncio.Future[Response] | None:
        """Whoever still waits for the answer."""
        answer, self._answer = self._answer, None
        return None if answer is None or answer.done() else answer

    def _read(self) -> Response | None:
        """The answer, once all of it is there. Raises ValueError."""
        if self._head is None:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                if len(self._received) > LONGEST_HEAD:
                    raise ValueError("its head has no end")
                return None
            self._head = self._begin(bytes(self._received[:end]))
            del self._received[: end + 4]
        status, headers, length = self._head
        body = self._chunks() if length is None else self._counted(length)
        if body is None:
            return None
        self._head = None
        return Response(status, body, headers)

    def _begin(self, head: bytes) -> tuple[int, dict[str, str], int | None]:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError(f"it begins with {first[:50]!r}")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            name, value = name.lower(), value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        self._keeps = "close" not in headers.get("connection", "").lower() and version != "HTTP/1.0"
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return int(rest[:3]), headers, None
        if "content-length" not in headers and int(rest[:3]) not in (204, 304):
            raise ValueError("it does not say how long it is")
        return int(rest[:3]), headers, int(headers.get("content-length", "0"))

    def _counted(self, length: int) -> bytes | None:
        if len(self._received) < length:
            return None
        body = bytes(self._received[:length])
        del self._received[:length]
        return body

    def _chunks(self) -> bytes | None:
        while True:
            end = self._received.find(b"\r\n")
            if end < 0:
                return None
            size = int(bytes(self._received[:end]).partition(b";")[0], 16)
            begin = end + 2
            if size < 0:
                raise ValueError("a chunk is less than nothing")
            if len(self._received) < begin + size + 2:
                return None
            self._parts.append(bytes(self._received[begin : begin + size]))
            del self._received[: begin + size + 2]
            if size == 0:
                # No server of ours sends trailers.
                body, self._parts = b"".join(self._parts), []
                return body
