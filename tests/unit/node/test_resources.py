"""Capacity, devices and memory."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from gangline.api.quantity import Quantity
from gangline.base.errors import InputError
from gangline.base.host_features import PORTABLE_VARIABLE
from gangline.node.devices.gpus import Gpu
from gangline.node.resources import (
    DeviceManager,
    MemoryCgroup,
    device_ids,
    machine_capacity,
    parse_capacity,
    processes_over_limit,
    resident_memory,
)


def test_capacity_is_the_machines_and_what_is_declared(tmp_path: Path) -> None:
    capacity = machine_capacity({"nvidia.com/gpu": "4", "cpu": "64"}, tmp_path / "not" / "there")
    assert capacity["nvidia.com/gpu"] == Quantity.of("4")
    assert capacity["cpu"] == Quantity.of("64")
    assert capacity["memory"] > Quantity.of("100Mi")
    assert str(capacity["memory"]).endswith("i")


def test_capacity_is_written_as_name_and_amount() -> None:
    assert parse_capacity(["nvidia.com/gpu=4", "cpu=2"]) == {"nvidia.com/gpu": "4", "cpu": "2"}
    with pytest.raises(InputError, match="write NAME=AMOUNT"):
        parse_capacity(["gpu"])
    with pytest.raises(InputError, match='--capacity gpu=many: "many" is not a quantity'):
        parse_capacity(["gpu=many"])
    assert parse_capacity(["gpu=2"]) == {"nvidia.com/gpu": "2"}
    with pytest.raises(InputError, match="--capacity cpu=-1: is less than nothing"):
        parse_capacity(["cpu=-1"])
    with pytest.raises(InputError, match=r"--capacity nvidia.com/gpu=1\.5: there is no part of a device"):
        parse_capacity(["nvidia.com/gpu=1.5"])


GPUS = (
    Gpu("nvidia", 0, "A", "GPU-aa", 0, "0"),
    Gpu("nvidia", 1, "A", "GPU-bb", 0, "1"),
    Gpu("amd", 0, "R", "GPU-cc", 0, "0"),
    Gpu("apple", 0, "M", "", 0, "0"),
)


def test_detected_gpus_are_capacity_unless_declared_otherwise(tmp_path: Path) -> None:
    capacity = machine_capacity({}, tmp_path, GPUS)
    assert (capacity["nvidia.com/gpu"], capacity["amd.com/gpu"]) == (Quantity.of("2"), Quantity.of("1"))
    assert not any("apple" in name for name in capacity)
    assert machine_capacity({"nvidia.com/gpu": "8"}, tmp_path, GPUS)["nvidia.com/gpu"] == Quantity.of("8")


def test_devices_are_given_out_once_and_come_back() -> None:
    devices = DeviceManager({"nvidia.com/gpu": "3"})
    first = devices.allocate({"nvidia.com/gpu": "2", "memory": "1Gi"})
    assert first == {"nvidia.com/gpu": ("0", "1")}
    assert devices.allocate({"nvidia.com/gpu": "2"}) is None
    devices.free(first)
    assert devices.allocate({"nvidia.com/gpu": "3"}) == {"nvidia.com/gpu": ("0", "1", "2")}


def test_devices_come_back_in_their_order() -> None:
    devices = DeviceManager({"nvidia.com/gpu": "12"})
    devices.allocate({"nvidia.com/gpu": "12"})
    devices.free({"nvidia.com/gpu": ("10", "2")})
    assert devices.allocate({"nvidia.com/gpu": "2"}) == {"nvidia.com/gpu": ("2", "10")}


def test_adopted_devices_are_not_given_out() -> None:
    devices = DeviceManager({"nvidia.com/gpu": "3"})
    devices.restore({"nvidia.com/gpu": ("1",)})
    assert devices.allocate({"nvidia.com/gpu": "2"}) == {"nvidia.com/gpu": ("0", "2")}
    # An earlier version recorded numbers.
    devices = DeviceManager({"nvidia.com/gpu": "3"})
    devices.restore({"nvidia.com/gpu": (1,)})
    assert devices.allocate({"nvidia.com/gpu": "2"}) == {"nvidia.com/gpu": ("0", "2")}


def test_a_device_of_an_earlier_node_that_is_not_offered_any_more_is_not_given_out() -> None:
    devices = DeviceManager({"nvidia.com/gpu": "1"})
    devices.free({"nvidia.com/gpu": ("7",), "example.org/fpga": ("0",)})
    assert devices.allocate({"nvidia.com/gpu": "2"}) is None
    assert devices.allocate({"nvidia.com/gpu": "1"}) == {"nvidia.com/gpu": ("0",)}


def test_a_declared_amount_takes_detected_gpus_first() -> None:
    ids = ("MIG-a", "1")
    gpus = tuple(Gpu("nvidia", index, "A", id_, 0, id_) for index, id_ in enumerate(ids))
    assert device_ids({"nvidia.com/gpu": "1"}, gpus) == {"nvidia.com/gpu": ("MIG-a",)}
    assert device_ids({"nvidia.com/gpu": "4"}, gpus) == {"nvidia.com/gpu": ("MIG-a", "1", "0", "2")}
    assert device_ids({"nvidia.com/gpu": "0"}, gpus) == {"nvidia.com/gpu": ()}


def test_who_requests_no_device_sees_what_the_shell_sees_unless_the_amount_is_declared() -> None:
    detected = DeviceManager({}, GPUS)
    assert detected.device_env({}, {}) == {}
    assert detected.device_env({"nvidia.com/gpu": ("1",)}, {})["CUDA_VISIBLE_DEVICES"] == "1"
    declared = DeviceManager({"nvidia.com/gpu": "3"})
    assert declared.device_env({"nvidia.com/gpu": ("0", "2")}, {})["CUDA_VISIBLE_DEVICES"] == "0,2"
    assert declared.device_env({}, {})["CUDA_VISIBLE_DEVICES"] == ""
    assert DeviceManager({}).device_env({}, {}) == {}


def test_who_requests_no_device_beside_replicas_that_do_sees_none() -> None:
    env = DeviceManager({}, GPUS).device_env({}, {}, hide=True)
    assert (env["CUDA_VISIBLE_DEVICES"], env["ROCR_VISIBLE_DEVICES"]) == ("", "")


def test_memory_counts_descendants() -> None:
    inner = "x = bytearray(60_000_000); print(1, flush=True); input()"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    process = subprocess.Popen([sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        assert resident_memory([process.pid])[process.pid] > 60_000_000
        assert processes_over_limit({process.pid: 50_000_000})[process.pid] > 50_000_000
        assert processes_over_limit({process.pid: 500_000_000}) == {}
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def test_memory_shared_with_children_is_counted_once() -> None:
    """A loader whose forked workers share its data is not above its limit."""
    script = (
        "import os, sys\nx = bytearray(100_000_000)\n"
        "pids = []\n"
        "for _ in range(3):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n"
        "        sys.stdin.read(); os._exit(0)\n"
        "    pids.append(pid)\n"
        "print(1, flush=True)\nsys.stdin.read()\n[os.waitpid(pid, 0) for pid in pids]\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        assert resident_memory([process.pid])[process.pid] > 300_000_000
        assert processes_over_limit({process.pid: 250_000_000}) == {}


def test_where_private_memory_may_not_be_measured_resident_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS forbids it to everybody but root."""

    def forbidden(process: psutil.Process) -> NoReturn:
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "memory_full_info", forbidden)
    me = os.getpid()
    assert processes_over_limit({me: 1_000_000})[me] > 1_000_000


def test_capacity_without_affinity_counts_all_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(PORTABLE_VARIABLE, "1")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    assert machine_capacity({}, tmp_path)["cpu"] == Quantity.of("12")


def test_a_process_that_is_gone_has_no_memory() -> None:
    assert resident_memory([2**22 + 1]) == {2**22 + 1: 0}


def test_a_cgroup_of_version_2(tmp_path: Path) -> None:
    group = MemoryCgroup(tmp_path, "c")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "memory.oom.group").touch()
    assert group.create(1024) == tmp_path / "c" / "cgroup.procs"
    assert (tmp_path / "c" / "memory.max").read_text() == "1024"
    assert (tmp_path / "c" / "memory.oom.group").read_text() == "1"
    assert not group.has_oom_kill()
    (tmp_path / "c" / "memory.events").write_text("low 0\noom 1\noom_kill 2\n")
    assert group.has_oom_kill()
    group.remove()


def test_a_cgroup_of_version_1(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "memory.limit_in_bytes").touch()
    (tmp_path / "c" / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    group = MemoryCgroup(tmp_path, "c")
    group.create(2048)
    assert (tmp_path / "c" / "memory.limit_in_bytes").read_text() == "2048"
    assert group.has_oom_kill()
