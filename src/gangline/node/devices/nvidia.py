"""NVIDIA's GPUs, from the driver's files and from nvidia-smi."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from gangline.node.devices.gpus import NVIDIA, Gpu

SMI = "nvidia-smi"
QUERY = ("--query-gpu=index,name,uuid,memory.total,mig.mode.current", "--format=csv,noheader,nounits")
OLD_QUERY = ("--query-gpu=index,name,uuid,memory.total", "--format=csv,noheader,nounits")
"""For drivers before 450, which know no MIG and refuse the field."""
USAGE_QUERY = ("--query-gpu=index,uuid,utilization.gpu,memory.used", "--format=csv,noheader,nounits")
LIST = ("-L",)
DRIVER_FOLDER = "proc/driver/nvidia"

_GPU_LINE = re.compile(r"GPU (\d+): (.+?) \(UUID: (\S+)\)")
_MIG_LINE = re.compile(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (\S+)\)")


def parse_query(text: str) -> tuple[Gpu, ...]:
    """The GPUs in the answer to `QUERY`. Lines of another form (warnings, errors) are skipped."""
    gpus = []
    for fields in _rows(text, 4):
        index, name, uuid, memory = fields[:4]
        if index.isdecimal():
            gpus.append(Gpu(NVIDIA, int(index), _full_name(name), uuid, _mebibytes(memory), index))
    return tuple(gpus)


def is_refused(text: str) -> bool:
    """Whether the driver is too old for `QUERY`."""
    return "is not a valid field to query" in text


def has_mig(text: str) -> bool:
    """Whether the answer to `QUERY` names a GPU that is divided into MIG devices."""
    return any(fields[4:5] == ["Enabled"] for fields in _rows(text, 5))


def parse_list(text: str, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """The devices in the answer to `LIST`: MIG devices in place of the GPUs that are divided into them."""
    memory = {gpu.index: gpu.memory for gpu in gpus}
    devices: list[Gpu] = []
    parent: Gpu | None = None
    for line in text.splitlines():
        if match := _GPU_LINE.match(line):
            index = int(match[1])
            parent = Gpu(NVIDIA, index, _full_name(match[2]), match[3], memory.get(index, 0), match[1])
            devices.append(parent)
        elif parent is not None and (match := _MIG_LINE.match(line)):
            # CUDA does not count the GPU itself once it is divided.
            devices = [device for device in devices if device is not parent]
            devices.append(Gpu(NVIDIA, parent.index, f"{parent.name} MIG {match[1]}", match[2], 0, match[2]))
    return tuple(devices)


def parse_usage(text: str) -> dict[str, tuple[int, int]]:
    """Percent and bytes in use by index and by UUID, in the answer to `USAGE_QUERY`."""
    usage: dict[str, tuple[int, int]] = {}
    for index, uuid, percent, memory in (fields[:4] for fields in _rows(text, 4)):
        if percent.isdecimal():
            usage[index] = usage[uuid] = (int(percent), _mebibytes(memory))
    return usage


def driver_gpus(root: Path) -> tuple[Gpu, ...]:
    """The GPUs in the files of the driver, in the order of nvidia-smi, which is that of the bus. No program runs."""
    gpus: list[Gpu] = []
    for folder in sorted(_folders(root / DRIVER_FOLDER / "gpus"), key=lambda folder: folder.name.lower()):
        try:
            lines = (folder / "information").read_text().splitlines()
        except OSError:
            continue
        values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        uuid = values.get("GPU UUID", "")
        index = len(gpus)
        # A GPU that nothing used since the start of the machine has question marks in its UUID.
        name = _full_name(values.get("Model", ""))
        gpus.append(Gpu(NVIDIA, index, name, "" if "?" in uuid else uuid, 0, str(index)))
    return tuple(gpus)


def has_mig_instances(root: Path) -> bool:
    """Whether a GPU is divided into MIG devices, whose names only nvidia-smi knows."""
    return any((root / DRIVER_FOLDER / "capabilities").glob("gpu*/mig/gi*"))


def _folders(parent: Path) -> Iterator[Path]:
    try:
        yield from (entry for entry in parent.iterdir() if entry.is_dir())
    except OSError:
        return


def _rows(text: str, fields: int) -> Iterator[list[str]]:
    rows = ([field.strip() for field in line.split(",")] for line in text.splitlines())
    return (row for row in rows if len(row) >= fields)


def _full_name(name: str) -> str:
    # Drivers before 455 leave the vendor out: "Tesla V100-SXM2-16GB".
    return name if name.startswith("NVIDIA") or not name else f"NVIDIA {name}"


def _mebibytes(text: str) -> int:
    # "[N/A]" where the GPU uses the machine's memory.
    return int(text) * 2**20 if text.isdecimal() else 0
