"""`pods/log`, `pods/exec`, `pods/attach` and `pods/portforward`: between a client and the node that runs the pod.

SPDY is not spoken: clients since 1.31 use WebSockets. `kubectl port-forward` tunnels SPDY through one, and is refused.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import aclosing, suppress
from datetime import timedelta
from typing import Annotated, Any

import msgspec
from aiohttp import web

from gangline.api.meta import JSON
from gangline.apiserver import refusals
from gangline.apiserver.http.handler import Asked, Subresource
from gangline.apiserver.http.routes import Verb
from gangline.apiserver.registry.registry import Registry, decoded
from gangline.apiserver.streaming.channels import (
    CLOSE,
    RESIZE,
    STDERR,
    STDIN,
    STDOUT,
    SUCCESS,
    V4,
    V5,
    Channels,
    check_upgrade,
    exited,
)
from gangline.apiserver.streaming.log_options import container_of, flag, log_options, run_of
from gangline.apiserver.streaming.port_forward import Forwarding
from gangline.base.clock import Clock
from gangline.base.tasks import first_of
from gangline.kube.podstreams import Command, NoLogs, NotRunnable, NotRunning, Place, PodStreams

Nodes = Mapping[str, PodStreams]
"""By name. May be filled after the server has started: a node needs a server to begin with."""

PROTOCOLS = (V5, V4)
LOOK = timedelta(seconds=1)
"""How often a silent log is checked for a reader that has left."""


class Size(msgspec.Struct, frozen=True, rename="pascal"):
    """Of a terminal."""

    width: Annotated[int, msgspec.Meta(ge=0, le=65535)]
    height: Annotated[int, msgspec.Meta(ge=0, le=65535)]


def streams(registry: Registry, nodes: Nodes, clock: Clock) -> dict[tuple[str, str, str], Subresource]:
    """By group, plural and name."""
    served = Streams(registry, nodes, clock)
    return {
        ("", "pods", "log"): served.log,
        ("", "pods", "exec"): served.exec,
        ("", "pods", "attach"): served.attach,
        ("", "pods", "portforward"): served.forward,
    }


class Streams:
    """The handlers. Everything that can be refused is refused before the first byte of a stream."""

    def __init__(self, registry: Registry, nodes: Nodes, clock: Clock) -> None:
        self._registry, self._nodes, self._clock = registry, nodes, clock

    # Logs

    async def log(self, asked: Asked) -> web.StreamResponse:
        """The log of a container as plain text."""
        if asked.verb is not Verb.GET:
            raise refusals.method_not_allowed()
        options = log_options(asked.query, asked.target.name, self._clock.now())
        pod = self._pod(asked)
        place = _place(asked, pod, container_of(pod, asked.query.get("container", "")))
        if not pod["spec"].get("nodeName"):
            return web.Response(status=204)
        node = self._node(asked, pod)
        run = run_of(pod, place.container, previous=options.previous)
        try:
            found = node.logs(place, run, options)
        except NoLogs as error:
            raise refusals.bad_request(str(error)) from error
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        # At once: a container may say nothing for a long time.
        await response.prepare(asked.http)

        async def copy() -> None:
            # A reader that leaves in the middle is no error.
            with suppress(ConnectionResetError):
                async with aclosing(found) as parts:
                    async for part in parts:
                        await response.write(part)

        await first_of(copy(), self._left(asked.http))
        return response

    async def _left(self, http: web.BaseRequest) -> None:
        """Return when the client has gone."""
        while http.transport is not None and not http.transport.is_closing():
            await self._clock.sleep(LOOK)

    # Commands

    async def exec(self, asked: Asked) -> web.StreamResponse:
        """A command in a container: its streams, then how it ended."""
        _, place, node = self._running(asked)
        command = asked.http.query.getall("command", [])
        if not command:
            raise refusals.bad_request("you must specify a command")
        tty, stdin = flag(asked.query, "tty"), flag(asked.query, "stdin")
        wanted = _outputs(asked, tty=tty)
        if not wanted and not stdin:
            raise refusals.bad_request("you must specify at least 1 of stdin, stdout, stderr")
        check_upgrade(asked.http, PROTOCOLS)
        try:
            async with node.executing(place, command, stdin=stdin, tty=tty) as running:
                channels = await _accept(asked, wanted)
                await _converse(channels, _listen(channels, running), _speak(channels, running, wanted))
        except NotRunning as error:
            raise refusals.internal(f"unable to upgrade connection: {error}") from error
        except NotRunnable as error:
            channels = await _accept(asked, wanted)
            await _converse(channels, _explain(channels, error))
        return channels.response

    async def attach(self, asked: Asked) -> web.StreamResponse:
        """What a container prints, from now until it ends."""
        pod, place, node = self._running(asked)
        if flag(asked.query, "stdin"):
            raise refusals.bad_request(
                f"container {place.container} runs as a process without standard input; attach without it, or use exec"
            )
        tty = flag(asked.query, "tty")
        wanted = _outputs(asked, tty=tty)
        run = run_of(pod, place.container, previous=False)
        channels = await _accept(asked, wanted)

        async def copy() -> None:
            async with aclosing(node.attached(place, run)) as parts:
                async for stream, text in parts:
                    channel = STDERR if stream == b"stderr" and not tty else STDOUT
                    if channel in wanted:
                        await channels.send(channel, text)
            await channels.send_status(SUCCESS)

        await _converse(channels, _ignore(channels), copy())
        return channels.response

    # Ports

    async def forward(self, asked: Asked) -> web.StreamResponse:
        """Connections to ports of a pod."""
        pod = self._pod(asked)
        node, place = self._host(asked, pod), _place(asked, pod, "")
        check_upgrade(asked.http, (V4,))
        ports = _ports(asked)
        channels = await Channels.accept(asked.http, (V4,))
        forwarding = Forwarding(channels, place, node)
        await _converse(channels, forwarding.run(ports))
        return channels.response

    # Pods and nodes

    def _pod(self, asked: Asked) -> JSON:
        if asked.verb not in (Verb.GET, Verb.CREATE):
            raise refusals.method_not_allowed()
        return decoded(self._registry.get(asked.entry, asked.target.key))

    def _running(self, asked: Asked) -> tuple[JSON, Place, PodStreams]:
        pod = self._pod(asked)
        place = _place(asked, pod, container_of(pod, asked.query.get("container", "")))
        return pod, place, self._host(asked, pod)

    def _host(self, asked: Asked, pod: JSON) -> PodStreams:
        """The node for a connection to a pod."""
        if not pod["spec"].get("nodeName"):
            raise refusals.bad_request(f"pod {asked.target.name} does not have a host assigned")
        return self._node(asked, pod)

    def _node(self, asked: Asked, pod: JSON) -> PodStreams:
        name = pod["spec"]["nodeName"]
        node = self._nodes.get(name)
        if node is None:
            # Of a node that it cannot reach the real server says so, too, naming the wrong kind.
            raise refusals.not_found(asked.entry, name)
        return node


def _place(asked: Asked, pod: JSON, container: str) -> Place:
    return Place(asked.target.key, pod["metadata"]["uid"], container)


def _outputs(asked: Asked, *, tty: bool) -> list[int]:
    """The channels on which the client wants output. A terminal has one."""
    wanted = [STDOUT] if flag(asked.query, "stdout") else []
    return [*wanted, STDERR] if flag(asked.query, "stderr") and not tty else wanted


def _ports(asked: Asked) -> list[int]:
    words = [word for text in asked.http.query.getall("ports", []) for word in text.split(",")]
    if not words:
        raise refusals.bad_request('query parameter "ports" cannot be empty')
    for word in words:
        if not (word.isascii() and word.isdigit() and 0 < int(word) < 2**16):
            raise refusals.bad_request(f'unable to parse "{word}" as a port')
    return [int(word) for word in words]


async def _accept(asked: Asked, outputs: list[int]) -> Channels:
    channels = await Channels.accept(asked.http, PROTOCOLS)
    # Nothing, to say that the connection stands.
    with suppress(ConnectionResetError):
        await channels.send(outputs[0] if outputs else STDOUT, b"")
    return channels


async def _converse(channels: Channels, *work: Coroutine[Any, Any, object]) -> None:
    """Until the first of it is done. A client that leaves in the middle is no error."""
    try:
        await first_of(*work)
    except* ConnectionResetError:
        pass
    finally:
        await channels.close()


async def _listen(channels: Channels, running: Command) -> None:
    """What the client says, until it leaves."""
    async for channel, data in channels:
        if channel == STDIN:
            await running.write(data)
        elif channel == CLOSE and data == bytes((STDIN,)):
            running.close_input()
        elif channel == RESIZE:
            with suppress(msgspec.DecodeError):
                size = msgspec.json.decode(data, type=Size)
                running.resize(size.width, size.height)


async def _ignore(channels: Channels) -> None:
    async for _ in channels:
        pass


async def _speak(channels: Channels, running: Command, wanted: list[int]) -> None:
    """All output, then the exit code."""

    async def copy(output: int) -> None:
        while data := await running.read(output):
            if output in wanted:
                await channels.send(output, data)

    async with asyncio.TaskGroup() as group:
        for output in (STDOUT, STDERR):
            group.create_task(copy(output))
        code = await running.ended()
    await channels.send_status(exited(code))


async def _explain(channels: Channels, error: NotRunnable) -> None:
    await channels.send(STDERR, f"{error}\n".encode())
    await channels.send_status(exited(error.code))
