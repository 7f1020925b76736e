"""Stacks as values: frames, threads, processes, and those of each replica."""

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from gangline.api.core import Pod

Source = Literal["py-spy", "faulthandler", "proc"]
"""Who read a stack. `proc` reads no frames: only what the kernel says of each thread."""


class Frame(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call. The file is a path, or the library of a native frame."""

    function: str
    file: str = ""
    line: int = 0
    module: str = ""
    native: bool = False
    # The source line, where the file can be read.
    code: str = ""


class ThreadStack(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thread: its frames, the innermost first."""

    frames: tuple[Frame, ...] = ()
    name: str = ""
    id: int = 0
    # Whether it runs or wants to run, instead of waiting.
    active: bool = False
    holds_gil: bool = False
    # The function of the kernel in which it waits, such as `futex_wait_queue`; empty if unknown.
    wait_channel: str = ""
    # How often it has waited and was woken up since it started; None if unknown.
    wakeups: int | None = None


class ProcessStack(msgspec.Struct, frozen=True, omit_defaults=True):
    """One process with its threads, the main thread first."""

    pid: int
    command: str = ""
    threads: tuple[ThreadStack, ...] = ()
    source: Source = "proc"
    # The kernel's letter: R runs, S waits, D waits for a disk, T is stopped, Z has ended.
    state: str = ""
    parent: int = 0
    # The rank that its environment names (RANK, OMPI_COMM_WORLD_RANK ...).
    rank: int | None = None
    # The CPU time that it has used since it started.
    cpu_seconds: float = 0.0
    # The bytes that it has read and written since then; None if that could not be read.
    bytes_moved: int | None = None
    # Why its frames could not be read, in one line.
    error: str = ""


class RankStack(msgspec.Struct, frozen=True, omit_defaults=True):
    """A replica and its processes: parents before their children."""

    replica: str
    # The first rank of the replica; None if the framework has no ranks.
    rank: int | None = None
    pod: str = ""
    processes: tuple[ProcessStack, ...] = ()
    # Why there are no processes, in one line.
    error: str = ""


class StackSampler(Protocol):
    """Reads the stacks of pods."""

    async def sample(self, pods: Sequence[Pod]) -> tuple[RankStack, ...]:
        """The stacks of the pods that can be read. A pod whose stacks cannot be read has an `error`."""
        ...
