"""Streams of pods on nodes of other processes: through the API of their kubelet, by HTTP and SPDY, as kube-apiserver does."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC
from functools import partial
from urllib.parse import urlencode

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.errors import StatusError
from gangline.apiserver.proxy.handlers import KubeletTls
from gangline.apiserver.proxy.targets import node_address
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.store.paths import object_path
from gangline.apiserver.store.store import Store
from gangline.apiserver.streaming.channels import V4
from gangline.apiserver.streaming.port_forward import SPDY_PROTOCOL
from gangline.apiserver.streaming.spdy import FrameDecoder, FrameEncoder, Ping, SpdyError, StreamData, StreamReset
from gangline.apiserver.streaming.spdy_connection import PROTOCOL_HEADER, SPDY_UPGRADE
from gangline.base.tasks import background_tasks
from gangline.kube.podstreams import (
    CommandFailed,
    ContainerNotRunning,
    ContainerRef,
    LogOptions,
    PodStreams,
    PortForwardFailed,
)
from gangline.kube.transport.http1 import ResponseParser

CONNECT_SECONDS = 30.0
CHUNK_BYTES = 2**15
MAX_ERROR_BYTES = 4096
QUEUED_PARTS = 16
"""Parts of output that are read ahead of a slow client."""
Query = Sequence[tuple[str, str]]


class ReachableNodes(Mapping[str, PodStreams]):
    """The nodes of this process, and those whose kubelet is reached by the address in their status."""

    def __init__(self, own: Mapping[str, PodStreams], store: Store, tls: KubeletTls) -> None:
        self._own, self._store, self._tls = own, store, tls

    def __getitem__(self, name: str) -> PodStreams:
        if name in self._own:
            return self._own[name]
        record = self._store.get(object_path("", "nodes", "", name))
        if record is None:
            raise KeyError(name)
        try:
            address, port = node_address(decode_record(record))
        except StatusError as error:
            raise KeyError(name) from error
        return RemoteKubelet(address, port, self._tls())

    def __iter__(self) -> Iterator[str]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)


class RemoteKubelet:
    """The `PodStreams` of a kubelet. Every stream has a connection of its own."""

    identifies_runs = False

    def __init__(self, host: str, port: int, tls: ssl.SSLContext) -> None:
        self._host, self._port, self._tls = host, port, tls

    async def connect_api(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await asyncio.open_connection(self._host, self._port, ssl=self._tls)

    async def logs(self, ref: ContainerRef, run: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        path = f"/containerLogs/{ref.key.namespace}/{ref.key.name}/{ref.container}"
        async with self._request("GET", path, log_query(options)) as (reader, _):
            parser = ResponseParser()
            while not parser.complete:
                data = await reader.read(CHUNK_BYTES)
                if not data and not parser.close():
                    return
                parser.feed(data)
                body = parser.take_body()
                if parser.head is not None and parser.head.status >= 400:
                    text = f"the server could not get the log: {body.decode(errors='replace').strip()}\n"
                    body = text.encode()
                if body:
                    yield body

    async def attach(self, ref: ContainerRef, run: str) -> AsyncGenerator[tuple[bytes, bytes], None]:
        async with (
            self._session("attach", ref, (), stdin=False, tty=False) as session,
            aclosing(session.outputs()) as parts,
        ):
            async for output, data in parts:
                yield (b"stdout" if output == 1 else b"stderr"), data

    @asynccontextmanager
    async def attach_input(self, ref: ContainerRef, *, tty: bool) -> AsyncIterator["KubeletSession"]:
        async with self._session("attach", ref, (), stdin=True, tty=tty) as session:
            yield session

    @asynccontextmanager
    async def run_command(
        self, ref: ContainerRef, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> AsyncIterator["KubeletSession"]:
        async with self._session("exec", ref, command, stdin=stdin, tty=tty) as session:
            yield session

    async def connect(self, ref: ContainerRef, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        upstream = await self._open_spdy(f"/portForward/{ref.key.namespace}/{ref.key.name}", (), SPDY_PROTOCOL)
        labels = {"port": str(port), "requestid": "0"}
        error, data = (upstream.open({"streamtype": kind, **labels}) for kind in ("error", "data"))
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        forward = partial(_forward, upstream, error, data, reader)
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader(), forward), theirs
        )
        return reader, writer

    @asynccontextmanager
    async def _session(
        self, verb: str, ref: ContainerRef, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> AsyncIterator["KubeletSession"]:
        flags = {"input": stdin, "output": True, "error": not tty, "tty": tty}
        query = [*(("command", word) for word in command), *((name, "1") for name, is_set in flags.items() if is_set)]
        path = f"/{verb}/{ref.key.namespace}/{ref.key.name}/{ref.container}"
        upstream = await self._open_spdy(path, sorted(query, key=lambda pair: pair[0]), V4)
        names = ["error", *(["stdin"] if stdin else []), "stdout", *(["resize"] if tty else ["stderr"])]
        session = KubeletSession(upstream, {name: upstream.open({"streamtype": name}) for name in names})
        try:
            if verb == "attach":
                yield session
            else:
                async with background_tasks(session.pump()):
                    yield session
        finally:
            upstream.close()

    async def _open_spdy(self, path: str, query: Query, protocol: str) -> "KubeletStreams":
        """Upgrade a connection to SPDY. Raises `ContainerNotRunning` if the kubelet does not, and OSError."""
        headers = {"Connection": "Upgrade", "Upgrade": SPDY_UPGRADE, PROTOCOL_HEADER: protocol, "Content-Length": "0"}
        reader, writer = await self._send("POST", path, query, headers)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            if head.split(maxsplit=2)[1] != "101":
                text = (await reader.read(MAX_ERROR_BYTES)).decode(errors="replace").strip()
                raise ContainerNotRunning(text or head.partition("\r\n")[0])
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError) as error:
            writer.transport.abort()
            raise ContainerNotRunning("the kubelet does not answer") from error
        except BaseException:
            writer.transport.abort()
            raise
        return KubeletStreams(reader, writer)

    @asynccontextmanager
    async def _request(
        self, method: str, path: str, query: Query
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await self._send(method, path, query, {"Connection": "close"})
        try:
            yield reader, writer
        finally:
            writer.transport.abort()  # the rest is not wanted, and TLS would wait for it

    async def _send(
        self, method: str, path: str, query: Query, headers: Mapping[str, str]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self.connect_api()
        target = f"{path}?{urlencode(query)}" if query else path
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._host}:{self._port}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
        return reader, writer


def log_query(options: LogOptions) -> Query:
    """The options of a log, as kubelet takes them."""
    values: dict[str, str] = {}
    for name, is_set in (
        ("follow", options.follow),
        ("previous", options.previous),
        ("timestamps", options.timestamps),
    ):
        if is_set:
            values[name] = "true"
    if options.limit_bytes is not None:
        values["limitBytes"] = str(options.limit_bytes)
    if options.since_seconds is not None:
        values["sinceSeconds"] = str(options.since_seconds)
    elif options.since is not None:
        values["sinceTime"] = options.since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if options.tail is not None:
        values["tailLines"] = str(options.tail)
    return sorted(values.items())


class KubeletStreams:
    """The client's side of a SPDY connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._encoder, self._decoder = FrameEncoder(), FrameDecoder()
        self._next = 1

    def open(self, headers: Mapping[str, str]) -> int:
        """Open a stream; returns its id."""
        stream, self._next = self._next, self._next + 2
        self._writer.write(self._encoder.syn_stream(stream, headers))
        return stream

    async def send(self, stream: int, data: bytes) -> None:
        for start in range(0, len(data), CHUNK_BYTES):
            self._writer.write(self._encoder.data(stream, data[start : start + CHUNK_BYTES]))
            await self._writer.drain()

    def finish(self, stream: int, data: bytes = b"") -> None:
        """Send the last data of a stream."""
        self._writer.write(self._encoder.data(stream, data, fin=True))

    def send_soon(self, stream: int, data: bytes) -> None:
        """Send a little, without waiting for it."""
        self._writer.write(self._encoder.data(stream, data))

    async def events(self) -> AsyncGenerator[StreamData | StreamReset, None]:
        """What arrives on streams, until the kubelet disconnects."""
        with suppress(SpdyError, ConnectionError):
            while data := await self._reader.read(CHUNK_BYTES):
                for frame in self._decoder.feed(data):
                    match frame:
                        case StreamData() | StreamReset():
                            yield frame
                        case Ping():
                            self._writer.write(self._encoder.ping(frame.id))
                        case _:
                            pass

    def close(self) -> None:
        """End the connection, at once: whoever calls it has all that they wait for."""
        self._writer.transport.abort()


class KubeletSession:
    """A command, or an attached container, of a kubelet."""

    def __init__(self, streams: KubeletStreams, ids: Mapping[str, int]) -> None:
        self._streams, self._ids = streams, ids
        self._outputs = {ids[name]: number for number, name in ((1, "stdout"), (2, "stderr")) if name in ids}
        self._parts: dict[int, asyncio.Queue[bytes]] = {
            number: asyncio.Queue(QUEUED_PARTS) for number in self._outputs.values()
        }
        self._status = b""
        self._ended = asyncio.Event()

    async def pump(self) -> None:
        """Sort what arrives, until the end."""
        async with aclosing(self._streams.events()) as events:
            async for event in events:
                output = self._outputs.get(event.stream)
                if isinstance(event, StreamData) and event.data and output is not None:
                    await self._parts[output].put(event.data)
                elif isinstance(event, StreamData) and event.stream == self._ids["error"]:
                    self._status += event.data
                if isinstance(event, StreamReset) or event.fin:
                    if output is not None:
                        await self._parts[output].put(b"")
                    elif event.stream == self._ids["error"]:
                        self._ended.set()
        self._ended.set()
        for parts in self._parts.values():
            await parts.put(b"")

    async def read(self, output: int) -> bytes:
        parts = self._parts.get(output)
        return await parts.get() if parts is not None else b""

    async def outputs(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """Parts of all outputs as they come, until the end. Instead of `pump` and `read`."""
        async with aclosing(self._streams.events()) as events:
            async for event in events:
                output = self._outputs.get(event.stream)
                if isinstance(event, StreamData) and event.data and output is not None:
                    yield output, event.data
                elif (isinstance(event, StreamReset) or event.fin) and event.stream == self._ids["error"]:
                    return

    async def write(self, data: bytes) -> None:
        if "stdin" in self._ids:
            with suppress(ConnectionError):
                await self._streams.send(self._ids["stdin"], data)

    async def close_input(self) -> None:
        if "stdin" in self._ids:
            self._streams.finish(self._ids["stdin"])

    async def resize(self, width: int, height: int) -> None:
        if "resize" in self._ids:
            size = msgspec.json.encode({"Width": width, "Height": height})
            self._streams.send_soon(self._ids["resize"], size + b"\n")

    async def wait(self) -> int:
        """The exit code. Raises `CommandFailed` if the command did not run."""
        await self._ended.wait()
        try:
            status: JSON = msgspec.json.decode(self._status) if self._status else {}
        except msgspec.DecodeError:
            status = {"message": self._status.decode(errors="replace")}
        if status.get("status") == "Success":
            return 0
        for cause in (status.get("details") or {}).get("causes") or ():
            if cause.get("reason") == "ExitCode":
                return int(cause["message"])
        message = status.get("message") or "the connection to the kubelet broke"
        raise CommandFailed(
            message, {"metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500, **status}
        )


async def _forward(
    streams: KubeletStreams,
    error: int,
    data: int,
    client: asyncio.StreamReader,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Join a forwarded connection with our end of it. What the kubelet reports is raised by the client's reader."""

    async def copy_to_kubelet() -> None:
        with suppress(ConnectionError):
            while part := await reader.read(CHUNK_BYTES):
                await streams.send(data, part)
            streams.finish(data)

    problem = b""
    try:
        async with background_tasks(copy_to_kubelet()), aclosing(streams.events()) as events:
            async for event in events:
                if isinstance(event, StreamData) and event.stream == error:
                    problem += event.data
                elif isinstance(event, StreamData) and event.stream == data and event.data:
                    writer.write(event.data)
                    await writer.drain()
                if (isinstance(event, StreamReset) or event.fin) and event.stream == error:
                    break
    except ConnectionError:
        pass  # the client has disconnected
    finally:
        if problem:
            client.set_exception(PortForwardFailed(problem.decode(errors="replace").strip()))
        writer.close()
        streams.close()
