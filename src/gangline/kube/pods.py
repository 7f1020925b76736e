"""What only pods have: logs, commands in them, connections to them, their place, their eviction."""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

import msgspec

from gangline.api.core import Pod
from gangline.api.meta import JSON, Key
from gangline.api.scheme import CORE_SCHEME
from gangline.base.errors import InputError
from gangline.kube import streams
from gangline.kube import streams as execution
from gangline.kube.client import Client
from gangline.kube.errors import KubeError, StreamBroken
from gangline.kube.options import DeleteOptions
from gangline.kube.paths import object_path
from gangline.kube.streams import Channel, ExecResult, ExecSession, PortForward
from gangline.kube.transport.api import LineReader, QueryParams, Request

MAX_LINE_BYTES = 1024 * 1024
"""A line of a log that is longer comes in pieces: progress bars may never end one."""

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
        """The lines of a container's log, empty ones too, without their ends; with `follow`, until it ends.

        `since` is a time, or how long ago. `container` may be left out when there is one. Raises `BadRequest`
        while the container has not started, and `StreamBroken` when the log is cut off: resume with `since` and
        timestamps. Close it (`aclosing`) to leave early.
        """
        query: QueryParams = (
            *_flag_query(follow=follow, previous=previous, timestamps=timestamps),
            *_since_query(since),
            *((("container", container),) if container else ()),
            *((("tailLines", str(tail)),) if tail is not None else ()),
            *((("limitBytes", str(limit_bytes)),) if limit_bytes is not None else ()),
        )
        # Plain text, but errors are a Status.
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
        """Run a command in a container. Sent once, and never again by itself.

        With `tty` the output comes as STDOUT alone. Raises `ApiError` when the server refuses.
        """
        if not command:
            raise InputError(f"{key}: the command is empty; say what to run")
        query: QueryParams = (
            *_flag_query(stdin=stdin, stdout=stdout, stderr=stderr and not tty, tty=tty),
            *((("container", container),) if container else ()),
            *(("command", word) for word in command),
        )
        request = Request("GET", object_path(PODS, key, "exec"), query)
        async with self._client.requests.frames(request, execution.EXEC_PROTOCOLS) as frames:
            yield ExecSession(frames)

    async def run(
        self, key: Key, command: Sequence[str], *, container: str = "", stdin: bytes | None = None
    ) -> ExecResult:
        """Run a command to its end and keep all it says. Any exit code is a result, not an error.

        Raises as `exec` and its session do, and `KubeError` for `stdin` on a server that cannot close it. A
        command that leaves much of its input unread may end in `StreamBroken` instead of its result.
        """
        async with self.exec(key, command, container=container, stdin=stdin is not None) as session:
            if stdin is None:
                return await _collect_output(session)
            session.require_stdin_close()
            return await _write_and_collect(session, stdin)

    @asynccontextmanager
    async def port_forward(self, key: Key, port: int) -> AsyncIterator[PortForward]:
        """A connection to a port of a pod. Raises `ApiError` when the server refuses."""
        query: QueryParams = (("ports", str(port)),)
        request = Request("GET", object_path(PODS, key, "portforward"), query)
        async with self._client.requests.frames(request, streams.PORT_FORWARD_PROTOCOLS) as frames:
            yield PortForward(frames, port)

    async def bind(self, key: Key, node: str, *, uid: str | None = None) -> None:
        """Give a pod to a node, for good. With `uid`, only that very pod.

        Raises `Conflict` when it is another pod or has a node already, and `NotFound`. So a repeated call cannot
        move a pod.
        """
        metadata = {"name": key.name, "namespace": key.namespace, **({"uid": uid} if uid else {})}
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        await self._post(
            key, "binding", {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        )

    async def evict(self, key: Key, *, grace: timedelta | None = None, uid: str | None = None) -> None:
        """Ask for deletion the polite way: disruption budgets are asked first. With `uid`, only that very pod.

        Raises `TooManyRequests` at once when a budget forbids it now: that may last, and the caller has to plan
        for it. (A server that is merely busy is waited for, as with every verb.) Raises `Conflict` for another
        uid, and `NotFound`.
        """
        options = DeleteOptions(uid=uid, grace=grace, dry_run=self._client.options.dry_run)
        metadata = {"name": key.name, "namespace": key.namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        await self._post(key, "eviction", {**body, "deleteOptions": options.body()})

    async def _post(self, key: Key, subresource: str, body: JSON) -> None:
        path, query = object_path(PODS, key, subresource), self._client.options.query()
        await self._client.requests.call(Request("POST", path, query, msgspec.json.encode(body), "application/json"))


async def _collect_output(session: ExecSession) -> ExecResult:
    said: dict[Channel, list[bytes]] = {Channel.STDOUT: [], Channel.STDERR: []}
    async for channel, data in session:
        said[channel].append(data)
    code = session.exit_code
    assert code is not None  # the session ended
    return ExecResult(code, b"".join(said[Channel.STDOUT]), b"".join(said[Channel.STDERR]))


async def _write_and_collect(session: ExecSession, stdin: bytes) -> ExecResult:
    """Write and read at the same time: the command may stop reading until its output is taken."""
    done: ExecResult | KubeError
    async with asyncio.TaskGroup() as group:
        feeding = group.create_task(_write_stdin(session, stdin))
        try:
            done = await _collect_output(session)
        except KubeError as error:  # kept, so that it leaves the group as itself
            done = error
        feeding.cancel()
    if isinstance(done, KubeError):
        raise done
    return done


async def _write_stdin(session: ExecSession, stdin: bytes) -> None:
    # A command may end before it has read everything; whether all is well, the reading side knows.
    with suppress(StreamBroken):
        await session.write(stdin)
        await session.close_stdin()


def _flag_query(**flags: bool) -> QueryParams:
    return tuple((name, "true") for name, wanted in flags.items() if wanted)


def _since_query(since: timedelta | datetime | None) -> QueryParams:
    match since:
        case None:
            return ()
        case timedelta():
            # Whole seconds, and zero is refused.
            return (("sinceSeconds", str(max(1, math.ceil(since.total_seconds())))),)
        case datetime():
            return (("sinceTime", since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")),)
