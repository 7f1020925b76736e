"""Containers through podman's command line, on a stand-in for podman: real clients' lives, real exit codes."""

import asyncio
import json
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil
import pytest

from gangline.api.core import ConfigMap, Pod, Secret
from gangline.api.meta import JSON
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.node.kubelet import LocalKubelet
from gangline.node.options import node_settings
from gangline.node.runtime.exec import exec_command
from gangline.node.settings import NodeSettings
from support.cluster.node import (
    FAST_SETTINGS,
    container_logs,
    main_container_status,
    running_node,
)
from support.servers.node_api import NodeApi, command_pod, default_key, shell_command
from support.waiting import wait_until

PODMAN = msgspec.structs.replace(FAST_SETTINGS, runtime="podman")


class StandIn(NamedTuple):
    """What the stand-in was asked."""

    folder: Path

    def runs(self) -> list[JSON]:
        found = sorted(self.folder.glob("gangline-*/run"), key=lambda file: file.stat().st_mtime)
        return [json.loads(file.read_text()) for file in found]

    def containers(self, what: str) -> list[Path]:
        return list(self.folder.glob(f"gangline-*/{what}"))


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    program = tmp_path / "bin" / "podman"
    program.parent.mkdir()
    script = Path(__file__).parents[1] / "support" / "cluster" / "podman.py"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{script}" "$@"\n')
    program.chmod(0o755)
    state = tmp_path / "containers"
    state.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("STANDIN", str(state))
    return StandIn(state)


@pytest.fixture
def api() -> NodeApi:
    return NodeApi()


async def test_a_container_runs_from_its_image_and_is_removed(api: NodeApi, tmp_path: Path, podman: StandIn) -> None:
    async with running_node(api, tmp_path, PODMAN):
        await api.client().create(Pod, command_pod("p", *shell_command("echo $IMAGE $HOSTNAME; exit 3")))
        status = await api.wait_phase("p", "Failed")
    assert main_container_status(status)["state"]["terminated"]["exitCode"] == 3
    assert await container_logs(tmp_path, "p") == "none p\n"
    assert len(podman.containers("removed")) == 1


async def test_volumes_and_environment_are_the_containers_own(api: NodeApi, tmp_path: Path, podman: StandIn) -> None:
    env = [
        {"name": "PASS", "valueFrom": {"secretKeyRef": {"name": "s", "key": "p"}}},
        {"name": "HOME", "value": "/data"},
        {"name": "WHERE", "value": "/data/x"},
    ]
    mounts = [{"name": "v", "mountPath": "/data", "readOnly": True}]
    volumes = [{"name": "v", "configMap": {"name": "c"}}]
    command = shell_command("cat /data/a; echo $PASS $WHERE $(WHERE) $GANGLINE_VOLUME_V")
    container = {"env": env, "volumeMounts": mounts, "workingDir": "/data"}
    async with running_node(api, tmp_path, PODMAN):
        client = api.client()
        await client.create(ConfigMap, {"metadata": {"name": "c"}, "data": {"a": "A\n"}}, namespace="default")
        await client.create(Secret, {"metadata": {"name": "s"}, "data": {"p": "cHc="}}, namespace="default")
        await client.create(Pod, command_pod("p", *command, container=container, volumes=volumes))
        await api.wait_phase("p", "Succeeded")
    (run,) = podman.runs()
    # Nothing is rewritten: the paths are real inside. (The stand-in itself rewrites `$(WHERE)`, having no mounts.)
    real = next(real for real, path in run["volumes"] if path == "/data")
    assert await container_logs(tmp_path, "p") == f"A\npw /data/x {real}/x /data\n"
    assert "pw" not in " ".join(run["words"])
    assert "HOME=/data" in run["words"]
    assert f"{real}:/data:ro" in run["words"]


async def test_termination_asks_and_then_kills_the_container(api: NodeApi, tmp_path: Path, podman: StandIn) -> None:
    stubborn = shell_command("trap '' TERM; echo up; while true; do sleep 0.05; done")
    async with running_node(api, tmp_path, PODMAN):
        await api.client().create(Pod, command_pod("polite", "sleep", "99"))
        await api.client().create(Pod, command_pod("stubborn", *stubborn, terminationGracePeriodSeconds=1))
        await api.wait_phase("polite", "Running")
        await api.wait_phase("stubborn", "Running")
        await wait_until(lambda: len(podman.containers("pid")) == 2)
        pids = [int(file.read_text()) for file in podman.containers("pid")]
        await api.client().delete(Pod, default_key("polite"))
        await api.client().delete(Pod, default_key("stubborn"))
        await api.wait_deleted("polite")
        await api.wait_deleted("stubborn")
    assert not any(map(psutil.pid_exists, pids))
    assert len(podman.containers("removed")) == 2


async def test_too_much_memory_is_told_as_such(api: NodeApi, tmp_path: Path, podman: StandIn) -> None:
    script = shell_command("touch $STANDIN/gangline-$GANGLINE_CONTAINER/oom; exit 137")
    container = {
        "resources": {"limits": {"memory": "64Mi", "cpu": "500m"}},
        "env": [{"name": "STANDIN", "value": str(podman.folder)}],
    }
    async with running_node(api, tmp_path, PODMAN):
        await api.client().create(Pod, command_pod("p", *script, container=container))
        status = await api.wait_phase("p", "Failed")
    ended = main_container_status(status)["state"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)
    words = podman.runs()[0]["words"]
    assert words[words.index("--memory") + 1] == str(64 * 2**20)
    assert words[words.index("--cpus") + 1] == "0.5"


async def test_an_image_that_cannot_be_had_is_waited_for(api: NodeApi, tmp_path: Path, podman: StandIn) -> None:
    async with running_node(api, tmp_path, PODMAN):
        await api.client().create(Pod, command_pod("p", "true", container={"image": "missing"}))
        await api.wait_until(lambda: "ErrImagePull" in str(api.stored_pod("p").get("status")))
        waiting = main_container_status(api.stored_pod("p")["status"])["state"]["waiting"]
        assert waiting["message"] == 'pulling image "missing": Error: unauthorized'
        (podman.folder / "images").mkdir()
        (podman.folder / "images" / "missing").touch()
        await api.wait_phase("p", "Succeeded")


async def exec_in(running: LocalKubelet, uid: str, *command: str) -> tuple[int, bytes]:
    target = running.container_targets(uid)["main"]
    async with exec_command(target, command, SystemClock(), stdin=False, tty=False) as started:
        out = b""
        while data := await started.read(1):
            out += data
        return await started.wait(), out


async def test_commands_and_probes_run_in_the_container(api: NodeApi, tmp_path: Path, podman: StandIn) -> None:
    probe = {"exec": {"command": ["sh", "-c", "[ $IMAGE = none ]"]}, "periodSeconds": 1}
    async with running_node(api, tmp_path, PODMAN) as running:
        await api.client().create(Pod, command_pod("p", "sleep", "99", container={"readinessProbe": probe}))
        await api.wait_phase("p", "Running")
        await api.wait_until(lambda: main_container_status(api.stored_pod("p")["status"])["ready"])
        uid = api.stored_pod("p")["metadata"]["uid"]
        assert await exec_in(running, uid, "sh", "-c", "echo in $IMAGE; exit 4") == (4, b"in none\n")


async def test_a_container_outlives_the_node_and_is_adopted(api: NodeApi, tmp_path: Path, podman: StandIn) -> None:
    staying = NodeSettings(runtime="podman", leave_running=True)
    script = shell_command(f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; exit 6")
    async with running_node(api, tmp_path, staying):
        await api.client().create(Pod, command_pod("p", *script))
        await api.wait_phase("p", "Running")
    async with running_node(api, tmp_path, staying):
        await asyncio.to_thread((tmp_path / "go").touch)
        status = await api.wait_phase("p", "Failed")
    assert main_container_status(status)["state"]["terminated"]["exitCode"] == 6
    assert len(podman.runs()) == 1


IMAGE_ONLY = ("sh", "/opt/model/train.sh")
AUTO = msgspec.structs.replace(FAST_SETTINGS, runtime="auto")


async def failure(api: NodeApi, name: str) -> str:
    status = await api.wait_phase(name, "Failed")
    message: str = main_container_status(status)["state"]["terminated"]["message"]
    return message


async def test_auto_runs_a_process_where_it_can_and_asks_no_engine(
    api: NodeApi, tmp_path: Path, podman: StandIn
) -> None:
    (podman.folder / "broken").touch()
    async with running_node(api, tmp_path, AUTO):
        await api.client().create(Pod, command_pod("p", *shell_command("echo $IMAGE.")))
        await api.wait_phase("p", "Succeeded")
    assert await container_logs(tmp_path, "p") == ".\n"
    assert podman.runs() == []


async def test_auto_runs_the_image_where_only_the_image_has_the_file(
    api: NodeApi, tmp_path: Path, podman: StandIn
) -> None:
    # The stand-in finds the command of its images on PATH.
    image_command = podman.folder.parent / "bin" / "entrypoint-of-image"
    image_command.write_text("#!/bin/sh\necho $1 from $IMAGE\nexit 3\n")
    image_command.chmod(0o755)
    async with running_node(api, tmp_path, AUTO):
        body = command_pod("p", container={"image": "i", "args": ["trained"]})
        del body["spec"]["containers"][0]["command"]
        await api.client().create(Pod, body)
        status = await api.wait_phase("p", "Failed")
    assert main_container_status(status)["state"]["terminated"]["exitCode"] == 3
    assert await container_logs(tmp_path, "p") == "trained from i\n"
    assert len(podman.runs()) == 1


async def test_auto_says_why_no_engine_runs_the_image(api: NodeApi, tmp_path: Path, podman: StandIn) -> None:
    async with running_node(api, tmp_path, AUTO):
        await api.client().create(Pod, command_pod("p", *IMAGE_ONLY, container={"image": "missing"}))
        message = await failure(api, "p")
    assert 'image "missing": /opt/model/train.sh exists only in the image' in message
    assert '; or run the image with podman or docker (pulling image "missing": Error: unauthorized)' in message
    (podman.folder / "broken").touch()
    async with running_node(api, tmp_path, AUTO):
        await api.client().create(Pod, command_pod("q", *IMAGE_ONLY))
        assert "with podman or docker (podman: Cannot connect to the daemon)" in await failure(api, "q")


async def test_auto_without_engines(api: NodeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    async with running_node(api, tmp_path, AUTO):
        await api.client().create(Pod, command_pod("p", *IMAGE_ONLY))
        assert "(neither is installed)" in await failure(api, "p")


async def test_auto_does_not_run_mpirun_in_a_container(api: NodeApi, tmp_path: Path, podman: StandIn) -> None:
    container = {"env": [{"name": "OMPI_MCA_plm_rsh_agent", "value": "/etc/mpi/kubexec.sh"}]}
    async with running_node(api, tmp_path, AUTO):
        await api.client().create(Pod, command_pod("p", "no-mpirun", "true", container=container))
        message = await failure(api, "p")
    assert "; install no-mpirun; or run the image with podman or docker (mpirun cannot start its daemons" in message
    assert podman.runs() == []


async def test_auto_never_pulls_the_image_of_a_job_without_one(api: NodeApi, tmp_path: Path, podman: StandIn) -> None:
    async with running_node(api, tmp_path, AUTO):
        await api.client().create(Pod, command_pod("p", *IMAGE_ONLY, container={"image": "local"}))
        assert await failure(api, "p") == (
            'image "local": train.sh is not in /opt/model; correct the command, or put it there'
        )
    assert podman.runs() == []


def test_a_program_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="--runtime podman: no such program; install podman, or leave the option out"):
        node_settings(runtime="podman")


def test_an_engine_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\necho Client: 28\necho Cannot connect to the daemon >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(
        InputError, match="--runtime docker: start it, or leave the option out; it does not answer: Cannot"
    ):
        node_settings(runtime="docker")
