"""Logs, exec, attach and port-forward of a node that runs in this process."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress

from gangline.api.core import Pod
from gangline.base.clock import Clock
from gangline.kube.podstreams import AttachedContainer, ContainerNotRunning, ContainerRef, LogOptions, RunningCommand
from gangline.node.api.server import NodeApi, NodeInspection, connect_in_process
from gangline.node.kubelet import LocalKubelet
from gangline.node.logs import NodeLogReader
from gangline.node.runtime import exec as runtime_exec
from gangline.node.runtime.attach import attach_run
from gangline.node.runtime.runtime import ContainerTarget, connect


class NodeStreams:
    """The `PodStreams` of one node."""

    identifies_runs = True

    def __init__(
        self, node: LocalKubelet, reader: NodeLogReader, clock: Clock, inspection: NodeInspection | None = None
    ) -> None:
        self._node, self._reader, self._clock = node, reader, clock
        self._api = NodeApi(reader, clock.now, inspection)

    def logs(self, ref: ContainerRef, run: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        return self._reader.read_run(ref.key, ref.uid, ref.container, run, options)

    async def attach(self, ref: ContainerRef, run: str) -> AsyncGenerator[tuple[bytes, bytes], None]:
        async with aclosing(self._reader.attach(ref.key, ref.uid, ref.container, run)) as lines:
            async for line in lines:
                yield line.stream, line.render(timestamps=False)

    @asynccontextmanager
    async def attach_input(self, ref: ContainerRef, *, tty: bool) -> AsyncIterator[AttachedContainer]:
        async with attach_run(self._target(ref).attach_socket) as attached:
            yield attached

    @asynccontextmanager
    async def run_command(
        self, ref: ContainerRef, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> AsyncIterator[RunningCommand]:
        target = self._target(ref)
        async with runtime_exec.exec_command(target, command, self._clock, stdin=stdin, tty=tty) as running:
            yield running

    async def connect(self, ref: ContainerRef, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        targets = self._node.container_targets(ref.uid).values()
        if not targets:
            raise ContainerNotRunning("pod is not running")
        real_ports = [target.ports[str(port)] for target in targets if str(port) in target.ports]
        target = next(iter(targets))
        # A program may listen on the address of its pod, and on the port that the pod names: it need not know the one
        # that its service was given.
        places = [(host, number) for number in (*real_ports[:1], port) for host in (target.host, target.address)]
        for host, number in dict.fromkeys(places[:-1]):
            with suppress(OSError):
                return await connect(target, host, number)
        return await connect(target, *places[-1])

    async def connect_pod(self, pod: Pod, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a port of a pod of this node. Raises `ContainerNotRunning` and OSError."""
        return await self.connect(ContainerRef(pod.metadata.key, pod.metadata.uid, ""), port)

    async def connect_api(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await connect_in_process(self._api)

    def _target(self, ref: ContainerRef) -> ContainerTarget:
        target = self._node.container_targets(ref.uid).get(ref.container)
        if target is None:
            raise ContainerNotRunning(f'container not found ("{ref.container}")')
        return target
