"""GPUs as values, the variables that select them, and their text for people. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from gangline.api.accelerators import GPU_RESOURCES

NVIDIA, AMD, APPLE = "nvidia", "amd", "apple"
RESOURCES: Mapping[str, str] = GPU_RESOURCES
"""The extended resource of each vendor's GPUs. Apple's GPU is shared by all processes, so it is not offered."""

CUDA_VISIBLE, NVIDIA_VISIBLE, CUDA_ORDER = "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
ROCR_VISIBLE, HIP_VISIBLE = "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"


class Gpu(msgspec.Struct, frozen=True):
    """A GPU, or a MIG device, of this machine."""

    vendor: str
    # The number that the vendor's tools give it.
    index: int
    name: str
    # Such as `GPU-8932f937-...`, or `MIG-...`; empty if it is not known.
    uuid: str = ""
    # In bytes; 0 if it is not known.
    memory: int = 0
    # What selects it in the vendor's variable: the number, or the name that the user wrote there.
    id: str = ""
    # The device file that a container needs, where the container engine has no name for the GPU.
    device_file: str = ""


def offered_ids(gpus: Iterable[Gpu]) -> dict[str, tuple[str, ...]]:
    """The ids of the GPUs that pods may request, by resource name."""
    ids: dict[str, tuple[str, ...]] = {}
    for gpu in gpus:
        if gpu.vendor in RESOURCES:
            resource = RESOURCES[gpu.vendor]
            ids[resource] = (*ids.get(resource, ()), gpu.id)
    return ids


def visible_gpus(gpus: Sequence[Gpu], environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs that the variables of a shell leave visible, in their order, as the vendors' libraries read them."""
    nvidia = _select([gpu for gpu in gpus if gpu.vendor == NVIDIA], environ.get(CUDA_VISIBLE))
    amd = _select([gpu for gpu in gpus if gpu.vendor == AMD], environ.get(ROCR_VISIBLE))
    # HIP numbers what ROCr shows it, and reads CUDA's variable where its own is not set.
    within = environ.get(HIP_VISIBLE, environ.get(CUDA_VISIBLE))
    amd = [amd[number] for number in _positions(within, len(amd))]
    return (*nvidia, *amd, *(gpu for gpu in gpus if gpu.vendor not in RESOURCES))


def _select(gpus: Sequence[Gpu], variable: str | None) -> list[Gpu]:
    """The GPUs that a list of numbers, UUIDs or MIG names selects. The first unknown entry ends the list."""
    if variable is None:
        return list(gpus)
    selected: list[Gpu] = []
    for word in (word.strip() for word in variable.split(",")):
        match = next((gpu for gpu in gpus if _is_named(gpu, word)), None)
        if match is None or any(gpu.uuid == match.uuid and gpu.index == match.index for gpu in selected):
            break
        selected.append(msgspec.structs.replace(match, id=word))
    return selected


def _is_named(gpu: Gpu, word: str) -> bool:
    if word.isdecimal():
        return int(word) == gpu.index and not gpu.uuid.startswith("MIG-")
    # The libraries accept the beginning of a UUID.
    return word.startswith(("GPU-", "MIG-")) and gpu.uuid.lower().startswith(word.lower())


def _positions(variable: str | None, count: int) -> list[int]:
    if variable is None:
        return list(range(count))
    numbers: list[int] = []
    for word in (word.strip() for word in variable.split(",")):
        if not word.isdecimal() or int(word) >= count or int(word) in numbers:
            break
        numbers.append(int(word))
    return numbers


def selection_env(resource: str, ids: Sequence[str], gpus: Iterable[Gpu], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that show a process these devices only; `environ` is the environment of the node."""
    selected = ",".join(ids)
    if resource == RESOURCES[NVIDIA]:
        uuids = {gpu.id: gpu.uuid for gpu in gpus if gpu.vendor == NVIDIA and gpu.uuid}
        variables = {CUDA_VISIBLE: selected, NVIDIA_VISIBLE: ",".join(uuids.get(id_, id_) for id_ in ids) or "void"}
        # Numbers are those of nvidia-smi. CUDA counts otherwise unless it is told, or the user wrote CUDA's numbers.
        if CUDA_VISIBLE not in environ and CUDA_ORDER not in environ:
            variables[CUDA_ORDER] = "PCI_BUS_ID"
        return variables
    if resource == RESOURCES[AMD]:
        # HIP counts within the devices of ROCr.
        within = ",".join(map(str, range(len(ids))))
        variables = {ROCR_VISIBLE: selected, HIP_VISIBLE: within}
        return variables | ({CUDA_VISIBLE: within} if CUDA_VISIBLE in environ else {})
    return {}


def summarize_gpus(gpus: Iterable[Gpu]) -> str:
    """For people: `2 x NVIDIA A100-SXM4-40GB, 1 x AMD Radeon VII`; empty without GPUs."""
    counts = Counter((gpu.vendor, gpu.name) for gpu in gpus)
    return ", ".join(
        f"{name} (shared, not offered)" if vendor == APPLE else f"{count} x {name}"
        for (vendor, name), count in counts.items()
    )
