"""The subresources of pods: log, exec, portforward, binding, eviction."""

import asyncio
import io
import math
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import IO

import msgspec

from gangline.api.core import Pod
from gangline.api.meta import JSON, Key
from gangline.api.scheme import CORE_SCHEME
from gangline.base.errors import InputError
from gangline.kube.client import Client
from gangline.kube.errors import KubeError, StreamBroken
from gangline.kube.options import DeleteOptions
from gangline.kube.paths import object_path
from gangline.kube.streams import (
    EXEC_PROTOCOLS,
    PORT_FORWARD_PROTOCOLS,
    Channel,
    ExecResult,
    ExecSession,
    PortForward,
)
from gangline.kube.transport.api import LineReader, QueryParams, Request

MAX_LINE_BYTES = 1024 * 1024
"""Longer log lines are returned in pieces: a progress bar may never end its line."""

STDIN_CHUNK_BYTES = 256 * 1024

PODS = CORE_SCHEME.of(Pod)


class PodSubresources:
    """The subresources of pods, over a client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def logs(
        self,
        key: Key,
        *,
        container: str = "",
        follow: bool = False,
        previous: bool = False,
        tail: int | None = None,
        since: timedelta | datetime | None = None,
        timestamps: bool = False,
        limit_bytes: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """The lines of a container's log without their line ends; with `follow`, until the container ends.

        `since` is a time or a duration before now. `container` can be left out if the pod has only one. Raises
        `BadRequest` while the container has not started, and `StreamBroken` when the log is cut off: resume with `since`
        and timestamps. Use `aclosing` to leave early.
        """
        query: QueryParams = (
            *_flag_query(follow=follow, previous=previous, timestamps=timestamps),
            *_since_query(since),
            *((("container", container),) if container else ()),
            *((("tailLines", str(tail)),) if tail is not None else ()),
            *((("limitBytes", str(limit_bytes)),) if limit_bytes is not None else ()),
        )
        # Logs are plain text, but errors are a Status.
        request = Request("GET", object_path(PODS, key, "log"), query, accept="text/plain, application/json, */*")
        async with self._client.requests.stream(request) as stream:
            async for line in LineReader(stream.chunks(), blank=True, longest=MAX_LINE_BYTES):
                yield line

    @asynccontextmanager
    async def exec(
        self,
        key: Key,
        command: Sequence[str],
        *,
        container: str = "",
        stdin: bool = False,
        stdout: bool = True,
        stderr: bool = True,
        tty: bool = False,
    ) -> AsyncIterator[ExecSession]:
        """Run a command in a container. The request is never repeated.

        With `tty` all output is STDOUT. Raises `ApiError` when the server refuses.
        """
        if not command:
            raise InputError(f"{key}: the command is empty; say what to run")
        query: QueryParams = (
            *_flag_query(stdin=stdin, stdout=stdout, stderr=stderr and not tty, tty=tty),
            *((("container", container),) if container else ()),
            *(("command", word) for word in command),
        )
        request = Request("GET", object_path(PODS, key, "exec"), query)
        async with self._client.requests.frames(request, EXEC_PROTOCOLS) as frames:
            yield ExecSession(frames)

    async def run(
        self, key: Key, command: Sequence[str], *, container: str = "", stdin: bytes | IO[bytes] | None = None
    ) -> ExecResult:
        """Run a command to its end and collect its output. Any exit code is a result, not an error.

        Raises as `exec` and its session do, and `KubeError` if there is `stdin` and the server cannot close it. A command
        that does not read much of its input may end in `StreamBroken` instead of a result.
        """
        async with self.exec(key, command, container=container, stdin=stdin is not None) as session:
            if stdin is None:
                return await _collect_output(session)
            session.require_stdin_close()
            return await _write_and_collect(session, io.BytesIO(stdin) if isinstance(stdin, bytes) else stdin)

    @asynccontextmanager
    async def port_forward(self, key: Key, port: int) -> AsyncIterator[PortForward]:
        """A connection to a port of a pod. Raises `ApiError` when the server refuses."""
        query: QueryParams = (("ports", str(port)),)
        request = Request("GET", object_path(PODS, key, "portforward"), query)
        async with self._client.requests.frames(request, PORT_FORWARD_PROTOCOLS) as frames:
            yield PortForward(frames, port)

    async def bind(self, key: Key, node: str, *, uid: str | None = None) -> None:
        """Bind a pod to a node. Raises `NotFound`, and `Conflict` if the pod has another `uid` or is bound already.

        So a repeated call cannot move a pod.
        """
        metadata = {"name": key.name, "namespace": key.namespace, **({"uid": uid} if uid else {})}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        await self._post(
            key, "binding", {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        )

    async def evict(self, key: Key, *, grace: timedelta | None = None, uid: str | None = None) -> None:
        """Request deletion if the disruption budgets allow it. Raises `NotFound`, and `Conflict` for another `uid`.

        Raises `TooManyRequests` at once if a budget does not allow it: that may last, so the caller decides when to try
        again. (A throttling server is waited for, as by every verb.)
        """
        options = DeleteOptions(uid=uid, grace=grace, dry_run=self._client.options.dry_run)
        metadata = {"name": key.name, "namespace": key.namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        await self._post(key, "eviction", {**body, "deleteOptions": options.body()})

    async def _post(self, key: Key, subresource: str, body: JSON) -> None:
        path, query = object_path(PODS, key, subresource), self._client.options.query()
        await self._client.requests.call(Request("POST", path, query, msgspec.json.encode(body), "application/json"))


async def _collect_output(session: ExecSession) -> ExecResult:
    output: dict[Channel, list[bytes]] = {Channel.STDOUT: [], Channel.STDERR: []}
    async for channel, data in session:
        output[channel].append(data)
    code = session.exit_code
    assert code is not None  # the session ended
    return ExecResult(code, b"".join(output[Channel.STDOUT]), b"".join(output[Channel.STDERR]))


async def _write_and_collect(session: ExecSession, stdin: IO[bytes]) -> ExecResult:
    """Write and read at the same time: the command may stop reading its input until its output is read."""
    result: ExecResult | KubeError
    async with asyncio.TaskGroup() as group:
        writer = group.create_task(_write_stdin(session, stdin))
        try:
            result = await _collect_output(session)
        except KubeError as error:  # raised below, so that it is not wrapped in an ExceptionGroup
            result = error
        writer.cancel()
    if isinstance(result, KubeError):
        raise result
    return result


async def _write_stdin(session: ExecSession, stdin: IO[bytes]) -> None:
    # A command may end before it has read all its input. Whether that is an error, the reading side knows.
    with suppress(StreamBroken):
        while data := stdin.read(STDIN_CHUNK_BYTES):
            await session.write(data)
        await session.close_stdin()


def _flag_query(**flags: bool) -> QueryParams:
    return tuple((name, "true") for name, is_set in flags.items() if is_set)


def _since_query(since: timedelta | datetime | None) -> QueryParams:
    match since:
        case None:
            return ()
        case timedelta():
            # The server takes whole seconds, and refuses zero.
            return (("sinceSeconds", str(max(1, math.ceil(since.total_seconds())))),)
        case datetime():
            return (("sinceTime", since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")),)
