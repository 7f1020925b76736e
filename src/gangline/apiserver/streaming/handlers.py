"""Handlers of `pods/log`, `pods/exec`, `pods/attach` and `pods/portforward`.

They connect a client with the node that runs the pod, by WebSocket or by SPDY, which older clients speak. Newer ones
carry the SPDY of a port-forward in a WebSocket.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import aclosing, suppress
from datetime import timedelta
from typing import Annotated, Any

import msgspec
from aiohttp import web

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.http.handler import ApiRequest, SubresourceHandler
from gangline.apiserver.http.request_info import RequestVerb, query_flag
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.streaming.byte_streams import WebSocketStream
from gangline.apiserver.streaming.channels import (
    CLOSE,
    RESIZE,
    SPDY_PROTOCOLS,
    STDERR,
    STDIN,
    STDOUT,
    SUCCESS_STATUS,
    V4,
    WEBSOCKET_PROTOCOLS,
    Channels,
    SpdyChannels,
    WebSocketChannels,
    check_upgrade,
    exit_status,
)
from gangline.apiserver.streaming.log_options import container_name, container_run_id, has_input, log_options
from gangline.apiserver.streaming.port_forward import (
    SPDY_PROTOCOL,
    TUNNEL_PROTOCOL,
    PortForwardSession,
    SpdyPortForward,
    is_port,
)
from gangline.apiserver.streaming.spdy_connection import (
    SpdyConnection,
    accept_spdy,
    is_spdy_request,
    spdy_protocol,
)
from gangline.base.clock import Clock
from gangline.base.tasks import run_until_first
from gangline.kube.podstreams import (
    CommandFailed,
    CommandInput,
    ContainerNotRunning,
    ContainerRef,
    ExecFailed,
    NoLogs,
    PodStreams,
    RunningCommand,
)

StreamsByNode = Mapping[str, PodStreams]
"""The streams of nodes by node name. Nodes may be added after the server has started, because they need a server to
start."""

DISCONNECT_POLL_INTERVAL = timedelta(seconds=1)
"""How often a log without output is checked for a disconnected client."""


class TerminalSize(msgspec.Struct, frozen=True, rename="pascal"):
    """A resize message."""

    width: Annotated[int, msgspec.Meta(ge=0, le=65535)]
    height: Annotated[int, msgspec.Meta(ge=0, le=65535)]


def stream_handlers(
    registry: Registry, nodes: StreamsByNode, clock: Clock
) -> dict[tuple[str, str, str], SubresourceHandler]:
    """The handlers by group, plural and name of the subresource."""
    handlers = PodStreamHandlers(registry, nodes, clock)
    return {
        ("", "pods", "log"): handlers.log,
        ("", "pods", "exec"): handlers.exec,
        ("", "pods", "attach"): handlers.attach,
        ("", "pods", "portforward"): handlers.port_forward,
    }


class PodStreamHandlers:
    """The handlers. Every error that can be an HTTP response is raised before the stream begins."""

    def __init__(self, registry: Registry, nodes: StreamsByNode, clock: Clock) -> None:
        self._registry, self._nodes, self._clock = registry, nodes, clock

    # Logs

    async def log(self, request: ApiRequest) -> web.StreamResponse:
        """The log of a container as plain text."""
        if request.verb is not RequestVerb.GET:
            raise apierrors.method_not_allowed()
        options = log_options(request.query, request.info.name, self._clock.now())
        pod = self._pod(request)
        container_ref = _container_ref(request, pod, container_name(pod, request.query.get("container", "")))
        if not pod["spec"].get("nodeName"):
            return web.Response(status=204)
        node = self._node(request, pod)
        run = container_run_id(pod, container_ref.container, previous=options.previous) if node.identifies_runs else ""
        try:
            log = node.logs(container_ref, run, options)
        except NoLogs as error:
            raise apierrors.bad_request(str(error)) from error
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        # The response starts now, because a container may print nothing for a long time.
        await response.prepare(request.http)

        async def copy() -> None:
            # A client may disconnect at any time.
            with suppress(ConnectionError):
                async with aclosing(log) as parts:
                    async for part in parts:
                        await response.write(part)

        await run_until_first(copy(), self._wait_for_disconnect(request.http))
        return response

    async def _wait_for_disconnect(self, http: web.BaseRequest) -> None:
        """Return when the client has disconnected."""
        while http.transport is not None and not http.transport.is_closing():
            await self._clock.sleep(DISCONNECT_POLL_INTERVAL)

    # Commands

    async def exec(self, request: ApiRequest) -> web.StreamResponse:
        """Run a command in a container: copy its streams, then send its exit status."""
        _, container_ref, node = self._running_container(request)
        command = request.http.query.getall("command", [])
        if not command:
            raise apierrors.bad_request("you must specify a command")
        tty, stdin = query_flag(request.query, "tty"), query_flag(request.query, "stdin")
        outputs = _output_channels(request, tty=tty)
        if not outputs and not stdin:
            raise apierrors.bad_request("you must specify at least 1 of stdin, stdout, stderr")
        _check_protocol(request.http)
        try:
            async with node.run_command(container_ref, command, stdin=stdin, tty=tty) as running:
                channels = await _accept(request, outputs, stdin=stdin, tty=tty)
                await _run_stream(channels, _copy_input(channels, running), _copy_output(channels, running, outputs))
        except ContainerNotRunning as error:
            raise apierrors.internal_error(f"unable to upgrade connection: {error}") from error
        except ExecFailed as error:
            channels = await _accept(request, outputs, stdin=stdin, tty=tty)
            await _run_stream(channels, _send_start_error(channels, error))
        return channels.response

    async def attach(self, request: ApiRequest) -> web.StreamResponse:
        """Copy the output of a container from now until it ends, and the client's input, if the container has one."""
        pod, container_ref, node = self._running_container(request)
        tty, stdin = query_flag(request.query, "tty"), query_flag(request.query, "stdin")
        outputs = _output_channels(request, tty=tty)
        if not outputs and not stdin:
            raise apierrors.bad_request("you must specify at least 1 of stdin, stdout, stderr")
        run = container_run_id(pod, container_ref.container, previous=False) if node.identifies_runs else ""
        _check_protocol(request.http)
        if has_input(pod, container_ref.container):
            return await self._attach_input(request, container_ref, node, outputs)
        channels = await _accept(request, outputs, stdin=stdin, tty=tty)

        async def copy() -> None:
            async with aclosing(node.attach(container_ref, run)) as parts:
                async for stream, text in parts:
                    channel = STDERR if stream == b"stderr" and not tty else STDOUT
                    if channel in outputs:
                        await channels.send(channel, text)
            await channels.send_status(SUCCESS_STATUS)

        await _run_stream(channels, _discard_input(channels), copy())
        return channels.response

    async def _attach_input(
        self, request: ApiRequest, ref: ContainerRef, node: PodStreams, outputs: list[int]
    ) -> web.StreamResponse:
        """Join the client with the input and the outputs of a container, or with its terminal."""
        tty, stdin = query_flag(request.query, "tty"), query_flag(request.query, "stdin")
        try:
            async with node.attach_input(ref, tty=tty) as attached:
                channels = await _accept(request, outputs, stdin=stdin, tty=tty)

                async def copy() -> None:
                    async with aclosing(attached.outputs()) as parts:
                        async for output, data in parts:
                            if output in outputs:
                                await channels.send(output, data)
                    await channels.send_status(SUCCESS_STATUS)

                await _run_stream(channels, _copy_input(channels, attached), copy())
        except ContainerNotRunning as error:
            raise apierrors.internal_error(f"unable to upgrade connection: {error}") from error
        return channels.response

    # Ports

    async def port_forward(self, request: ApiRequest) -> web.StreamResponse:
        """Forward connections to ports of a pod."""
        pod = self._pod(request)
        node, container_ref = self._assigned_node(request, pod), _container_ref(request, pod, "")
        http = request.http
        if is_spdy_request(http):
            protocol = spdy_protocol(http, (SPDY_PROTOCOL,))
            return await _forward_spdy(await accept_spdy(http, protocol), container_ref, node)
        check_upgrade(http, (TUNNEL_PROTOCOL, V4))
        if TUNNEL_PROTOCOL in http.headers.get("Sec-WebSocket-Protocol", ""):
            tunnel = SpdyConnection(await WebSocketStream.accept(http, TUNNEL_PROTOCOL))
            return await _forward_spdy(tunnel, container_ref, node)
        ports = _forwarded_ports(request)
        channels = await WebSocketChannels.accept(http, (V4,))
        session = PortForwardSession(channels, container_ref, node)
        await _run_stream(channels, session.run(ports))
        return channels.response

    # Pods and nodes

    def _pod(self, request: ApiRequest) -> JSON:
        if request.verb not in (RequestVerb.GET, RequestVerb.CREATE):
            raise apierrors.method_not_allowed()
        return decode_record(self._registry.get(request.served_kind, request.info.key))

    def _running_container(self, request: ApiRequest) -> tuple[JSON, ContainerRef, PodStreams]:
        pod = self._pod(request)
        container_ref = _container_ref(request, pod, container_name(pod, request.query.get("container", "")))
        return pod, container_ref, self._assigned_node(request, pod)

    def _assigned_node(self, request: ApiRequest, pod: JSON) -> PodStreams:
        """The node of the pod. Raises `StatusError` if the pod has none, or the node is not connected."""
        if not pod["spec"].get("nodeName"):
            raise apierrors.bad_request(f"pod {request.info.name} does not have a host assigned")
        return self._node(request, pod)

    def _node(self, request: ApiRequest, pod: JSON) -> PodStreams:
        name = pod["spec"]["nodeName"]
        node = self._nodes.get(name)
        if node is None:
            # kube-apiserver names the wrong kind, too, when it cannot reach a node.
            raise apierrors.not_found(request.served_kind.resource, name)
        return node


def _container_ref(request: ApiRequest, pod: JSON, container: str) -> ContainerRef:
    return ContainerRef(request.info.key, pod["metadata"]["uid"], container)


def _output_channels(request: ApiRequest, *, tty: bool) -> list[int]:
    """The channels on which the client wants output. A terminal has only one."""
    channels = [STDOUT] if query_flag(request.query, "stdout") else []
    return [*channels, STDERR] if query_flag(request.query, "stderr") and not tty else channels


def _forwarded_ports(request: ApiRequest) -> list[int]:
    words = [word for text in request.http.query.getall("ports", []) for word in text.split(",")]
    if not words:
        raise apierrors.bad_request('query parameter "ports" cannot be empty')
    for word in words:
        if not is_port(word):
            raise apierrors.bad_request(f'unable to parse "{word}" as a port')
    return [int(word) for word in words]


def _check_protocol(http: web.BaseRequest) -> None:
    """Check that a client of exec or attach speaks a protocol that we know. Raises `StatusError`."""
    if is_spdy_request(http):
        spdy_protocol(http, SPDY_PROTOCOLS)
    else:
        check_upgrade(http, WEBSOCKET_PROTOCOLS)


async def _accept(request: ApiRequest, outputs: list[int], *, stdin: bool, tty: bool) -> Channels:
    if is_spdy_request(request.http):
        return await SpdyChannels.accept(request.http, [*outputs, *([STDIN] if stdin else [])], tty=tty)
    return await WebSocketChannels.accept(request.http, WEBSOCKET_PROTOCOLS, outputs[0] if outputs else STDOUT)


async def _forward_spdy(connection: SpdyConnection, ref: ContainerRef, node: PodStreams) -> web.StreamResponse:
    try:
        await SpdyPortForward(connection, ref, node).run()
    except* ConnectionResetError:
        pass
    await connection.close()
    return connection.response


async def _run_stream(channels: Channels, *work: Coroutine[Any, Any, object]) -> None:
    """Run until the first coroutine ends, then close the connection. A client may disconnect at any time."""
    try:
        await channels.open()
        await run_until_first(*work)
    except* ConnectionResetError:
        pass
    finally:
        for item in work:
            item.close()
        await channels.close()


async def _copy_input(channels: Channels, command: CommandInput) -> None:
    """Copy the client's input to the command until the client disconnects."""
    async for channel, data in channels.messages():
        if channel == STDIN:
            await command.write(data)
        elif channel == CLOSE and data == bytes((STDIN,)):
            await command.close_input()
        elif channel == RESIZE:
            with suppress(msgspec.DecodeError):
                size = msgspec.json.decode(data, type=TerminalSize)
                await command.resize(size.width, size.height)


async def _discard_input(channels: Channels) -> None:
    async for _ in channels.messages():
        pass


async def _copy_output(channels: Channels, command: RunningCommand, outputs: list[int]) -> None:
    """Copy all output to the client, then send the exit status."""

    async def copy(output: int) -> None:
        while data := await command.read(output):
            if output in outputs:
                await channels.send(output, data)

    async with asyncio.TaskGroup() as group:
        for output in (STDOUT, STDERR):
            group.create_task(copy(output))
        try:
            status = exit_status(await command.wait())
        except CommandFailed as error:
            status = error.status
    await channels.send_status(status)


async def _send_start_error(channels: Channels, error: ExecFailed) -> None:
    await channels.send(STDERR, f"{error}\n".encode())
    await channels.send_status(exit_status(error.exit_code))
