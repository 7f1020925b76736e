"""This machine: its CPU, memory, disk and GPUs, and what of them is in use."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gangline.local.paths import home_folder

COMMAND_TIMEOUT = 5.0
SAMPLE_SECONDS = 0.5
GPU_QUERY = ("nvidia-smi", "--query-gpu=name,memory.total,memory.used,utilization.gpu", "--format=csv,noheader,nounits")
MEBIBYTE = 2**20


class Amount(NamedTuple):
    """How much of a resource there is, and how much of it is in use."""

    used: float
    total: float

    @property
    def free(self) -> float:
        return self.total - self.used

    @property
    def share(self) -> float:
        return self.used / self.total if self.total else 0.0


class GpuUsage(NamedTuple):
    """A GPU: its name, its memory in bytes, and the share of the time in which it computes."""

    name: str
    memory: Amount
    busy: float


class MachineUsage(NamedTuple):
    """What this machine has and uses: CPU in cores, memory and disk in bytes."""

    cpu: Amount
    memory: Amount
    disk: Amount
    gpus: tuple[GpuUsage, ...] = ()


def measure_machine() -> MachineUsage:
    """Measure the machine; the CPU for `SAMPLE_SECONDS`."""
    import psutil

    memory = psutil.virtual_memory()
    cores = usable_cpus()
    share = min(psutil.cpu_percent(SAMPLE_SECONDS) / 100 * (psutil.cpu_count() or 1) / cores, 1.0)
    return MachineUsage(
        Amount(share * cores, cores), Amount(memory.total - memory.available, memory.total), state_disk(), list_gpus()
    )


def usable_cpus() -> int:
    """The CPUs that this process may use: a container or taskset may allow fewer than the machine has."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def state_disk() -> Amount:
    """The file system on which gangline keeps the state of planes and runs."""
    folder = home_folder(None).absolute()
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    return folder_disk(existing)


def folder_disk(folder: Path) -> Amount:
    """The file system of a folder. What only root may use counts as used."""
    usage = shutil.disk_usage(folder)
    return Amount(usage.total - usage.free, usage.total)


def list_gpus() -> tuple[GpuUsage, ...]:
    """The NVIDIA GPUs of this machine; none if `nvidia-smi` is missing or fails."""
    return parse_gpus(program_output(GPU_QUERY))


def parse_gpus(text: str) -> tuple[GpuUsage, ...]:
    """The GPUs in the output of `nvidia-smi`, a line for each. A number that the driver does not know is 0."""
    gpus = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 4:
            total, used, busy = (float(cell) if cell.isdecimal() else 0.0 for cell in cells[1:])
            gpus.append(GpuUsage(cells[0], Amount(used * MEBIBYTE, total * MEBIBYTE), busy / 100))
    return tuple(gpus)


def program_output(command: Sequence[str]) -> str:
    """The standard output of a program; empty if it is missing, fails, or does not answer."""
    program = shutil.which(command[0])
    if program is None:
        return ""
    try:
        done = subprocess.run(
            [program, *command[1:]], capture_output=True, text=True, timeout=COMMAND_TIMEOUT, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
