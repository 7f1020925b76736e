"""What the machine has, what was given out, and who takes more than allowed."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from gangline.api.quantity import ZERO, Quantity, QuantityFormat, parse_resources
from gangline.base.errors import InputError

GPU = "nvidia.com/gpu"
MAX_PODS = "110"


def machine_capacity(declared: Mapping[str, str], disk: Path) -> dict[str, Quantity]:
    """CPU, memory and disk of this machine, and whatever is declared; a declaration replaces what was found."""
    where = next(each for each in (disk, *disk.absolute().parents) if each.exists())
    found = {
        "cpu": Quantity.of(str(_cpus())),
        "memory": _kibibytes(psutil.virtual_memory().total),
        "ephemeral-storage": _kibibytes(psutil.disk_usage(str(where)).total),
        "pods": Quantity.of(MAX_PODS),
    }
    return {**found, **parse_resources(declared)}


def parse_capacity(texts: Iterable[str]) -> dict[str, str]:
    """`--capacity nvidia.com/gpu=4`, as often as given. Raises `InputError`."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, amount = text.partition("=")
        if not name or not equals:
            raise InputError(f"--capacity {text}: write NAME=AMOUNT, such as nvidia.com/gpu=4")
        size = parse_resources({name: amount})[name]
        if size < ZERO:
            raise InputError(f"--capacity {text}: is less than nothing; write NAME=AMOUNT, such as {name}=4")
        if "/" in name and size.nanos % 10**9:
            raise InputError(f"--capacity {text}: there is no part of a device; write a whole number")
        found[name] = amount
    return found


def _cpus() -> int:
    # What this process may use: a container or taskset may allow fewer than the machine has.
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _kibibytes(amount: int) -> Quantity:
    return Quantity(amount // 1024 * 1024 * 10**9, QuantityFormat.BINARY)


class DeviceManager:
    """Extended resources, given out by number: two containers never have the same one."""

    def __init__(self, declared: Mapping[str, str]) -> None:
        # Cores and bytes are no devices: only what a vendor names (nvidia.com/gpu) is given out by number.
        self._free = {
            name: list(range(Quantity.of(amount).value())) for name, amount in declared.items() if "/" in name
        }

    def allocate(self, limits: Mapping[str, str]) -> dict[str, tuple[int, ...]] | None:
        """Numbers for all that the limits ask for; None when there are too few left."""
        asked = {name: Quantity.of(amount).value() for name, amount in limits.items() if name in self._free}
        if any(count > len(self._free[name]) for name, count in asked.items()):
            return None
        return {name: tuple(self._free[name].pop(0) for _ in range(count)) for name, count in asked.items()}

    def restore(self, taken: Mapping[str, Iterable[int]]) -> None:
        """Note what an adopted process has."""
        for name, numbers in taken.items():
            self._free[name] = [each for each in self._free.get(name, []) if each not in set(numbers)]

    def free(self, taken: Mapping[str, Iterable[int]]) -> None:
        for name, numbers in taken.items():
            self._free[name] = sorted({*self._free.get(name, []), *numbers})

    def device_env(self, taken: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
        """What a process must see of its devices. Without a request it sees none, where there are any."""
        if GPU not in self._free:
            return {}
        return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, taken.get(GPU, ())))}


# Memory


def resident_memory(roots: Iterable[int]) -> dict[int, int]:
    """Resident bytes of each root and its descendants, in one pass over the machine. Blocking."""
    parents: dict[int, int] = {}
    resident: dict[int, int] = {}
    for process in psutil.process_iter(["pid", "ppid", "memory_info"]):
        info = process.info
        parents[info["pid"]] = info["ppid"] or 0
        resident[info["pid"]] = info["memory_info"].rss if info["memory_info"] is not None else 0
    wanted = set(roots)
    totals = dict.fromkeys(wanted, 0)
    for pid, amount in resident.items():
        root = _root_of(pid, parents, wanted)
        if root is not None:
            totals[root] += amount
    return totals


def proportional_memory(root: int) -> int:
    """Bytes of a process and its descendants, shared pages shared out between them. Blocking."""
    total = 0
    try:
        found = psutil.Process(root)
        everyone = [found, *found.children(recursive=True)]
    except psutil.Error:
        return 0
    for process in everyone:
        try:
            info = process.memory_full_info()
        except psutil.Error:
            continue
        total += getattr(info, "pss", info.uss)
    return total


def processes_over_limit(limits: Mapping[int, int]) -> dict[int, int]:
    """The roots (pid to bytes allowed) that have more than they may, and how much that is. Blocking.

    Resident sizes count shared pages once for every process, so they only raise suspicion: a loader with eight forked
    workers is not killed for sharing its data with them.
    """
    suspects = [pid for pid, total in resident_memory(limits).items() if total > limits[pid]]
    return {pid: size for pid in suspects if (size := proportional_memory(pid)) > limits[pid]}


def _root_of(pid: int, parents: Mapping[int, int], wanted: set[int]) -> int | None:
    seen: set[int] = set()
    while pid and pid not in seen:
        if pid in wanted:
            return pid
        seen.add(pid)
        pid = parents.get(pid, 0)
    return None


class MemoryCgroup:
    """A memory limit of the kernel's: one folder per run under a folder that belongs to us. Version 1 or 2."""

    def __init__(self, parent: Path, name: str) -> None:
        self._folder = parent / name

    def create(self, limit: int) -> Path:
        """Make it and give the file by which a process enters. Raises OSError where it is not permitted."""
        self._folder.mkdir(exist_ok=True)
        version1 = self._folder / "memory.limit_in_bytes"
        if version1.exists():
            version1.write_text(str(limit))
        else:
            (self._folder / "memory.max").write_text(str(limit))
            for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
                if (self._folder / name).exists():
                    (self._folder / name).write_text(value)
        return self._folder / "cgroup.procs"

    def has_oom_kill(self) -> bool:
        """Whether the kernel killed something in it for its memory."""
        for name in ("memory.events", "memory.oom_control"):
            try:
                text = (self._folder / name).read_text()
            except OSError:
                continue
            counts = dict(line.split() for line in text.splitlines() if len(line.split()) == 2)
            if int(counts.get("oom_kill", "0")):
                return True
        return False

    def remove(self) -> None:
        """Once it is empty. What cannot be removed stays and does no harm."""
        try:
            self._folder.rmdir()
        except OSError:
            return
