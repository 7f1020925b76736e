"""This machine: its CPU, memory, disk and GPUs, and what of them is in use."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gangline.base.host_features import usable_cpus
from gangline.local.paths import home_folder

COMMAND_TIMEOUT = 5.0
SAMPLE_SECONDS = 0.5


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
    """The GPUs of this machine. What cannot be measured is 0."""
    from gangline.node.devices.detect import detect_gpus, measure_gpus
    from gangline.node.devices.gpus import RESOURCES

    measured = measure_gpus(os.environ)
    usages = ((gpu, measured.get((RESOURCES.get(gpu.vendor, ""), gpu.id), (0, 0))) for gpu in detect_gpus())
    return tuple(GpuUsage(gpu.name, Amount(used, gpu.memory), percent / 100) for gpu, (percent, used) in usages)


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
