"""Exec, attach and port-forward as older clients ask for them: by SPDY; and WebSockets of all versions of the protocol."""

import asyncio
import base64
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gangline.api.core import Pod
from gangline.api.meta import JSON, Key
from gangline.kube.client import Client
from gangline.local.cluster import LocalCluster
from support.cluster.streams import WAIT, create_pod, first_line, sh, sleeper, wait_for_phase
from support.servers.spdy_client import RawResponse, SpdyClient, raw_request, read_head, spdy_client

PODS = "/api/v1/namespaces/default/pods"
ECHO = (
    "import socket\n"
    "server = socket.create_server(('127.0.0.1', 0))\n"
    "print(server.getsockname()[1], flush=True)\n"
    "while True:\n"
    "    taken, _ = server.accept()\n"
    "    data = b''\n"
    "    while part := taken.recv(1000):\n"
    "        data += part\n"
    "    taken.sendall(data.upper())\n"
    "    taken.close()\n"
)


def command(*words: str, **flags: str) -> list[tuple[str, str]]:
    return [*(("command", word) for word in words), *flags.items()]


# Commands


async def test_command_by_spdy(cluster: LocalCluster, client: Client) -> None:
    await sleeper(client)
    query = command("sh", "-c", "cat; echo err >&2; exit 3", stdin="true", stdout="true", stderr="true")
    versions = ("v9.channel.k8s.io", "v4.channel.k8s.io", "v3.channel.k8s.io")
    async with asyncio.timeout(WAIT), spdy_client(cluster, f"{PODS}/p/exec", query, versions) as (spdy, protocol):
        assert protocol == "v4.channel.k8s.io"
        error, stdin, stdout, stderr = [
            await spdy.open(streamtype=name) for name in ("error", "stdin", "stdout", "stderr")
        ]
        much = b"0123456789abcdef" * 20_000
        spdy.send(stdin, much)
        spdy.write(spdy.encoder.ping(5))
        spdy.send(stdin, b"", fin=True)
        assert await spdy.read(stdout) == much
        assert await spdy.read(stderr) == b"err\n"
        assert b'"reason":"ExitCode","message":"3"' in await spdy.read(error)
        assert spdy.pings == [5]


async def test_command_by_the_oldest_protocol_ends_with_a_text(cluster: LocalCluster, client: Client) -> None:
    await sleeper(client)
    query = command("sh", "-c", "echo out; exit 2", stdout="true")
    async with asyncio.timeout(WAIT), spdy_client(cluster, f"{PODS}/p/exec", query) as (spdy, protocol):
        assert protocol == ""
        error, stdout = [await spdy.open(streamtype=name) for name in ("error", "stdout")]
        assert await spdy.read(stdout) == b"out\n"
        assert await spdy.read(error) == b"command terminated with non-zero exit code: exit status 2"


async def test_terminal_by_spdy_has_a_size(cluster: LocalCluster, client: Client) -> None:
    await sleeper(client)
    script = "until stty size | grep 43; do :; done"
    query = command("sh", "-c", script, stdin="true", stdout="true", tty="true")
    async with asyncio.timeout(WAIT), spdy_client(cluster, f"{PODS}/p/exec", query, ["v4.channel.k8s.io"]) as (spdy, _):
        names = ("error", "stdin", "stdout", "resize")
        error, _, stdout, resize = [await spdy.open(streamtype=name) for name in names]
        spdy.send(resize, b'{"Width":132,"Height":43}\n')
        assert (await spdy.read(stdout)).split() == [b"43", b"132"]
        assert b'"status":"Success"' in await spdy.read(error)


async def test_streams_that_are_not_expected_are_reset_and_the_rest_goes_on(
    cluster: LocalCluster, client: Client
) -> None:
    await sleeper(client)
    query = command("echo", "hi", stdout="true")
    async with asyncio.timeout(WAIT), spdy_client(cluster, f"{PODS}/p/exec", query, ["v4.channel.k8s.io"]) as (spdy, _):
        await spdy.open(streamtype="resize")
        await spdy.open(streamtype="nonsense")
        stdout = await spdy.open(streamtype="stdout")
        await spdy.open(streamtype="error")
        assert await spdy.read(stdout) == b"hi\n"


async def test_protocol_that_nobody_knows_is_refused(cluster: LocalCluster, client: Client) -> None:
    await sleeper(client)
    with pytest.raises(RawResponse) as refused:
        async with spdy_client(cluster, f"{PODS}/p/exec", command("true", stdout="true"), ["v9.channel.k8s.io"]):
            pass
    assert " 403 " in refused.value.head
    assert "client supports [v9.channel.k8s.io], server accepts [v5.channel.k8s.io v4.channel" in refused.value.body


async def test_client_that_leaves_before_its_streams_are_open_leaves_nothing(
    cluster: LocalCluster, client: Client
) -> None:
    await sleeper(client)
    query = command("sleep", "1000", stdout="true")
    async with spdy_client(cluster, f"{PODS}/p/exec", query, ["v4.channel.k8s.io"]) as (spdy, _):
        await spdy.open(streamtype="error")
    query = command("echo", "next", stdout="true")
    async with asyncio.timeout(WAIT), spdy_client(cluster, f"{PODS}/p/exec", query, ["v4.channel.k8s.io"]) as (spdy, _):
        await spdy.open(streamtype="error")
        assert await spdy.read(await spdy.open(streamtype="stdout")) == b"next\n"


# WebSockets


async def connect(
    cluster: LocalCluster, path: str, *protocols: str
) -> tuple[aiohttp.ClientSession, aiohttp.ClientWebSocketResponse]:
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False))
    headers = dict(await cluster.connection.credentials.headers())
    return session, await session.ws_connect(f"{cluster.url}{path}", protocols=protocols, headers=headers)


@pytest.mark.parametrize(
    ("protocols", "ends"),
    [
        ((), [b"\x01out\n", b"\x03command terminated with non-zero exit code: exit status 3"]),
        (("channel.k8s.io",), [b"\x01out\n", b"\x03command terminated with non-zero exit code: exit status 3"]),
        (("base64.channel.k8s.io",), [b"\x01out\n", b"\x03command terminated with non-zero exit code: exit status 3"]),
    ],
)
async def test_websocket_of_the_first_version(
    cluster: LocalCluster, client: Client, protocols: tuple[str, ...], ends: list[bytes]
) -> None:
    await sleeper(client)
    path = f"{PODS}/p/exec?command=sh&command=-c&command=echo+out;exit+3&stdout=true"
    session, socket = await connect(cluster, path, *protocols)
    async with asyncio.timeout(WAIT), session, socket:
        assert socket.protocol == (protocols[0] if protocols else None)
        found = []
        async for message in socket:
            if message.type is aiohttp.WSMsgType.TEXT:
                found.append(bytes((int(message.data[0]),)) + base64.b64decode(message.data[1:]))
            else:
                found.append(message.data)
    assert [message for message in found if len(message) > 1] == ends


async def test_input_in_base64(cluster: LocalCluster, client: Client) -> None:
    await sleeper(client)
    path = f"{PODS}/p/exec?command=head&command=-n1&stdin=true&stdout=true"
    session, socket = await connect(cluster, path, "v4.base64.channel.k8s.io")
    async with asyncio.timeout(WAIT), session, socket:
        await socket.send_str("0" + base64.b64encode(b"hello\n").decode())
        texts = [message.data async for message in socket]
    assert base64.b64decode(texts[1][1:]) == b"hello\n"
    assert b'"status":"Success"' in base64.b64decode(texts[-1][1:])


# Ports


async def listening_pod(client: Client) -> tuple[str, str]:
    container: JSON = {"name": "main", "image": "none", "command": [sys.executable, "-c", ECHO]}
    key = await create_pod(client, "p", container)
    await wait_for_phase(client, key, "Running")
    return f"{PODS}/p/portforward", await first_line(client, key)


async def forward(spdy: SpdyClient, port: str, number: int) -> tuple[int, int]:
    request = str(number)
    error = await spdy.open(streamtype="error", port=port, requestid=request)
    return error, await spdy.open(streamtype="data", port=port, requestid=request)


async def test_ports_by_spdy(cluster: LocalCluster, client: Client) -> None:
    path, port = await listening_pod(client)
    protocols = ["portforward.k8s.io"]
    async with asyncio.timeout(WAIT), spdy_client(cluster, path, (), protocols) as (spdy, protocol):
        assert protocol == "portforward.k8s.io"
        # Two connections at once, and one more later.
        first, second = await forward(spdy, port, 0), await forward(spdy, port, 1)
        for (_, data), text in ((first, b"one"), (second, b"two")):
            spdy.send(data, text)
            spdy.send(data, b"", fin=True)
        for (error, data), text in ((first, b"ONE"), (second, b"TWO")):
            assert await spdy.read(data) == text
            assert await spdy.read(error) == b""
        error, data = await forward(spdy, "1", 2)
        assert b"error forwarding port 1 to pod" in await spdy.read(error)
        assert await spdy.read(data) == b""
        _, data = await forward(spdy, port, 3)
        spdy.send(data, b"three", fin=True)
        assert await spdy.read(data) == b"THREE"


async def test_ports_of_the_oldest_clients_have_no_request_id(cluster: LocalCluster, client: Client) -> None:
    path, port = await listening_pod(client)
    async with asyncio.timeout(WAIT), spdy_client(cluster, path, (), ["portforward.k8s.io"]) as (spdy, _):
        await spdy.open(streamtype="error", port=port)
        data = await spdy.open(streamtype="data", port=port)
        spdy.send(data, b"old", fin=True)
        assert await spdy.read(data) == b"OLD"


async def test_ports_by_spdy_in_a_websocket(cluster: LocalCluster, client: Client) -> None:
    path, port = await listening_pod(client)
    session, socket = await connect(cluster, path, "SPDY/3.1+portforward.k8s.io")
    reader = asyncio.StreamReader()
    sending: list[asyncio.Task[None]] = []

    class Writer:
        def write(self, data: bytes) -> None:
            sending.append(asyncio.create_task(socket.send_bytes(data)))

    async def feed() -> None:
        async for message in socket:
            reader.feed_data(message.data)
        reader.feed_eof()

    async with asyncio.timeout(WAIT), session, socket:
        assert socket.protocol == "SPDY/3.1+portforward.k8s.io"
        feeding = asyncio.create_task(feed())
        spdy = SpdyClient(reader, Writer())  # type: ignore[arg-type]
        _, data = await forward(spdy, port, 0)
        spdy.send(data, b"tunnel", fin=True)
        assert await spdy.read(data) == b"TUNNEL"
    await feeding


async def test_upgrade_to_something_else_is_refused(cluster: LocalCluster, client: Client) -> None:
    await sleeper(client)
    headers = [("Connection", "Upgrade"), ("Upgrade", "h2c")]
    async with asyncio.timeout(WAIT):
        for subresource in ("exec", "portforward"):
            query = command("true", stdout="true") if subresource == "exec" else [("ports", "1")]
            async with raw_request(cluster, "POST", f"{PODS}/p/{subresource}", query, headers) as (reader, _):
                with pytest.raises(RawResponse) as refused:
                    await read_head(reader)
            assert " 400 " in refused.value.head
            assert "client supports h2c" in refused.value.body


# Attach


async def attached(client: Client, **more: Any) -> Key:
    key = await create_pod(client, "p", sh("echo ready; while read x; do echo got $x; done; echo end", **more))
    await wait_for_phase(client, key, "Running")
    assert await first_line(client, key) == "ready"
    return key


async def test_attach_with_input(cluster: LocalCluster, client: Client) -> None:
    key = await attached(client, stdin=True)
    query = [("stdin", "true"), ("stdout", "true"), ("stderr", "true")]
    async with (
        asyncio.timeout(WAIT),
        spdy_client(cluster, f"{PODS}/p/attach", query, ["v4.channel.k8s.io"]) as (spdy, _),
    ):
        names = ("error", "stdin", "stdout", "stderr")
        error, stdin, stdout, _ = [await spdy.open(streamtype=name) for name in names]
        spdy.send(stdin, b"one\n")
        while spdy.received.get(stdout) != b"got one\n":
            await spdy.receive()
        spdy.send(stdin, b"two\n", fin=True)
        assert await spdy.read(stdout) == b"got one\ngot two\nend\n"
        assert b'"status":"Success"' in await spdy.read(error)
    await wait_for_phase(client, key, "Succeeded")


async def test_input_stays_open_when_a_client_leaves_unless_it_is_for_one(
    cluster: LocalCluster, client: Client
) -> None:
    key = await attached(client, stdin=True)
    path = f"{PODS}/p/attach?stdin=true&stdout=true"
    async with asyncio.timeout(WAIT):
        for number in (1, 2):
            session, socket = await connect(cluster, path, "v5.channel.k8s.io")
            async with session, socket:
                await socket.send_bytes(b"\x00%d\n" % number)
                found = [message.data async for message in first_messages(socket, 2)]
            assert found[-1] == b"\x01got %d\n" % number
    pod = await client.get(Pod, key)
    assert pod.status.phase == "Running"


async def first_messages(socket: aiohttp.ClientWebSocketResponse, count: int) -> AsyncIterator[aiohttp.WSMessage]:
    for _ in range(count):
        yield await socket.receive()


async def test_input_for_one_client_ends_with_it(cluster: LocalCluster, client: Client) -> None:
    key = await attached(client, stdin=True, stdinOnce=True)
    session, socket = await connect(cluster, f"{PODS}/p/attach?stdin=true&stdout=true", "v5.channel.k8s.io")
    async with asyncio.timeout(WAIT), session, socket:
        await socket.send_bytes(b"\x00x\n")
        assert [message.data async for message in first_messages(socket, 2)][-1] == b"\x01got x\n"
    await wait_for_phase(client, key, "Succeeded")


async def test_attach_to_a_terminal(cluster: LocalCluster, client: Client) -> None:
    script = "until stty size | grep 43; do sleep 0.01; done; read x; echo got $x"
    key = await create_pod(client, "p", sh(script, stdin=True, tty=True))
    await wait_for_phase(client, key, "Running")
    session, socket = await connect(cluster, f"{PODS}/p/attach?stdin=true&stdout=true&tty=true", "v5.channel.k8s.io")
    async with asyncio.timeout(WAIT), session, socket:
        await socket.send_bytes(b'\x04{"Width":132,"Height":43}')
        await socket.send_bytes(b"\x00hello\n")
        texts = [message.data async for message in socket]
    shown = b"".join(text[1:] for text in texts if text[0] == 1)
    assert b"43 132\r\n" in shown
    assert b"got hello\r\n" in shown
    await wait_for_phase(client, key, "Succeeded")


async def test_attach_to_what_has_no_input_shows_its_output(
    cluster: LocalCluster, client: Client, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    key = await create_pod(client, "p", sh(f"echo early; until [ -e {end} ]; do sleep 0.05; done; echo last"))
    await wait_for_phase(client, key, "Running")
    session, socket = await connect(cluster, f"{PODS}/p/attach?stdin=true&stdout=true", "v5.channel.k8s.io")
    async with asyncio.timeout(WAIT), session, socket:
        await socket.send_bytes(b"\x00ignored\n")
        end.touch()
        texts = [message.data async for message in socket]
    assert b"\x01last\n" in texts
