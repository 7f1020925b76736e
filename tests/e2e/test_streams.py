"""Logs of pods and commands in them, on the embedded plane: through our client, and through the real kubectl."""

import asyncio
import os
import sys
import termios
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from gangline.api.core import Pod
from gangline.api.meta import Key
from gangline.kube.client import Client
from gangline.kube.errors import ApiError, BadRequest, NotFound, StreamBroken
from gangline.kube.paths import object_path
from gangline.kube.pods import PODS, PodSubresources
from gangline.kube.streams import CHANNEL_V4, Channel, ExecResult, ExecSession
from gangline.kube.transport.api import Request
from gangline.local.cluster import LocalCluster
from support.cluster.streams import (
    WAIT,
    Kubectl,
    all_of,
    create_pod,
    find_kubectl,
    newest,
    sh,
    sleeper,
    wait_for_phase,
)


@pytest.fixture
def pods(client: Client) -> PodSubresources:
    return PodSubresources(client)


async def text(pods: PodSubresources, key: Key, **options: object) -> list[str]:
    found = pods.logs(key, **options)  # type: ignore[arg-type]
    async with asyncio.timeout(WAIT):
        return [line.decode() async for line in found]


# Logs


async def test_log_has_its_options(client: Client, pods: PodSubresources) -> None:
    key = await create_pod(client, "p", sh("echo one; echo two >&2; echo three"))
    await wait_for_phase(client, key, "Succeeded")
    assert sorted(await text(pods, key)) == ["one", "three", "two"]
    assert len(await text(pods, key, tail=2)) == 2
    assert await text(pods, key, tail=0) == []
    assert "".join(await text(pods, key, limit_bytes=2)) in ("on", "tw")
    stamps = [line.partition(" ")[0] for line in await text(pods, key, timestamps=True)]
    now = datetime.now(UTC)
    assert all(now - timedelta(minutes=1) < datetime.fromisoformat(stamp) <= now for stamp in stamps)
    assert len(await text(pods, key, since=timedelta(minutes=5))) == 3
    assert await text(pods, key, since=now + timedelta(minutes=5)) == []


async def test_followed_log_begins_at_once_and_goes_on_until_the_end(
    client: Client, pods: PodSubresources, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    key = await create_pod(client, "p", sh(f"echo first; cat {gate}; echo last"))
    await wait_for_phase(client, key, "Running")
    lines: list[str] = []
    async with asyncio.timeout(WAIT):
        async for line in pods.logs(key, follow=True):
            lines.append(line.decode())
            if line == b"first":
                await asyncio.to_thread(gate.write_text, "middle\n")
    assert lines == ["first", "middle", "last"]


async def test_log_of_the_run_before(client: Client, pods: PodSubresources, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    again = f"if [ -e {mark} ]; then echo second; exec sleep 1000; fi; touch {mark}; echo first; exit 1"
    key = await create_pod(client, "p", sh(again), restart="Always")
    await wait_for_phase(client, key, "Running", restarts=1)
    assert await text(pods, key, previous=True) == ["first"]
    async with aclosing(pods.logs(key, follow=True)) as lines, asyncio.timeout(WAIT):
        assert await anext(lines) == b"second"


async def test_container_must_be_named_when_there_are_two(client: Client, pods: PodSubresources) -> None:
    key = await create_pod(client, "p", sh("echo from a", "a"), sh("echo from b", "b"))
    await wait_for_phase(client, key, "Succeeded")
    assert await text(pods, key, container="b") == ["from b"]
    with pytest.raises(BadRequest, match=r"a container name must be specified for pod p, choose one of: \[a b\]"):
        await text(pods, key)
    with pytest.raises(BadRequest, match="container c is not valid for pod p"):
        await text(pods, key, container="c")
    with pytest.raises(BadRequest, match='previous terminated container "a" in pod "p" not found'):
        await text(pods, key, container="a", previous=True)


async def test_log_of_what_has_not_started_is_refused(client: Client, pods: PodSubresources) -> None:
    needs = {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "missing", "key": "x"}}}
    key = await create_pod(client, "p", sh("true", env=[needs]))
    waiting = 'container "main" in pod "p" is waiting to start: CreateContainerConfigError'

    async def refused() -> str:
        try:
            await text(pods, key)
        except BadRequest as error:
            return str(error)
        return ""

    async with asyncio.timeout(WAIT), aclosing(newest(client)) as changes:
        async for _ in changes:
            if waiting in await refused():
                break
    with pytest.raises(NotFound, match='pods "q" not found'):
        await text(pods, Key("default", "q"))


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("tailLines=-1", 422, "tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ("limitBytes=0", 422, "limitBytes: Invalid value: 0: must be greater than 0"),
        ("sinceSeconds=0", 422, "sinceSeconds: Invalid value: 0: must be greater than 0"),
        (
            "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
            422,
            "[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
        ("tailLines=x", 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("sinceTime=abc", 400, 'cannot parse "abc" as "2006"'),
        ("stream=Stderr", 422, "stream: Forbidden: may not be specified"),
    ],
)
async def test_bad_options_are_refused_as_the_real_server_does(
    client: Client, query: str, code: int, message: str
) -> None:
    pairs = tuple((name, value) for name, _, value in (each.partition("=") for each in query.split("&")))
    with pytest.raises(ApiError) as refused:
        await client.requests.call(Request("GET", object_path(PODS, Key("default", "p"), "log"), pairs))
    assert refused.value.status.code == code
    assert message in str(refused.value)


async def test_reader_that_leaves_a_silent_log_leaves_nothing_behind(client: Client, pods: PodSubresources) -> None:
    # Other tests of this process may have servers whose logs are open.
    others = open_logs()
    key = await sleeper(client, before="echo hello;")
    async with aclosing(pods.logs(key, follow=True)) as lines, asyncio.timeout(WAIT):
        assert await anext(lines) == b"hello"
        assert open_logs() - others
    async with asyncio.timeout(WAIT):
        while open_logs() - others:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


def open_logs() -> set[str]:
    """The logs that this process has open."""
    return {file.path for file in psutil.Process().open_files() if file.path.endswith(".log")}


# Commands


async def run(pods: PodSubresources, key: Key, *command: str, stdin: bytes | None = None) -> ExecResult:
    async with asyncio.timeout(WAIT):
        return await pods.run(key, command, stdin=stdin)


async def test_command_gives_its_streams_and_its_exit_code(client: Client, pods: PodSubresources) -> None:
    key = await sleeper(client)
    done = await run(pods, key, "sh", "-c", "echo out; echo err >&2; exit 3")
    assert done == ExecResult(3, b"out\n", b"err\n")
    assert await run(pods, key, "true") == ExecResult(0)
    assert (await run(pods, key, "sh", "-c", "kill -9 $$")).exit_code == 137


async def test_command_runs_where_the_container_does(client: Client, pods: PodSubresources, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("found")
    container = sh(
        "exec sleep 1000",
        env=[{"name": "COLOUR", "value": "blue"}],
        workingDir=str(tmp_path),
        volumeMounts=[{"name": "data", "mountPath": "/somewhere/else"}],
    )
    body = {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "data", "hostPath": {"path": str(tmp_path)}}],
        },
    }
    await client.create(Pod, body)
    key = Key("default", "p")
    await wait_for_phase(client, key, "Running")
    done = await run(pods, key, "sh", "-c", "echo $COLOUR; pwd; cat /somewhere/else/data.txt")
    assert done.stdout.decode().split() == ["blue", str(tmp_path), "found"]


async def test_input_reaches_the_command_to_its_end(client: Client, pods: PodSubresources) -> None:
    key = await sleeper(client)
    much = b"0123456789abcdef" * 100_000
    assert await run(pods, key, "cat", stdin=much) == ExecResult(0, much)
    assert await run(pods, key, "wc", "-c", stdin=b"") == ExecResult(0, b"0\n")
    assert (await run(pods, key, "true", stdin=b"not read")).exit_code == 0


async def test_older_protocol_does_all_but_close_the_input(client: Client) -> None:
    key = await sleeper(client)
    query = (("command", "sh"), ("command", "-c"), ("command", "read x; echo got $x; exit 4"))
    flags = (("stdin", "true"), ("stdout", "true"), ("stderr", "true"))
    request = Request("GET", object_path(PODS, key, "exec"), (*query, *flags))
    async with client.requests.frames(request, (CHANNEL_V4,)) as frames, asyncio.timeout(WAIT):
        session = ExecSession(frames)
        await session.write(b"it\n")
        said = [data async for _, data in session]
    assert (b"".join(said), session.exit_code) == (b"got it\n", 4)


async def test_terminal_is_one_and_has_a_size(client: Client, pods: PodSubresources) -> None:
    key = await sleeper(client)
    script = "read x; stty size; test -t 0 && test -t 2 && echo terminal >&2; exit 5"
    async with (
        asyncio.timeout(WAIT),
        pods.exec(key, ["sh", "-c", script], stdin=True, tty=True) as session,
    ):
        await session.resize(132, 43)
        await session.write(b"\n")
        said = [(channel, data) async for channel, data in session]
    assert {channel for channel, _ in said} == {Channel.STDOUT}
    assert b"".join(data for _, data in said).split() == [b"43", b"132", b"terminal"]
    assert session.exit_code == 5


async def test_command_that_cannot_be_run_says_why(client: Client, pods: PodSubresources, tmp_path: Path) -> None:
    key = await sleeper(client)
    done = await run(pods, key, "no-such-program")
    assert done == ExecResult(127, b"", b'exec: "no-such-program": executable file not found in $PATH\n')
    plain = tmp_path / "plain"
    plain.write_text("not a program")
    done = await run(pods, key, str(plain))
    assert (done.exit_code, done.stderr.decode()) == (126, f'exec: "{plain}": Permission denied\n')


async def test_command_in_a_pod_that_is_over_is_refused(client: Client, pods: PodSubresources) -> None:
    key = await create_pod(client, "p", sh("true"))
    await wait_for_phase(client, key, "Succeeded")
    with pytest.raises(ApiError, match=r'unable to upgrade connection: container not found \("main"\)'):
        await run(pods, key, "true")
    with pytest.raises(NotFound, match='pods "q" not found'):
        await run(pods, Key("default", "q"), "true")


async def test_command_that_leaves_something_in_the_background_ends(client: Client, pods: PodSubresources) -> None:
    key = await sleeper(client)
    done = await run(pods, key, "sh", "-c", "sleep 1000 & echo $!")
    child = psutil.Process(int(done.stdout))
    assert done.exit_code == 0
    assert child.is_running()
    await client.delete(Pod, key)
    assert await asyncio.to_thread(child.wait, WAIT) is None


async def test_command_is_killed_when_the_client_leaves(client: Client, pods: PodSubresources) -> None:
    key = await sleeper(client)
    async with asyncio.timeout(WAIT), pods.exec(key, ["sh", "-c", "echo $$; exec sleep 1000"]) as session:
        _, data = await anext(session)
        process = psutil.Process(int(data))
    await asyncio.to_thread(psutil.wait_procs, [process], WAIT)
    assert not process.is_running()


async def test_request_that_is_no_websocket_is_refused(client: Client) -> None:
    key = await sleeper(client)
    query = (("command", "true"), ("stdout", "true"))
    with pytest.raises(BadRequest, match="Upgrade request required"):
        await client.requests.call(Request("POST", object_path(PODS, key, "exec"), query))


# Ports


async def test_port_is_forwarded_both_ways(client: Client, pods: PodSubresources, tmp_path: Path) -> None:
    script = (
        "import pathlib, socket\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "print(server.getsockname()[1], flush=True)\n"
        "taken, _ = server.accept()\n"
        "taken.sendall(taken.recv(100).upper())\n"
        "taken.close()\n"
    )
    container = {"name": "main", "image": "none", "command": [sys.executable, "-c", script]}
    key = await create_pod(client, "p", container)
    await wait_for_phase(client, key, "Running")
    async with aclosing(pods.logs(key, follow=True)) as lines, asyncio.timeout(WAIT):
        port = int(await anext(lines))
    async with asyncio.timeout(WAIT), pods.port_forward(key, port) as forwarded:
        await forwarded.write(b"hello")
        assert await forwarded.read() == b"HELLO"
        assert await forwarded.read() == b""


async def test_port_where_nobody_listens_breaks_the_stream(client: Client, pods: PodSubresources) -> None:
    key = await sleeper(client)
    async with asyncio.timeout(WAIT), pods.port_forward(key, 1) as forwarded:
        with pytest.raises(StreamBroken, match="error forwarding port 1"):
            await forwarded.read()


# kubectl


@pytest.fixture
def kubectl(cluster: LocalCluster, tmp_path: Path) -> Kubectl:
    return Kubectl(find_kubectl(), cluster, tmp_path)


async def test_kubectl_logs(client: Client, kubectl: Kubectl) -> None:
    key = await create_pod(client, "p", sh("echo one; echo two", "a"), sh("echo b", "b"))
    await wait_for_phase(client, key, "Succeeded")
    assert await kubectl("logs", "p", "-c", "a") == (0, "one\ntwo\n", "")
    assert await kubectl("logs", "p", "-c", "a", "--tail=1") == (0, "two\n", "")
    code, out, _ = await kubectl("logs", "p", "-c", "b", "--timestamps")
    stamp, _, rest = out.partition(" ")
    assert (code, rest) == (0, "b\n")
    assert datetime.fromisoformat(stamp) <= datetime.now(UTC)
    assert await kubectl("logs", "p", "-c", "a", "--previous") == (
        1,
        "",
        'Error from server (BadRequest): previous terminated container "a" in pod "p" not found\n',
    )
    code, out, _ = await kubectl("logs", "p", "--all-containers", "--prefix")
    assert sorted(out.splitlines()) == ["[pod/p/a] one", "[pod/p/a] two", "[pod/p/b] b"]


async def test_kubectl_follows_until_the_end(client: Client, kubectl: Kubectl, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    key = await create_pod(client, "p", sh(f"echo first; cat {gate}; echo last"))
    await wait_for_phase(client, key, "Running")
    process = await kubectl.started("logs", "-f", "p")
    assert process.stdout is not None
    async with asyncio.timeout(WAIT):
        assert await process.stdout.readline() == b"first\n"
        await asyncio.to_thread(gate.write_text, "middle\n")
        out, err = await process.communicate()
    assert (process.returncode, out, err) == (0, b"middle\nlast\n", b"")


async def test_kubectl_exec(client: Client, kubectl: Kubectl) -> None:
    await sleeper(client)
    code, out, err = await kubectl("exec", "p", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (code, out, err) == (3, "out\n", "err\ncommand terminated with exit code 3\n")
    assert await kubectl("exec", "-i", "p", "--", "cat", stdin=b"in and out") == (0, "in and out", "")
    code, out, err = await kubectl("exec", "p", "--", "no-such-program")
    assert (code, out) == (127, "")
    assert err.splitlines() == [
        'exec: "no-such-program": executable file not found in $PATH',
        "command terminated with exit code 127",
    ]


async def test_kubectl_exec_in_a_pod_that_is_over(client: Client, kubectl: Kubectl) -> None:
    key = await create_pod(client, "p", sh("true"))
    await wait_for_phase(client, key, "Succeeded")
    code, out, err = await kubectl("exec", "p", "--", "true")
    assert (code, out) == (1, "")
    assert "cannot exec into a container in a completed pod; current phase is Succeeded" in err


async def test_kubectl_attaches_to_what_is_printed_from_now_on(
    client: Client, kubectl: Kubectl, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    script = f"echo early; until [ -e {end} ]; do echo tick; sleep 0.05; done; echo last >&2; exit 6"
    key = await create_pod(client, "p", sh(script))
    await wait_for_phase(client, key, "Running")
    async with aclosing(PodSubresources(client).logs(key, follow=True)) as lines, asyncio.timeout(WAIT):
        assert await anext(lines) == b"early"
    process = await kubectl.started("attach", "p")
    assert process.stdout is not None
    async with asyncio.timeout(WAIT):
        assert await process.stdout.readline() == b"tick\n"
        end.touch()
        out, err = await process.communicate()
    assert set(out.splitlines()) <= {b"tick"}
    assert err.splitlines()[-1] == b"last"
    assert process.returncode == 0


async def test_kubectl_exec_with_a_terminal(client: Client, kubectl: Kubectl) -> None:
    await sleeper(client)
    ours, theirs = os.openpty()
    termios.tcsetwinsize(ours, (33, 111))
    script = "until stty size | grep 33; do :; done; exit 7"
    process = await kubectl.started("exec", "-it", "p", "--", "sh", "-c", script, terminal=theirs)
    os.close(theirs)
    async with asyncio.timeout(WAIT):
        shown = await asyncio.to_thread(all_of, ours)
        await process.wait()
    assert (process.returncode, shown.split()[:2]) == (7, [b"33", b"111"])
