"""The machine's capacity, devices given out to containers, and memory limits."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from gangline.api.accelerators import resource_name
from gangline.api.core import Pod
from gangline.api.quantity import ZERO, Quantity, QuantityError, QuantityFormat, parse_resources
from gangline.base.errors import InputError
from gangline.base.host_features import usable_cpus
from gangline.node.devices.gpus import RESOURCES, Gpu, offered_ids, selection_env

MAX_PODS = "110"
DeviceIds = Mapping[str, Iterable[str | int]]


def machine_capacity(declared: Mapping[str, str], disk: Path, gpus: Iterable[Gpu] = ()) -> dict[str, Quantity]:
    """CPU, memory, disk and GPUs of this machine, and what is declared, which replaces what is measured."""
    existing = next(folder for folder in (disk, *disk.absolute().parents) if folder.exists())
    measured = {
        "cpu": Quantity.of(str(usable_cpus())),
        "memory": _kibibytes(psutil.virtual_memory().total),
        "ephemeral-storage": _kibibytes(psutil.disk_usage(str(existing)).total),
        "pods": Quantity.of(MAX_PODS),
        **{name: Quantity.of(str(len(ids))) for name, ids in offered_ids(gpus).items()},
    }
    return {**measured, **parse_resources(declared)}


def parse_capacity(texts: Iterable[str]) -> dict[str, str]:
    """Amounts by name, from repeated `--capacity nvidia.com/gpu=4`. Raises `InputError`."""
    capacity: dict[str, str] = {}
    for text in texts:
        name, equals, amount = text.partition("=")
        if not name or not equals:
            raise InputError(f"--capacity {text}: write NAME=AMOUNT, such as nvidia.com/gpu=4")
        name = resource_name(name)
        try:
            size = Quantity.parse(amount)
        except QuantityError as error:
            raise InputError(f"--capacity {text}: {error}") from error
        if size < ZERO:
            raise InputError(f"--capacity {text}: is less than nothing; write NAME=AMOUNT, such as {name}=4")
        if "/" in name and size.nanos % 10**9:
            raise InputError(f"--capacity {text}: there is no part of a device; write a whole number")
        capacity[name] = amount
    return capacity


def _kibibytes(amount: int) -> Quantity:
    return Quantity(amount // 1024 * 1024 * 10**9, QuantityFormat.BINARY)


class DeviceManager:
    """Extended resources, given out by id: no two containers have the same device."""

    def __init__(self, declared: Mapping[str, str], gpus: tuple[Gpu, ...] = ()) -> None:
        """`declared` amounts replace the number of detected GPUs."""
        self._gpus, self._declared = gpus, frozenset(name for name in declared if "/" in name)
        offered = device_ids(declared, gpus)
        # Free devices are given out in the order in which they are offered.
        self._rank = {name: {id_: rank for rank, id_ in enumerate(ids)} for name, ids in offered.items()}
        self._free = {name: list(ids) for name, ids in offered.items()}

    def allocate(self, limits: Mapping[str, str]) -> dict[str, tuple[str, ...]] | None:
        """Ids of devices for all devices in the limits; None when too few are free."""
        counts = {name: Quantity.of(amount).value() for name, amount in limits.items() if name in self._free}
        if any(count > len(self._free[name]) for name, count in counts.items()):
            return None
        return {name: tuple(self._free[name].pop(0) for _ in range(count)) for name, count in counts.items()}

    def restore(self, devices: DeviceIds) -> None:
        """Mark the devices of an adopted process as used."""
        for name, ids in devices.items():
            used = set(map(str, ids))
            self._free[name] = [id_ for id_ in self._free.get(name, []) if id_ not in used]

    def free(self, devices: DeviceIds) -> None:
        for name, ids in devices.items():
            # A device of an earlier node may not be offered any more.
            ranks = self._rank.get(name, {})
            self._free[name] = sorted({*self._free.get(name, []), *map(str, ids)} & ranks.keys(), key=ranks.__getitem__)

    def device_env(self, devices: DeviceIds, environ: Mapping[str, str], *, hide: bool = False) -> dict[str, str]:
        """Variables that show a process its own GPUs only. `environ` is the environment of the node.

        A process that requested none sees what the user's shell sees, as under torchrun; it sees none if the amount is
        declared, or with `hide`.
        """
        variables: dict[str, str] = {}
        for name in self._free:
            ids = tuple(map(str, devices.get(name, ())))
            if ids or hide or name in self._declared:
                variables |= selection_env(name, ids, self._gpus, environ)
        return variables


def requests_gpus(pod: Pod) -> bool:
    """Whether a container of the pod requests a GPU of any vendor."""
    resources = RESOURCES.values()
    return any(name in resources for container in pod.spec.containers for name in container.resources.limits)


def device_ids(declared: Mapping[str, str], gpus: Iterable[Gpu]) -> dict[str, tuple[str, ...]]:
    """The ids of all devices by resource name: of detected GPUs first, then numbers up to a declared amount."""
    # Cores and bytes are no devices: only vendor resources (nvidia.com/gpu) are given out by id.
    amounts = {name: Quantity.of(amount).value() for name, amount in declared.items() if "/" in name}
    offered = offered_ids(gpus)
    for name, amount in amounts.items():
        detected = offered.get(name, ())
        numbers = (str(number) for number in range(amount) if str(number) not in detected)
        offered[name] = (*detected, *numbers)[:amount]
    return offered


# Memory


def memory_limit(limits: Mapping[str, str]) -> int:
    """The memory limit of a container in bytes; 0 for none."""
    text = limits.get("memory")
    return Quantity.of(text).value() if text is not None else 0


def resident_memory(roots: Iterable[int], shims: Mapping[int, int] = {}) -> dict[int, int]:
    """Resident bytes of each root and its descendants, in one pass over all processes. Blocking.

    `shims` are roots by the process that is the parent of their orphans, which are counted too.
    """
    parents: dict[int, int] = {}
    resident: dict[int, int] = {}
    for process in psutil.process_iter(["pid", "ppid", "memory_info"]):
        info = process.info
        parents[info["pid"]] = info["ppid"] or 0
        resident[info["pid"]] = info["memory_info"].rss if info["memory_info"] is not None else 0
    root_pids = set(roots)
    totals = dict.fromkeys(root_pids, 0)
    for pid, amount in resident.items():
        root = _root_of(pid, parents, root_pids, shims)
        if root is not None:
            totals[root] += amount
    return totals


def proportional_memory(root: int, shim: int | None = None) -> int:
    """Bytes of a process and its descendants, shared pages divided between their users. Blocking.

    With a shim, everything below the shim counts: orphans of the process are its children.

    Where that is not measured, pages of one process alone count; where that is forbidden (macOS, unless you are root),
    all resident pages.
    """
    total = 0
    try:
        process = psutil.Process(root if shim is None else shim)
        family = [*([process] if shim is None else []), *process.children(recursive=True)]
    except psutil.Error:
        return 0
    for process in family:
        with suppress(psutil.Error):
            try:
                info = process.memory_full_info()
                total += getattr(info, "pss", info.uss)
            except psutil.AccessDenied:
                total += process.memory_info().rss
    return total


def processes_over_limit(limits: Mapping[int, int], shims: Mapping[int, int] = {}) -> dict[int, int]:
    """Bytes in use by each root pid that exceeds its limit (bytes by pid). Blocking.

    `shims` are root pids by the pid of their shim.

    Resident sizes count shared pages once for every process, so they only raise suspicion: a loader with eight forked
    workers is not killed for sharing its data with them.
    """
    suspects = [pid for pid, total in resident_memory(limits, shims).items() if total > limits[pid]]
    shim_of = {root: shim for shim, root in shims.items()}
    return {pid: size for pid in suspects if (size := proportional_memory(pid, shim_of.get(pid))) > limits[pid]}


def _root_of(pid: int, parents: Mapping[int, int], roots: set[int], shims: Mapping[int, int]) -> int | None:
    visited: set[int] = set()
    while pid and pid not in visited:
        if pid in roots:
            return pid
        if pid in shims and visited:
            return shims[pid]
        visited.add(pid)
        pid = parents.get(pid, 0)
    return None


class MemoryCgroup:
    """A memory limit that the kernel enforces: one cgroup folder per run, version 1 or 2, below a delegated folder."""

    def __init__(self, parent: Path, name: str) -> None:
        self._folder = parent / name

    def create(self, limit: int) -> Path:
        """Create the cgroup. Returns the file by which a process enters it. Raises OSError where that is forbidden."""
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

    def set_limit(self, limit: int) -> None:
        """Change the limit of a cgroup that exists. One that the kernel refuses, because more is in use, stays as it was."""
        for name in ("memory.limit_in_bytes", "memory.max"):
            if (self._folder / name).exists():
                with suppress(OSError):
                    (self._folder / name).write_text(str(limit))

    def has_oom_kill(self) -> bool:
        """Whether the kernel killed a process of the cgroup for its memory."""
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
        """Remove the cgroup if it is empty. One that cannot be removed stays and does no harm."""
        try:
            self._folder.rmdir()
        except OSError:
            return
