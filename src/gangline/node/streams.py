"""The streams of a node that runs in this process."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager

from gangline.base.clock import Clock
from gangline.kube.podstreams import Command, LogOptions, NotRunning, Place
from gangline.node.kubelet import Node
from gangline.node.logs import LogReader
from gangline.node.pods.probes import Target, connected
from gangline.node.runtime import exec as runtime_exec


class NodeStreams:
    """`PodStreams` of one node."""

    def __init__(self, node: Node, reader: LogReader, clock: Clock) -> None:
        self._node, self._reader, self._clock = node, reader, clock

    def logs(self, place: Place, run: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        return self._reader.read_run(place.key, place.uid, place.container, run, options)

    async def attached(self, place: Place, run: str) -> AsyncGenerator[tuple[bytes, bytes], None]:
        found = self._reader.attached(place.key, place.uid, place.container, run)
        async with aclosing(found) as entries:
            async for entry in entries:
                yield entry.stream, entry.shown(timestamps=False)

    @asynccontextmanager
    async def executing(
        self, place: Place, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> AsyncIterator[Command]:
        target = self._target(place)
        async with runtime_exec.executing(target, command, self._clock, stdin=stdin, tty=tty) as running:
            yield running

    async def connected(self, place: Place, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        targets = self._node.targets(place.uid).values()
        if not targets:
            raise NotRunning("pod is not running")
        known = (target.ports[str(port)] for target in targets if str(port) in target.ports)
        target = next(iter(targets))
        return await connected(target, target.host, next(known, port))

    def _target(self, place: Place) -> Target:
        target = self._node.targets(place.uid).get(place.container)
        if target is None:
            raise NotRunning(f'container not found ("{place.container}")')
        return target
