"""What a node can run containers with: the machine's own processes, or a program that runs images."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from gangline.base.errors import GanglineError
from gangline.node.pods.probes import ContainerTarget
from gangline.node.runtime.container_config import ContainerConfig
from gangline.node.runtime.process import ProcessSpec


class ImageMissing(GanglineError):
    """The image cannot be had (yet). The message says why."""


class ContainerRuntime(Protocol):
    """How a container becomes a process that a shim supervises. Holds no state of a container."""

    async def ensure_image(self, image: str, policy: str) -> None:
        """Have the image. Raises `ImageMissing`."""
        ...

    def process_spec(self, made: ContainerConfig) -> ProcessSpec:
        """What the shim is to run. Raises `StartFailed`."""
        ...

    def target(self, made: ContainerConfig, spec: ProcessSpec, ports: Mapping[str, int], pid: int) -> ContainerTarget:
        """How to run something beside it."""
        ...

    async def remove_lost(self, marks: Iterable[str]) -> None:
        """End what is left of runs that nobody supervises any more."""
        ...
