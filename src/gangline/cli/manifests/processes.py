"""How many processes `--nproc` asks for: a number, a range, or what this machine has. Pure, except `this_machine`."""

import re
from typing import NamedTuple

from gangline.api.accelerators import DEFAULT_GPU_RESOURCE, GPU_RESOURCES
from gangline.base.errors import InputError
from gangline.base.host_features import usable_cpus
from gangline.node.devices.detect import detect_gpus

_RANGE = re.compile(r"(\d+):(\d+)")


class Machine(NamedTuple):
    """What this machine has: its cores, and the vendor of each GPU that a process can have for itself."""

    cores: int = 1
    gpus: tuple[str, ...] = ()

    @property
    def gpu_resource(self) -> str:
        """The resource by which a process asks for one of the GPUs."""
        return GPU_RESOURCES[self.gpus[0]] if self.gpus else DEFAULT_GPU_RESOURCE


class ProcessCount(NamedTuple):
    """How many processes a job starts with, and with how many it can go on."""

    most: int
    least: int

    @property
    def is_elastic(self) -> bool:
        return self.least < self.most


def this_machine() -> Machine:
    """The cores that this process may use, and the GPUs."""
    gpus = detect_gpus(quick=True)
    return Machine(usable_cpus(), tuple(gpu.vendor for gpu in gpus if gpu.vendor in GPU_RESOURCES))


def process_count(text: str, machine: Machine) -> ProcessCount:
    """The processes for `4`, `2:4` (at least 2, at most 4), `cpu`, `gpu` or `auto`. Raises `InputError`."""
    if text == "--":
        raise InputError("--nproc: no number; write: --nproc 4 -- python train.py")
    if text == "gpu" and not machine.gpus:
        raise InputError("--nproc gpu: no GPU was detected on this machine; write --nproc cpu, or a number")
    words = {"cpu": machine.cores, "gpu": len(machine.gpus), "auto": len(machine.gpus) or machine.cores}
    if text in words:
        return ProcessCount(words[text], words[text])
    bounds = _RANGE.fullmatch(text)
    least, most = (int(bounds[1]), int(bounds[2])) if bounds else (_number(text),) * 2
    if least < 1:
        raise InputError(f"--nproc {text}: expected 1 or more")
    if most < least:
        raise InputError(f"--nproc {text}: a range begins with the smaller number; write: --nproc {most}:{least}")
    return ProcessCount(most, least)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(f"--nproc {text}: expected a number, a range such as 2:4, or auto, cpu or gpu") from None
