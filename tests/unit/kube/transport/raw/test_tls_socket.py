"""A TLS socket: all data arrives in both directions, and its end is reported once."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
import trustme

from gangline.kube.transport.raw.tls_socket import TlsSocket, connect_socket

LONG = b"0123456789abcdef" * 512 * 1024
"""8 MB: more than any socket accepts at once."""


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


class End:
    """Records its calls."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.lost: list[Exception | None] = []
        self._changed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._changed.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)
        self._changed.set()

    async def until(self, length: int = 0, *, lost: bool = False) -> None:
        async with asyncio.timeout(60):
            while len(self.received) < length or (lost and not self.lost):
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def echoing(tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """An echo server; yields its port."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]


def contexts(ca: trustme.CA) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of the server and the client."""
    server, client = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    ca.issue_cert("here.example").configure_cert(server)
    ca.configure_trust(client)
    return server, client


@contextmanager
def wired(made: socket.socket, end: End, rest: float = 0.0) -> Iterator[TlsSocket]:
    wire = TlsSocket(made, end, rest=rest)
    try:
        yield wire
    finally:
        wire.abort()


@pytest.mark.parametrize("rest", [0.0, 0.001])
@pytest.mark.parametrize("secret", [False, True])
async def test_all_that_is_written_arrives_however_long(ca: trustme.CA, secret: bool, rest: float) -> None:
    server, client = contexts(ca)
    end = End()
    async with echoing(server if secret else None) as port:
        made = await connect_socket("127.0.0.1", port, context=client if secret else None, name="here.example")
        with wired(made, end, rest) as wire:
            for begin in range(0, len(LONG), 1_000_000):
                wire.write(LONG[begin : begin + 1_000_000])
            await end.until(len(LONG))
            assert end.received == LONG
    assert end.lost == []


@pytest.mark.parametrize("secret", [False, True])
async def test_the_end_is_told_once(ca: trustme.CA, secret: bool) -> None:
    server, client = contexts(ca)
    leaves = asyncio.Event()

    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"bye")
        await writer.drain()
        writer.close()
        leaves.set()

    listening = await asyncio.start_server(leave, "127.0.0.1", 0, ssl=server if secret else None)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        made = await connect_socket("127.0.0.1", port, context=client if secret else None, name="here.example")
        end = End()
        with wired(made, end) as wire:
            await end.until(lost=True)
            assert (bytes(end.received), end.lost, wire.is_closing()) == (b"bye", [None], True)
            wire.write(b"nobody hears this")
            wire.abort()
            await leaves.wait()
        await asyncio.sleep(0)
        assert len(end.lost) == 1


async def test_whoever_aborts_is_told_too_and_the_other_side_sees_the_end() -> None:
    seen: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.set_result(await reader.read())
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with server:
        end = End()
        wire = TlsSocket(await connect_socket("127.0.0.1", server.sockets[0].getsockname()[1]), end)
        wire.write(b"so far")
        wire.abort()
        await end.until(lost=True)
        assert (await asyncio.wait_for(seen, 60), end.lost) == (b"so far", [None])


async def test_while_it_is_paused_nothing_is_read() -> None:
    async with echoing() as port:
        end = End()
        made = await connect_socket("127.0.0.1", port)
        with wired(made, end) as wire:
            wire.pause()
            wire.write(b"x" * 1000)
            other = End()
            # As long as another socket needs for the same: by then the data would have arrived.
            with wired(await connect_socket("127.0.0.1", port), other) as second:
                for _ in range(20):
                    second.write(b"y")
                    await other.until(len(other.received) + 1)
            assert not end.received
            wire.resume()
            await end.until(1000)


async def test_a_server_that_is_not_trusted_is_an_error_and_leaves_nothing_open(ca: trustme.CA) -> None:
    server, _ = contexts(ca)
    async with echoing(server) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect_socket("127.0.0.1", port, context=ssl.create_default_context(), name="here.example")
        _, client = contexts(ca)
        with pytest.raises(ssl.SSLCertVerificationError, match=r"there\.example"):
            await connect_socket("127.0.0.1", port, context=client, name="there.example")


async def test_a_handshake_that_is_given_up_leaves_nothing_open(ca: trustme.CA) -> None:
    _, client = contexts(ca)
    gone = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        gone.set()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await connect_socket("127.0.0.1", port, context=client, name="here.example")
        await asyncio.wait_for(gone.wait(), 60)


@contextmanager
def resolving(*addresses: tuple[str, int]) -> Iterator[None]:
    """Resolves every host to these addresses."""
    loop = asyncio.get_running_loop()

    async def resolved(*asked: object, **more: object) -> object:
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in addresses]

    known, loop.getaddrinfo = loop.getaddrinfo, resolved  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        loop.getaddrinfo = known  # type: ignore[method-assign]


async def test_every_address_of_a_host_is_tried() -> None:
    async with echoing() as port:
        nobody, somebody = ("127.0.0.2", port), ("127.0.0.1", port)
        with resolving(nobody, somebody):
            made = await connect_socket("somewhere", port)
            assert made.getpeername() == somebody
            made.close()
        with resolving(nobody), pytest.raises(ConnectionRefusedError):
            await connect_socket("somewhere", port)
        with resolving(), pytest.raises(OSError, match="somewhere has no address"):
            await connect_socket("somewhere", port)


async def test_an_address_that_does_not_answer_leaves_time_for_the_others(ca: trustme.CA) -> None:
    server, client = contexts(ca)
    silent = socket.create_server(("127.0.0.1", 0))
    async with echoing(server) as port:
        with silent, resolving(silent.getsockname(), ("127.0.0.1", port)):
            made = await connect_socket("somewhere", port, context=client, name="here.example", seconds=4.0)
            assert made.getpeername() == ("127.0.0.1", port)
            made.close()
        with resolving(("127.0.0.1", port)), pytest.raises(ssl.SSLCertVerificationError):
            await connect_socket("somewhere", port, context=client, name="there.example", seconds=60.0)
