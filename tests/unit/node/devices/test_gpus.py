"""Which GPUs a shell shows, and the variables that give a process its own."""

import pytest

from gangline.node.devices.gpus import Gpu, offered_ids, selection_env, visible_gpus

NVIDIA = (
    Gpu("nvidia", 0, "A", "GPU-aa11", 0, "0"),
    Gpu("nvidia", 1, "A", "GPU-bb22", 0, "1"),
    Gpu("nvidia", 2, "A MIG 1g.5gb", "MIG-cc33", 0, "MIG-cc33"),
)
AMD = tuple(Gpu("amd", index, "R", f"GPU-0{index}", 0, str(index)) for index in range(4))


@pytest.mark.parametrize(
    ("variable", "ids"),
    [
        (None, ["0", "1", "MIG-cc33"]),
        ("1,0", ["1", "0"]),
        (" 1 , 0 ", ["1", "0"]),
        ("GPU-bb", ["GPU-bb"]),
        ("gpu-bb", []),
        ("MIG-cc33,0", ["MIG-cc33", "0"]),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("0,7,1", ["0"]),
        ("0,0", ["0"]),
        ("0,GPU-aa11", ["0"]),
        ("2", []),
    ],
)
def test_cudas_variable_is_read_as_cuda_reads_it(variable: str | None, ids: list[str]) -> None:
    environ = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
    assert [gpu.id for gpu in visible_gpus(NVIDIA, environ)] == ids


@pytest.mark.parametrize(
    ("environ", "ids"),
    [
        ({}, ["0", "1", "2", "3"]),
        ({"ROCR_VISIBLE_DEVICES": "2,3"}, ["2", "3"]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-03,1"}, ["GPU-03", "1"]),
        ({"HIP_VISIBLE_DEVICES": "1"}, ["1"]),
        ({"ROCR_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "1"}, ["3"]),
        ({"CUDA_VISIBLE_DEVICES": "0"}, ["0"]),
        ({"CUDA_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "2"}, ["2"]),
        ({"HIP_VISIBLE_DEVICES": ""}, []),
    ],
)
def test_rocms_variables_are_read_as_rocm_reads_them(environ: dict[str, str], ids: list[str]) -> None:
    assert [gpu.id for gpu in visible_gpus(AMD, environ)] == ids


def test_the_variables_of_an_nvidia_gpu() -> None:
    assert selection_env("nvidia.com/gpu", ["1"], NVIDIA, {}) == {
        "CUDA_VISIBLE_DEVICES": "1",
        "NVIDIA_VISIBLE_DEVICES": "GPU-bb22",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    # Numbers that the user wrote are CUDA's, in the order that the user's shell has.
    environ = {"CUDA_VISIBLE_DEVICES": "1,0"}
    visible = visible_gpus(NVIDIA, environ)
    assert selection_env("nvidia.com/gpu", ["1"], visible, environ) == {
        "CUDA_VISIBLE_DEVICES": "1",
        "NVIDIA_VISIBLE_DEVICES": "GPU-bb22",
    }
    assert selection_env("nvidia.com/gpu", [], NVIDIA, environ) == {
        "CUDA_VISIBLE_DEVICES": "",
        "NVIDIA_VISIBLE_DEVICES": "void",
    }


def test_the_variables_of_an_amd_gpu() -> None:
    assert selection_env("amd.com/gpu", ["2", "3"], AMD, {}) == {
        "ROCR_VISIBLE_DEVICES": "2,3",
        "HIP_VISIBLE_DEVICES": "0,1",
    }
    assert selection_env("amd.com/gpu", ["2"], AMD, {"CUDA_VISIBLE_DEVICES": "2"})["CUDA_VISIBLE_DEVICES"] == "0"


def test_other_devices_have_no_variables() -> None:
    assert selection_env("example.org/fpga", ["0"], (), {}) == {}


def test_apples_gpu_is_not_offered() -> None:
    assert offered_ids([Gpu("apple", 0, "Apple GPU", id="0"), AMD[1]]) == {"amd.com/gpu": ("1",)}
