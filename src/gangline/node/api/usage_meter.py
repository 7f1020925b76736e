"""Measures what pods and the machine use, when somebody asks: CPU use is that since the last time somebody did."""

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gangline.base.clock import Clock

if TYPE_CHECKING:
    from gangline.node.usage import ContainerUsage, ResourceUsage, UsageSampler

FIRST_WINDOW = timedelta(seconds=0.5)
"""How long is measured for the first who asks."""
SHORTEST_WINDOW = timedelta(seconds=1)
"""Who asks sooner than that gets the measurement before."""
LONGEST_WINDOW = timedelta(seconds=60)
"""An older sample tells nothing about now."""


class Measurement(NamedTuple):
    """What containers, and the whole machine, used in the window before a moment."""

    at: datetime
    window: timedelta
    containers: "list[ContainerUsage]"
    machine: "ResourceUsage"
    machine_seconds: float = 0.0
    """The CPU seconds of the machine since it started."""
    container_seconds: Mapping[tuple[str, str], float] = {}
    """The CPU seconds of each container (uid of the pod, name) in all windows that were measured."""


class UsageMeter:
    """Measures the processes of a node."""

    def __init__(self, state: Path, clock: Clock) -> None:
        """`state` is the folder of the node's records."""
        self._state, self._clock = state, clock
        self._sampler: UsageSampler | None = None
        self._sampled_at = 0.0
        self._machine_seconds = 0.0
        self._container_seconds: dict[tuple[str, str], float] = {}
        self._last: Measurement | None = None
        self._lock = asyncio.Lock()

    async def measure(self) -> Measurement:
        """The usage of all containers that are processes of this machine."""
        # Imported here: a plane starts without it.
        from gangline.node.usage import ResourceUsage, UsageSampler

        async with self._lock:
            age = timedelta(seconds=self._clock.monotonic() - self._sampled_at)
            if self._last is not None and age < SHORTEST_WINDOW:
                return self._last
            if self._sampler is None or age > LONGEST_WINDOW:
                self._sampler = UsageSampler(self._state, self._clock)
                await self._sample(self._sampler)
                await self._clock.sleep(FIRST_WINDOW)
            began, seconds = self._sampled_at, self._machine_seconds
            containers, memory = await self._sample(self._sampler)
            window = timedelta(seconds=self._sampled_at - began)
            cores = (self._machine_seconds - seconds) / max(window.total_seconds(), 1e-9)
            self._count_seconds(containers, window)
            used = ResourceUsage(max(cores, 0.0), memory)
            self._last = Measurement(
                self._clock.now(), window, containers, used, self._machine_seconds, dict(self._container_seconds)
            )
            return self._last

    def _count_seconds(self, containers: "list[ContainerUsage]", window: timedelta) -> None:
        before = self._container_seconds
        self._container_seconds = {
            (used.uid, used.container): before.get((used.uid, used.container), 0.0)
            + used.usage.cores * window.total_seconds()
            for used in containers
        }

    async def _sample(self, sampler: "UsageSampler") -> "tuple[list[ContainerUsage], int]":
        from gangline.node.usage import machine_usage

        self._sampled_at = self._clock.monotonic()
        self._machine_seconds, memory = machine_usage()
        return await asyncio.to_thread(sampler.sample_containers), memory
