"""A connection that carries TLS and has nothing else around it: a socket that the event loop watches.

asyncio's own TLS copies everything through two buffers and a state machine in Python, which costs more than the encryption
does: with many small messages more than all else that is done about them. This does what our protocols need, on the
loops that can watch a socket.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterable
from typing import Any, Protocol

MAX_READ_BYTES, TLS_RECORD_BYTES = 64 * 1024, 16 * 1024
"""Bytes asked of the socket at once; of TLS it gives one record at most. Room for them is made each time."""
_WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
SocketOption = tuple[int, int, int]


class SocketListener(Protocol):
    """Who is told what arrives. `asyncio.Protocol` has more, which is never called."""

    def connection_lost(self, error: Exception | None) -> None: ...

    def data_received(self, data: bytes) -> None: ...


async def connect_socket(
    host: str,
    port: int,
    *,
    context: ssl.SSLContext | None = None,
    name: str | None = None,
    options: Iterable[SocketOption] = (),
    seconds: float = 10.0,
) -> socket.socket:
    """A connected socket that does not block; with a context its handshake is done. Raises OSError.

    Every address of the host is tried, one after the other, and each has its share of the time.
    """
    failed = OSError(f"{host} has no address")
    async with asyncio.timeout(seconds):
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in found:
            made = socket.socket(family, kind, protocol)
            try:
                for option in ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), *options):
                    made.setsockopt(*option)
                async with asyncio.timeout(seconds / len(found)):
                    return await _connect_and_handshake(made, address, context, name)
            except OSError as error:
                made.close()
                failed = error
    raise failed


async def _connect_and_handshake(
    made: socket.socket, address: Any, context: ssl.SSLContext | None, name: str | None
) -> socket.socket:
    """The socket, or one with TLS in its place. Closed if it comes to nothing."""
    try:
        made.setblocking(False)  # noqa: FBT003 - the standard library's signature
        await asyncio.get_running_loop().sock_connect(made, address)
        if context is not None:
            made = context.wrap_socket(made, server_hostname=name, do_handshake_on_connect=False)
            await _handshake(made)
    except BaseException:
        made.close()
        raise
    return made


async def _handshake(made: ssl.SSLSocket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        ready: asyncio.Future[None] = loop.create_future()
        try:
            made.do_handshake()
        except ssl.SSLWantReadError:
            watch, leave = loop.add_reader, loop.remove_reader
        except ssl.SSLWantWriteError:
            watch, leave = loop.add_writer, loop.remove_writer
        else:
            return
        watch(made, _wake, ready)
        try:
            await ready
        finally:
            leave(made)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


class TlsSocket:
    """A connected socket, from now on watched for whoever is at its end."""

    def __init__(self, connected: socket.socket, end: SocketListener, *, rest: float = 0.0) -> None:
        """With `rest`, all that is there is read at once, and then nothing for so many seconds.

        Where much comes in small pieces, most of the work is to be woken for each.
        """
        self._loop = asyncio.get_running_loop()
        self._socket, self._listener, self._read_interval = connected, end, rest
        self._max_read = TLS_RECORD_BYTES if isinstance(connected, ssl.SSLSocket) else MAX_READ_BYTES
        # What the socket has not taken yet.
        self._unsent = bytearray()
        self._is_open = self._is_reading = True
        self._loop.add_reader(connected, self._on_readable)

    def is_closing(self) -> bool:
        return not self._is_open

    def write(self, data: bytes) -> None:
        """Now, as much as the socket takes; the rest when it can. Nothing once it is closed."""
        if not self._is_open:
            return
        if self._unsent:
            self._unsent += data
            return
        try:
            sent = self._socket.send(data)
        except _WOULD_BLOCK:
            sent = 0
        except OSError as error:
            # Whoever writes is not told before it is done with that.
            self._loop.call_soon(self._close_and_notify, error)
            return
        if sent < len(data):
            self._unsent += memoryview(data)[sent:]
            self._loop.add_writer(self._socket, self._on_writable)

    def pause(self) -> None:
        """Read nothing for now: who sends it has to wait."""
        if self._is_open and self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._socket)

    def resume(self) -> None:
        if self._is_open and not self._is_reading:
            self._is_reading = True
            self._loop.add_reader(self._socket, self._on_readable)

    def abort(self) -> None:
        """Close it. No goodbye: in TLS that may take long, and serves nobody."""
        if self._close():
            self._loop.call_soon(self._listener.connection_lost, None)

    def _on_readable(self) -> None:
        while self._is_open and self._is_reading:
            try:
                data = self._socket.recv(self._max_read)
            except _WOULD_BLOCK:
                break
            except OSError as error:
                self._close_and_notify(error)
                return
            if not data:
                self._close_and_notify(None)
                return
            self._listener.data_received(data)
            if not self._read_interval:
                break
        if self._read_interval and self._is_reading:
            self.pause()
            self._loop.call_later(self._read_interval, self.resume)
        if self._unsent:
            # A key that the other side renews can be what a write has waited for.
            self._on_writable()

    def _on_writable(self) -> None:
        if not self._is_open:
            return
        try:
            sent = self._socket.send(self._unsent)
        except _WOULD_BLOCK:
            return
        except OSError as error:
            self._close_and_notify(error)
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._socket)

    def _close_and_notify(self, error: Exception | None) -> None:
        if self._close():
            self._listener.connection_lost(error)

    def _close(self) -> bool:
        """Whether it was still open."""
        if not self._is_open:
            return False
        self._is_open = False
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._unsent.clear()
        self._socket.close()
        return True
