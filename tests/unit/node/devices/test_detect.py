"""GPUs of a machine: from fake drivers' files, and from programs that answer as nvidia-smi does."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gangline.base.errors import InputError
from gangline.node.devices import detect
from gangline.node.devices.detect import detect_gpus, measure_gpus, run_program
from gangline.node.devices.gpus import Gpu, summarize_gpus

# Answers of real drivers: index, name, uuid, memory.total (and mig.mode.current since 450).
DRIVER_390 = """\
0, GeForce GTX 1060 6GB, GPU-f3da2e71-6e43-729a-e3ae-f731ed96d50c, 6078
1, GeForce GTX 1080 Ti, GPU-15ea7bf9-1a0e-2d7f-9c62-c28e5ca1aaf1, 11178
"""
DRIVER_535 = """\
0, NVIDIA GeForce RTX 3070 Laptop GPU, GPU-22b2c6ac-2d49-4863-197c-9c469071178a, 8192, [N/A]
1, NVIDIA GeForce RTX 3080 Laptop GPU, GPU-101b1cf0-fdf7-b374-a62c-76b25134fcf2, 8192, [N/A]
"""
DRIVER_580_UNIFIED_MEMORY = "0, NVIDIA GB10, GPU-e3f822b9-8c5f-95a5-b379-8dfdeefd7758, [N/A], [N/A]\n"
DRIVER_535_MIG = """\
0, NVIDIA A100-SXM4-80GB, GPU-513536b6-7d19-9063-b049-1e69664bb298, 81920, Enabled
1, NVIDIA A100-SXM4-80GB, GPU-d8594bd4-0fc3-8595-e355-7c98138f3b95, 81920, Disabled
"""
LIST_535_MIG = """\
GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-513536b6-7d19-9063-b049-1e69664bb298)
  MIG 1g.20gb     Device  0: (UUID: MIG-ce861fb0-a248-58ce-a9a8-f9adbc22a66a)
  MIG 1g.20gb     Device  1: (UUID: MIG-a45882f0-9215-5733-a0c1-49286ab31cb5)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-d8594bd4-0fc3-8595-e355-7c98138f3b95)
"""
DRIVER_450_MIG = """\
0, A100-PCIE-40GB, GPU-c66f2b7d-c5d2-c0d1-e453-6f7f47a3b1d4, 40536, Enabled
"""
LIST_450_MIG = """\
GPU 0: A100-PCIE-40GB (UUID: GPU-c66f2b7d-c5d2-c0d1-e453-6f7f47a3b1d4)
  MIG 3g.20gb Device 0: (UUID: MIG-GPU-c66f2b7d-c5d2-c0d1-e453-6f7f47a3b1d4/1/0)
  MIG 3g.20gb Device 1: (UUID: MIG-GPU-c66f2b7d-c5d2-c0d1-e453-6f7f47a3b1d4/2/0)
"""
NO_DRIVER = """\
NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver \
is installed and running.

"""
REFUSED = 'Field "mig.mode.current" is not a valid field to query.\n\n'

INFORMATION = """\
Model: \t\t {model}
IRQ:   \t\t 44
GPU UUID: \t {uuid}
Video BIOS: \t 80.07.35.00.80
Bus Type: \t PCIe
DMA Size: \t 40 bits
DMA Mask: \t 0xffffffffff
Bus Location: \t {bus}
Device Minor: \t 0
"""
GTX = "GPU-e3f822b9-8c5f-95a5-b379-8dfdeefd7758"

# A node of the kernel's topology, as on a machine with a Radeon VII: the processor, then the GPU.
PROCESSOR = "cpu_cores_count 16\nsimd_count 0\nmem_banks_count 1\ndrm_render_minor 0\nvendor_id 0\n"
RADEON = """\
cpu_cores_count 0
simd_count 240
mem_banks_count 1
gfx_target_version {version}
vendor_id 4098
device_id 26287
location_id 2816
domain 0
drm_render_minor {minor}
unique_id {unique}
"""


def smi(folder: Path, answers: dict[str, str], code: int = 0) -> dict[str, str]:
    """The environment of a machine with an nvidia-smi that gives these answers, by its first word."""
    folder.mkdir(parents=True, exist_ok=True)
    cases = "".join(f"  {word}) cat <<'END'\n{text}END\n;;\n" for word, text in answers.items())
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\necho "$*" >> "{folder}/calls"\ncase "$1" in\n{cases}esac\nexit {code}\n')
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def driver(root: Path, *gpus: tuple[str, str, str]) -> Path:
    """The files of the driver for GPUs (bus, model, uuid)."""
    for bus, model, uuid in gpus:
        folder = root / "proc/driver/nvidia/gpus" / bus
        folder.mkdir(parents=True)
        (folder / "information").write_text(INFORMATION.format(model=model, uuid=uuid, bus=bus))
    return root


def topology(root: Path, *nodes: str) -> Path:
    for number, properties in enumerate(nodes):
        folder = root / "sys/class/kfd/kfd/topology/nodes" / str(number)
        (folder / "mem_banks/0").mkdir(parents=True)
        (folder / "properties").write_text(properties)
        (folder / "mem_banks/0/properties").write_text("heap_type 1\nsize_in_bytes 17163091968\nflags 0\n")
    return root


QUERY, OLD_QUERY, LIST = '"--query-gpu="*mig*', '"--query-gpu="*', '"-L"'


def test_a_machine_without_gpus_runs_no_program_and_has_none(tmp_path: Path) -> None:
    assert detect_gpus({"PATH": "/nowhere"}, root=tmp_path) == ()


def test_the_detection_loads_no_library_of_a_vendor_where_there_is_no_gpu(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib, subprocess\nfrom gangline.node.devices import detect_gpus\nsubprocess.Popen = None\n"
        f"print(detect_gpus({{'PATH': '/nowhere'}}, root=pathlib.Path({str(tmp_path)!r})), 'ctypes' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "() False\n"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            DRIVER_535,
            [
                ("NVIDIA GeForce RTX 3070 Laptop GPU", 8192 * 2**20),
                ("NVIDIA GeForce RTX 3080 Laptop GPU", 8192 * 2**20),
            ],
        ),
        (DRIVER_580_UNIFIED_MEMORY, [("NVIDIA GB10", 0)]),
        (NO_DRIVER, []),
        ("No devices were found\n", []),
        ("", []),
    ],
)
def test_answers_of_nvidia_smi(tmp_path: Path, answer: str, expected: list[tuple[str, int]]) -> None:
    environ = smi(tmp_path / "bin", {QUERY: answer})
    gpus = detect_gpus(environ, root=tmp_path / "root")
    assert [(gpu.name, gpu.memory) for gpu in gpus] == expected
    assert [(gpu.vendor, gpu.index, gpu.id) for gpu in gpus] == [
        ("nvidia", index, str(index)) for index in range(len(expected))
    ]


def test_a_driver_that_knows_no_mig_is_asked_without_it(tmp_path: Path) -> None:
    environ = smi(tmp_path / "bin", {QUERY: REFUSED, OLD_QUERY: DRIVER_390}, code=2)
    gpus = detect_gpus(environ, root=tmp_path / "root")
    assert [gpu.name for gpu in gpus] == ["NVIDIA GeForce GTX 1060 6GB", "NVIDIA GeForce GTX 1080 Ti"]
    assert gpus[1].uuid == "GPU-15ea7bf9-1a0e-2d7f-9c62-c28e5ca1aaf1"


@pytest.mark.parametrize(
    ("query", "devices", "expected"),
    [
        (
            DRIVER_535_MIG,
            LIST_535_MIG,
            [
                ("NVIDIA A100-SXM4-80GB MIG 1g.20gb", "MIG-ce861fb0-a248-58ce-a9a8-f9adbc22a66a"),
                ("NVIDIA A100-SXM4-80GB MIG 1g.20gb", "MIG-a45882f0-9215-5733-a0c1-49286ab31cb5"),
                ("NVIDIA A100-SXM4-80GB", "1"),
            ],
        ),
        (
            DRIVER_450_MIG,
            LIST_450_MIG,
            [
                ("NVIDIA A100-PCIE-40GB MIG 3g.20gb", "MIG-GPU-c66f2b7d-c5d2-c0d1-e453-6f7f47a3b1d4/1/0"),
                ("NVIDIA A100-PCIE-40GB MIG 3g.20gb", "MIG-GPU-c66f2b7d-c5d2-c0d1-e453-6f7f47a3b1d4/2/0"),
            ],
        ),
    ],
)
def test_mig_devices_take_the_place_of_their_gpu(
    tmp_path: Path, query: str, devices: str, expected: list[tuple[str, str]]
) -> None:
    environ = smi(tmp_path / "bin", {QUERY: query, LIST: devices})
    gpus = detect_gpus(environ, root=tmp_path / "root")
    assert [(gpu.name, gpu.id) for gpu in gpus] == expected


def test_the_drivers_files_are_enough_for_a_quick_look(tmp_path: Path) -> None:
    root = driver(tmp_path, ("0000:41:00.0", "NVIDIA B", f"{GTX[:-1]}9"), ("0000:04:00.0", "GeForce GTX 650", GTX))
    environ = smi(tmp_path / "bin", {QUERY: DRIVER_535})
    gpus = detect_gpus(environ, quick=True, root=root)
    assert [(gpu.index, gpu.name, gpu.uuid) for gpu in gpus] == [
        (0, "NVIDIA GeForce GTX 650", GTX),
        (1, "NVIDIA B", f"{GTX[:-1]}9"),
    ]
    assert not (tmp_path / "bin" / "calls").exists()
    assert detect_gpus(environ, root=root)[0].memory == 8192 * 2**20


@pytest.mark.parametrize("reason", ["no uuid yet", "mig"])
def test_a_quick_look_asks_nvidia_smi_for_what_the_files_do_not_tell(tmp_path: Path, reason: str) -> None:
    uuid = "GPU-????????-????-????-????-????????????" if reason == "no uuid yet" else GTX
    root = driver(tmp_path, ("0000:04:00.0", "NVIDIA A100-SXM4-80GB", uuid))
    if reason == "mig":
        (root / "proc/driver/nvidia/capabilities/gpu0/mig/gi1").mkdir(parents=True)
    environ = smi(tmp_path / "bin", {QUERY: DRIVER_535_MIG, LIST: LIST_535_MIG})
    assert len(detect_gpus(environ, quick=True, root=root)) == 3


def test_a_program_that_hangs_is_given_up_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    root = driver(tmp_path, ("0000:04:00.0", "GeForce GTX 650", GTX))
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec sleep 300\n")
    program.chmod(0o755)
    monkeypatch.setattr(detect, "run_once", functools.cache(functools.partial(run_program, timeout=0.05)))
    for _ in range(2):
        # The files of the driver still tell that there is one.
        assert [gpu.uuid for gpu in detect_gpus({"PATH": str(program.parent)}, root=root)] == [GTX]
    assert len(caplog.records) == 1
    assert "GANGLINE_GPUS=none" in caplog.text


def test_a_program_that_cannot_run_is_no_gpu(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_bytes(b"\x7fELF of another machine")
    program.chmod(0o755)
    assert detect_gpus({"PATH": str(tmp_path)}, root=tmp_path) == ()


def test_amd_gpus_come_from_the_kernels_files(tmp_path: Path) -> None:
    root = topology(
        tmp_path,
        PROCESSOR,
        RADEON.format(version=90006, minor=128, unique=7155534708977696464),
        RADEON.format(version=90010, minor=129, unique=0),
    )
    device = root / "sys/class/drm/renderD128/device"
    device.mkdir(parents=True)
    (device / "product_name").write_text("AMD Radeon VII\n")
    (device / "gpu_busy_percent").write_text("87\n")
    (device / "mem_info_vram_used").write_text("1073741824\n")
    gpus = detect_gpus({}, root=root)
    assert gpus == (
        Gpu("amd", 0, "AMD Radeon VII", "GPU-634d90e7fa97fed0", 17163091968, "0", "/dev/dri/renderD128"),
        Gpu("amd", 1, "AMD gfx90a", "", 17163091968, "1", "/dev/dri/renderD129"),
    )
    ids = ("0", gpus[0].uuid)
    assert measure_gpus({}, root=root) == {("amd.com/gpu", id_): (87, 2**30) for id_ in ids}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_amd_gpus_that_may_not_be_read_do_not_count(tmp_path: Path) -> None:
    root = topology(tmp_path, RADEON.format(version=90006, minor=128, unique=1))
    (root / "sys/class/kfd/kfd/topology/nodes/0/properties").chmod(0)
    assert detect_gpus({}, root=root) == ()


def test_usage_is_measured_by_nvidia_smi(tmp_path: Path) -> None:
    usage = '"--query-gpu=index,uuid,util"*'
    answer = "0, GPU-22b2c6ac-2d49-4863-197c-9c469071178a, 86, 512\n1, GPU-x, [Unknown Error], 12\n"
    environ = smi(tmp_path / "bin", {usage: answer, QUERY: DRIVER_535})
    ids = ("0", "GPU-22b2c6ac-2d49-4863-197c-9c469071178a")
    assert measure_gpus(environ, root=tmp_path / "root") == {("nvidia.com/gpu", id_): (86, 512 * 2**20) for id_ in ids}


def test_a_variable_replaces_the_detection(tmp_path: Path) -> None:
    environ = smi(tmp_path / "bin", {QUERY: DRIVER_535})
    assert detect_gpus({**environ, "GANGLINE_GPUS": "none"}, root=tmp_path) == ()
    gpus = detect_gpus({**environ, "GANGLINE_GPUS": "nvidia=2,amd=1"}, root=tmp_path)
    assert [(gpu.vendor, gpu.id) for gpu in gpus] == [("nvidia", "0"), ("nvidia", "1"), ("amd", "0")]
    assert summarize_gpus(gpus) == "2 x nvidia test GPU, 1 x amd test GPU"
    with pytest.raises(InputError, match="GANGLINE_GPUS=4: write none, nvidia=4 or amd=2"):
        detect_gpus({"GANGLINE_GPUS": "4"}, root=tmp_path)


def test_apples_gpu_is_shown_and_not_offered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mac = os.uname_result(("Darwin", "mac", "24.0", "", "arm64"))
    monkeypatch.setattr(os, "uname", lambda: mac)
    gpus = detect_gpus({"PATH": "/nowhere"}, root=tmp_path)
    assert summarize_gpus(gpus) == "Apple GPU (shared, not offered)"
