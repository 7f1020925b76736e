"""AMD's GPUs, from the files of the kernel's compute driver, which ROCm itself reads, and in the same order."""

from pathlib import Path

from gangline.node.devices.gpus import AMD, Gpu

TOPOLOGY = "sys/class/kfd/kfd/topology/nodes"
RENDER_DEVICES = "sys/class/drm"


def kernel_gpus(root: Path) -> tuple[Gpu, ...]:
    """The GPUs that ROCm can use. Those that a container may not use cannot be read, and do not count."""
    try:
        nodes = sorted((root / TOPOLOGY).iterdir(), key=lambda node: int(node.name))
    except (OSError, ValueError):
        return ()
    gpus: list[Gpu] = []
    for node in nodes:
        properties = _properties(node / "properties")
        # A node without compute units is a processor.
        if properties.get("simd_count", 0):
            gpus.append(_gpu(root, node, properties, len(gpus)))
    return tuple(gpus)


def usage(root: Path, gpu: Gpu) -> tuple[int, int] | None:
    """Percent and bytes in use of a GPU; None where the driver does not measure them."""
    folder = root / RENDER_DEVICES / Path(gpu.device_file).name / "device"
    try:
        percent = int((folder / "gpu_busy_percent").read_text())
        return percent, int((folder / "mem_info_vram_used").read_text())
    except (OSError, ValueError):
        return None


def _gpu(root: Path, node: Path, properties: dict[str, int], index: int) -> Gpu:
    unique = properties.get("unique_id", 0)
    minor = properties.get("drm_render_minor", 0)
    file = f"/dev/dri/renderD{minor}" if minor else ""
    name = _text(root / RENDER_DEVICES / f"renderD{minor}" / "device" / "product_name")
    name = name or _architecture(properties.get("gfx_target_version", 0))
    memory = sum(_properties(bank / "properties").get("size_in_bytes", 0) for bank in (node / "mem_banks").glob("*"))
    uuid = f"GPU-{unique:016x}" if unique else ""
    return Gpu(AMD, index, name if name.startswith("AMD") else f"AMD {name}", uuid, memory, str(index), file)


def _architecture(version: int) -> str:
    """`gfx90a` for 90010: two decimal digits each for minor and stepping, which are written in hexadecimal."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else "GPU"


def _properties(file: Path) -> dict[str, int]:
    pairs = (line.split() for line in _text(file).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
