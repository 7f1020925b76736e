"""`gangline up` and `gangline down` as a person types them."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from realclients import Kubectl, LocalPlane, gangline


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[LocalPlane]:
    found = LocalPlane(tmp_path / "plane")
    found.up()
    yield found
    found.down()


def modes(folder: Path) -> dict[str, int]:
    return {str(file.relative_to(folder)): stat.S_IMODE(file.stat().st_mode) for file in folder.rglob("*")}


def processes_with(argument: str) -> list[int]:
    """Of everybody: the pods of a plane are not its children."""
    found = psutil.process_iter(["pid", "cmdline"])
    return [each.info["pid"] for each in found if argument in (each.info["cmdline"] or ())]


def test_only_the_owner_can_read_what_a_plane_keeps(plane: LocalPlane) -> None:
    assert stat.S_IMODE(plane.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(plane.kubeconfig.stat().st_mode) == 0o600
    kept = {name: mode for name, mode in modes(plane.folder).items() if mode & 0o077}
    assert {name for name in kept if "key" in name or "token" in name or "state" in name} == set()


def test_a_second_plane_in_the_same_folder_is_refused_in_one_line(plane: LocalPlane) -> None:
    second = gangline("up", "--dir", plane.folder)
    assert second.returncode == 1
    assert second.stdout == ""
    told = f"error: {plane.folder}: a plane is running already (process {plane.pid}); stop it with gangline down\n"
    assert second.stderr == told


def test_state_port_and_token_survive_down_and_up(plane: LocalPlane) -> None:
    kubectl = Kubectl(plane)
    kubectl("create", "configmap", "kept", "--from-literal=a=b")
    before, config = kubectl.get("configmap", "kept"), plane.kubeconfig.read_text()
    plane.down()
    assert kubectl.run("get", "pods").returncode == 1
    plane.up()
    assert kubectl.get("configmap", "kept") == before
    assert plane.kubeconfig.read_text() == config


def test_down_without_a_plane_is_fine(tmp_path: Path) -> None:
    done = gangline("down", "--dir", tmp_path)
    assert done.returncode == 0
    assert done.stderr == f"no plane is running in {tmp_path}\n"


def test_a_plane_that_was_killed_starts_again_with_all_it_had(plane: LocalPlane) -> None:
    kubectl = Kubectl(plane)
    kubectl("create", "configmap", "kept", "--from-literal=a=b")
    first = psutil.Process(plane.pid)
    os.kill(first.pid, signal.SIGKILL)
    first.wait(20)
    assert gangline("down", "--dir", plane.folder).stderr.startswith("no plane is running")
    plane.up()
    assert kubectl.get("configmap", "kept")["data"] == {"a": "b"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_plane_and_every_pod(tmp_path: Path, number: signal.Signals) -> None:
    plane, mark = LocalPlane(tmp_path / "plane"), f"--mark-{os.getpid()}-{number}"
    command = [sys.executable, "-m", "gangline", "up", "--dir", str(plane.folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert "control plane ready" in process.stderr.readline()
            kubectl, sleep = Kubectl(plane), "import time; time.sleep(999)"
            kubectl("run", "p", "--image=any", "--command", "--", sys.executable, "-c", sleep, mark)
            kubectl("wait", "pod/p", "--for=condition=Ready", "--timeout=30s")
            assert processes_with(mark)
            process.send_signal(number)
            assert process.wait(30) == 0
        finally:
            process.kill()
    assert processes_with(mark) == []
    assert not (plane.folder / "pid").exists()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = gangline("up", "--dir", tmp_path / "file" / "plane")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "cannot be used" in done.stderr


def test_a_port_that_is_taken_is_one_line(plane: LocalPlane, tmp_path: Path) -> None:
    port = (plane.folder / "port").read_text()
    done = gangline("up", "--dir", tmp_path / "other", "--port", port)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert port in done.stderr
