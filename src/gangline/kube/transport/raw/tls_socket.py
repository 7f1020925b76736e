"""A socket with TLS (or without) that the event loop watches directly, without asyncio's transports.

asyncio's TLS transport copies all data through two buffers and a state machine in Python. That costs more than the
encryption, and with many small messages more than everything else done with them. This works on event loops that can
watch a socket.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterable
from typing import Any, Protocol

MAX_READ_BYTES, TLS_RECORD_BYTES = 64 * 1024, 16 * 1024
"""Bytes per read of a plain socket and of a TLS socket, which returns at most one record. Each read allocates them."""
_WOULD_BLOCK = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
SocketOption = tuple[int, int, int]


class SocketListener(Protocol):
    """Receives the data of a `TlsSocket`: the part of `asyncio.Protocol` that is used."""

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
    """A connected, non-blocking socket; with a `context`, after the TLS handshake. Raises OSError.

    The addresses of the host are tried one after the other, each for its share of `seconds`.
    """
    last_error = OSError(f"{host} has no address")
    async with asyncio.timeout(seconds):
        addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for family, kind, protocol, _, address in addresses:
            plain = socket.socket(family, kind, protocol)
            try:
                for option in ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), *options):
                    plain.setsockopt(*option)
                async with asyncio.timeout(seconds / len(addresses)):
                    return await _connect_and_handshake(plain, address, context, name)
            except OSError as error:
                plain.close()
                last_error = error
    raise last_error


async def _connect_and_handshake(
    connected: socket.socket, address: Any, context: ssl.SSLContext | None, name: str | None
) -> socket.socket:
    """The connected socket, wrapped in TLS if there is a context. Closed on any error."""
    try:
        connected.setblocking(False)  # noqa: FBT003 - the standard library's signature
        await asyncio.get_running_loop().sock_connect(connected, address)
        if context is not None:
            connected = context.wrap_socket(connected, server_hostname=name, do_handshake_on_connect=False)
            await _handshake(connected)
    except BaseException:
        connected.close()
        raise
    return connected


async def _handshake(tls_socket: ssl.SSLSocket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        ready: asyncio.Future[None] = loop.create_future()
        try:
            tls_socket.do_handshake()
        except ssl.SSLWantReadError:
            add, remove = loop.add_reader, loop.remove_reader
        except ssl.SSLWantWriteError:
            add, remove = loop.add_writer, loop.remove_writer
        else:
            return
        add(tls_socket.fileno(), _wake, ready)
        try:
            await ready
        finally:
            remove(tls_socket.fileno())


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


class TlsSocket:
    """A connected socket that passes what it receives to a listener."""

    def __init__(self, connected: socket.socket, end: SocketListener, *, rest: float = 0.0) -> None:
        """With `rest`, all available data is read at once, and then nothing for that many seconds.

        When much data arrives in small pieces, most of the cost is waking up for each piece.
        """
        self._loop = asyncio.get_running_loop()
        self._socket, self._listener, self._read_interval = connected, end, rest
        # The loop gets the number: of a socket object it would make a text at every registration.
        self._fd = connected.fileno()
        self._max_read = TLS_RECORD_BYTES if isinstance(connected, ssl.SSLSocket) else MAX_READ_BYTES
        # Data that the kernel has not accepted yet.
        self._unsent = bytearray()
        self._is_open = self._is_reading = True
        # Whether the event loop watches for data. Not while resting, nor right after it, if there was data again.
        self._is_watched = False
        self._watch()

    def is_closing(self) -> bool:
        return not self._is_open

    def write(self, data: bytes) -> None:
        """Send data, the rest of it when the socket is writable again. Does nothing once the socket is closed."""
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
            # Not called from inside `write`, so that the writer finishes first.
            self._loop.call_soon(self._close_and_notify, error)
            return
        if sent < len(data):
            self._unsent += memoryview(data)[sent:]
            self._loop.add_writer(self._fd, self._on_writable)

    def pause(self) -> None:
        """Stop reading, so that the peer has to wait."""
        if self._is_open and self._is_reading:
            self._is_reading = False
            self._unwatch()

    def resume(self) -> None:
        if self._is_open and not self._is_reading:
            self._is_reading = True
            self._watch()

    def abort(self) -> None:
        """Close the socket without the TLS shutdown, which may take long and is of no use here."""
        if self._close():
            self._loop.call_soon(self._listener.connection_lost, None)

    def _watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            self._loop.add_reader(self._fd, self._on_readable)

    def _unwatch(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._loop.remove_reader(self._fd)

    def _end_rest(self) -> None:
        """Read what has arrived meanwhile. Under load there is some, and the event loop need not watch the socket."""
        if self._is_open and not self._is_reading:
            self._is_reading = True
            self._on_readable()

    def _on_readable(self) -> None:
        received = False
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
            received = True
            self._listener.data_received(data)
            if not self._read_interval:
                break
        if self._read_interval and self._is_open and self._is_reading:
            if received:
                self.pause()
                self._loop.call_later(self._read_interval, self._end_rest)
            else:
                self._watch()
        if self._unsent:
            # With TLS a write may wait for a read: the peer may be renewing its key.
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
            self._loop.remove_writer(self._fd)

    def _close_and_notify(self, error: Exception | None) -> None:
        if self._close():
            self._listener.connection_lost(error)

    def _close(self) -> bool:
        """Close the socket. Returns whether it was open."""
        if not self._is_open:
            return False
        self._is_open = False
        self._unwatch()
        self._loop.remove_writer(self._fd)
        self._unsent.clear()
        self._socket.close()
        return True
