"""Streams of pods, through a real kube-apiserver and through ours, to a kubelet that runs commands on this machine.

The embedded server may have a node beside it; tests/e2e/test_streams.py asks it the same.
"""

import asyncio
from contextlib import aclosing
from datetime import timedelta

import pytest

from gangline.api.meta import Key
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.errors import (
    BadRequest,
    Forbidden,
    KubeError,
    NotFound,
    ServerError,
    StreamBroken,
)
from gangline.kube.paths import object_path
from gangline.kube.pods import PODS, PodSubresources
from gangline.kube.streams import CHANNEL_V4, Channel, ExecResult, ExecSession
from gangline.kube.transport.api import Request
from gangline.kube.transport.http import HttpTransport
from support.builders.objects import create_node, create_running_pod, pod_body, unique_name
from support.servers.http import byte_server

OTHER_UID = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def disabled_plugins() -> tuple[str, ...]:
    """Pods of new namespaces need not wait for their service account, as on the real server."""
    return ("ServiceAccount",)


@pytest.fixture
def pods(client: Client) -> PodSubresources:
    return PodSubresources(client)


@pytest.fixture
async def placed(client: Client, namespace: str, kubelet_port: int) -> Key:
    """A pod on a node that has a kubelet."""
    name = unique_name("node")
    await create_node(client, name, kubelet_port)
    made = await create_running_pod(client, pod_body("one", namespace, nodeName=name))
    return made.metadata.key


# Placing


# Logs


async def test_log_has_its_lines_and_options(pods: PodSubresources, placed: Key) -> None:
    lines = [line async for line in pods.logs(placed, tail=7, timestamps=True, since=timedelta(minutes=1))]
    assert lines == [b"main asked for sinceSeconds=60&tailLines=7&timestamps=true", b"", b"last line"]


async def test_followed_log_goes_on_until_its_end(pods: PodSubresources, placed: Key) -> None:
    lines = [line async for line in pods.logs(placed, container="main", follow=True)]
    assert lines == [b"main asked for follow=true", b"", b"last line", b"followed 0", b"followed 1"]


async def test_followed_log_can_be_left(pods: PodSubresources, placed: Key) -> None:
    async with aclosing(pods.logs(placed, follow=True)) as lines:
        assert await anext(lines) == b"main asked for follow=true"


async def test_log_of_what_is_not_there_is_refused(pods: PodSubresources, placed: Key) -> None:
    with pytest.raises(NotFound):
        await anext(pods.logs(Key(placed.namespace, "nothing")))
    with pytest.raises(BadRequest, match="container nothing is not valid"):
        await anext(pods.logs(placed, container="nothing"))


# Commands


async def test_command_runs_and_its_output_and_exit_code_come_back(pods: PodSubresources, placed: Key) -> None:
    assert await pods.run(placed, ["echo", "hello"]) == ExecResult(0, b"hello\n")
    script = "echo out; echo err >&2; exit 3"
    assert await pods.run(placed, ["sh", "-c", script]) == ExecResult(3, b"out\n", b"err\n")


async def test_much_output_arrives_whole(pods: PodSubresources, placed: Key) -> None:
    done = await pods.run(placed, ["sh", "-c", "seq 1 200000; seq 1 200000 >&2"])
    expected = b"".join(b"%d\n" % number for number in range(1, 200001))
    assert done == ExecResult(0, expected, expected)


async def test_input_is_passed_on_to_its_end(pods: PodSubresources, placed: Key) -> None:
    text = b"some line\n" * 100_000
    assert await pods.run(placed, ["cat"], stdin=text) == ExecResult(0, text)
    assert await pods.run(placed, ["cat"], stdin=b"") == ExecResult(0)
    assert await pods.run(placed, ["head", "-n1"], stdin=b"some line\n" * 2) == ExecResult(0, b"some line\n")


async def test_conversation_goes_back_and_forth(pods: PodSubresources, placed: Key) -> None:
    script = 'while read line; do echo "got $line"; done; echo bye'
    async with pods.exec(placed, ["sh", "-c", script], stdin=True, stderr=False) as session:
        for word in (b"one", b"two"):
            await session.write(word + b"\n")
            assert await anext(session) == (Channel.STDOUT, b"got " + word + b"\n")
        await session.close_stdin()
        assert [piece async for piece in session] == [(Channel.STDOUT, b"bye\n")]
        assert session.exit_code == 0


async def test_terminal_knows_its_size(pods: PodSubresources, placed: Key) -> None:
    async with pods.exec(placed, ["sh", "-c", "echo $COLUMNS $LINES"], tty=True, stdin=True) as session:
        await session.resize(132, 43)
        said = b"".join([data async for _, data in session])
    assert said == b"132 43\n"


async def test_command_that_does_not_exist_is_an_error_of_the_server(pods: PodSubresources, placed: Key) -> None:
    with pytest.raises(ServerError, match="no-such-command"):
        await pods.run(placed, ["no-such-command"])


async def test_older_protocol_does_all_but_close_the_input(client: Client, placed: Key) -> None:
    words = ("sh", "-c", "read line; echo got $line; echo err >&2; exit 3")
    flags = (("stdin", "true"), ("stdout", "true"), ("stderr", "true"))
    query = (*flags, *(("command", word) for word in words))
    async with client.requests.frames(
        Request("GET", object_path(PODS, placed, "exec"), query), (CHANNEL_V4,)
    ) as frames:
        session = ExecSession(frames)
        await session.write(b"one\n")
        said = {channel: data async for channel, data in session}
        with pytest.raises(KubeError, match="cannot be closed"):
            await session.close_stdin()
    assert said == {Channel.STDOUT: b"got one\n", Channel.STDERR: b"err\n"}
    assert session.exit_code == 3


async def test_session_can_be_left_while_the_command_runs(pods: PodSubresources, placed: Key) -> None:
    async with pods.exec(placed, ["sh", "-c", "echo ready; read forever"], stdin=True) as session:
        assert await anext(session) == (Channel.STDOUT, b"ready\n")


async def test_command_is_refused_before_it_runs(pods: PodSubresources, placed: Key, nobody: Connection) -> None:
    with pytest.raises(NotFound):
        await pods.run(Key(placed.namespace, "nothing"), ["true"])
    with pytest.raises(BadRequest, match="container nothing is not valid"):
        await pods.run(placed, ["true"], container="nothing")
    async with HttpTransport(nobody) as transport:
        with pytest.raises(Forbidden, match="pods/exec"):
            await PodSubresources(Client(transport)).run(placed, ["true"])


# Ports


async def test_port_is_forwarded_both_ways(pods: PodSubresources, placed: Key) -> None:
    async def upper(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"welcome\n")
        while line := await reader.readline():
            writer.write(line.upper())
            if line == b"bye\n":
                return

    async with byte_server(upper) as url:
        port = int(url.rpartition(":")[2])
        async with pods.port_forward(placed, port) as stream:
            assert await stream.read() == b"welcome\n"
            await stream.write(b"hello\n")
            assert await stream.read() == b"HELLO\n"
            long = b"x" * 60_000 + b"\n"
            await stream.write(long)
            received = b""
            while len(received) < len(long):
                received += await stream.read()
            assert received == long.upper()
            await stream.write(b"bye\n")
            assert await stream.read() == b"BYE\n"
            assert await stream.read() == b""


async def test_port_where_nobody_listens_breaks_the_stream(pods: PodSubresources, placed: Key) -> None:
    async with pods.port_forward(placed, 1) as stream:
        with pytest.raises(StreamBroken, match=r"port 1: .*refused"):
            await stream.read()


async def test_forwarding_is_refused_without_a_pod(pods: PodSubresources, placed: Key) -> None:
    with pytest.raises(NotFound):
        async with pods.port_forward(Key(placed.namespace, "nothing"), 80):
            pass
