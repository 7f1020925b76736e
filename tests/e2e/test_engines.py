"""Containers of real podman and docker, with images from a registry on loopback (hack/engines.sh)."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from gangline.api.core import ConfigMap, Pod, Secret
from gangline.base.clock import SystemClock
from gangline.local.stack_sampling import LocalStackSampler
from gangline.node.runtime.exec import exec_command
from gangline.node.settings import NodeSettings
from gangline.stacks.groups import stack_groups
from gangline.stacks.sentence import stacks_sentence
from support.cluster import engines
from support.cluster.engines import Engine, Registry
from support.cluster.node import FAST_SETTINGS, container_logs, main_container_status, running_node
from support.servers.node_api import NodeApi, command_pod, default_key, shell_command
from support.waiting import wait_until

pytestmark = [pytest.mark.engines, pytest.mark.xdist_group("engines")]

SCRIPT = """\
import os, sys
print("trained", os.environ.get("FROM_IMAGE"), os.getcwd(), sys.argv[1:])
"""
# Worker 0 listens where TF_CONFIG says, and the others connect.
TEAM = """\
import json, os, socket, time
config = json.loads(os.environ["TF_CONFIG"])
host, port = config["cluster"]["worker"][0].split(":")
if config["task"]["index"] == 0:
    with socket.create_server((host, int(port))) as server:
        print("met", server.accept()[0].recv(100).decode(), flush=True)
else:
    while True:
        try:
            socket.create_connection((host, int(port))).sendall(os.environ["HOSTNAME"].encode())
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
"""
WAIT = "import os, sys, time\nopen('/shared/up', 'w')\nwhile not os.path.exists('/shared/go'): time.sleep(0.05)\nsys.exit(6)\n"
FILES = {"/opt/model/train.py": SCRIPT, "/opt/model/team.py": TEAM, "/opt/model/wait.py": WAIT}
CHANGES = ('ENTRYPOINT ["python", "/opt/model/train.py"]', "WORKDIR /opt/model", "ENV FROM_IMAGE=yes")


@pytest.fixture(scope="module")
def packages() -> Path:
    return engines.packages_folder()


@pytest.fixture(scope="module")
def registry(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with engines.registry(packages, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def image(packages: Path, registry: Registry, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of an image that only the registry has."""
    folder = tmp_path_factory.mktemp("builder")
    name = registry.image("team/model:1")
    with engines.podman(packages, folder) as builder:
        engines.import_image(builder, engines.image_archive(packages, folder / "root.tar", FILES), name, CHANGES)
        engines.check_runs(builder, name)
        builder("push", "--tls-verify=false", name)
    return name


@pytest.fixture(scope="module", params=["podman", "docker"])
def engine(
    request: pytest.FixtureRequest, packages: Path, image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    start = {"podman": engines.podman, "docker": engines.docker}[request.param]
    with start(packages, tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture
def api() -> NodeApi:
    return NodeApi()


@pytest.fixture(autouse=True)
def on_path(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only this engine is on PATH; and it has no container before and after."""
    monkeypatch.setenv("PATH", f"{engine.program.parent}:{os.path.dirname(sys.executable)}:/usr/bin:/bin")  # noqa: PTH120
    yield
    assert engine.containers() == []


def settings(engine: Engine) -> NodeSettings:
    return msgspec.structs.replace(FAST_SETTINGS, runtime=engine.kind)


def run(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "gangline", "run", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=100)


def has_logged(folder: Path, pod: str, word: str) -> bool:
    return any(word in file.read_text() for file in folder.rglob(f"default_{pod}_*/main/0.log"))


def tf_job(image: str, *command: str, replicas: int = 1) -> str:
    container = {"name": "tensorflow", "image": image, **({"command": list(command)} if command else {})}
    template = {"spec": {"containers": [container]}}
    spec = {"tfReplicaSpecs": {"Worker": {"replicas": replicas, "restartPolicy": "Never", "template": template}}}
    body = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "mnist"}, "spec": spec}
    return msgspec.json.encode(body).decode()


@pytest.mark.parametrize("command", [(), ("python", "/opt/model/train.py", "--lr", "1")])
def test_a_file_for_a_cluster_runs_with_no_flag_where_an_engine_is(
    engine: Engine, image: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / "job.yaml").write_text(tf_job(image, *command))
    done = run(tmp_path, "job.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"| trained yes /opt/model {list(command[2:])}" in done.stdout


def test_containers_of_a_team_reach_each_other(engine: Engine, image: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(tf_job(image, "python", "/opt/model/team.py", replicas=2))
    done = run(tmp_path, "job.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "worker-0| met mnist-worker-1" in done.stdout


def test_what_runs_as_a_process_stays_a_process(engine: Engine, image: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os; print('here', os.environ.get('FROM_IMAGE'))")
    (tmp_path / "job.yaml").write_text(tf_job(image, "python", "train.py"))
    done = run(tmp_path, "job.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| here None" in done.stdout


def test_an_image_that_cannot_be_pulled_is_one_line(
    engine: Engine, registry: Registry, image: str, tmp_path: Path
) -> None:
    missing = registry.image("team/none:1")
    (tmp_path / "job.yaml").write_text(tf_job(missing, "python", "/opt/model/train.py"))
    done = run(tmp_path, "job.yaml")
    (line,) = {line for line in done.stdout.splitlines() if line.startswith("warning: ")}
    assert f'image "{missing}": /opt/model/train.py exists only in the image' in line
    assert "add --image-map /opt/model=." in line
    assert f'(pulling image "{missing}": ' in line


async def test_exit_code_logs_environment_and_volumes(engine: Engine, image: str, api: NodeApi, tmp_path: Path) -> None:
    env = [
        {"name": "PASS", "valueFrom": {"secretKeyRef": {"name": "s", "key": "p"}}},
        {"name": "HOME", "value": "/data"},
        {"name": "WHERE", "value": "/data/a"},
    ]
    mounts = [{"name": "v", "mountPath": "/data", "readOnly": True}, {"name": "e", "mountPath": "/scratch"}]
    volumes = [{"name": "v", "configMap": {"name": "c"}}, {"name": "e", "emptyDir": {}}]
    script = (
        "cat $(WHERE); echo $PASS $HOME $FROM_IMAGE $HOSTNAME $PWD; touch /data/x || echo read-only; "
        "touch /scratch/x && echo ends > /dev/termination-log; exit 7"
    )
    container = {"image": image, "env": env, "volumeMounts": mounts, "workingDir": "/scratch"}
    async with running_node(api, tmp_path, settings(engine)):
        client = api.client()
        await client.create(ConfigMap, {"metadata": {"name": "c"}, "data": {"a": "A\n"}}, namespace="default")
        await client.create(Secret, {"metadata": {"name": "s"}, "data": {"p": "cHc="}}, namespace="default")
        body = command_pod("p", *shell_command(script), container=container, volumes=volumes)
        await client.create(Pod, body)
        ended = main_container_status(await api.wait_phase("p", "Failed"))["state"]["terminated"]
    assert (ended["exitCode"], ended["message"]) == (7, "ends\n")
    lines = (await container_logs(tmp_path, "p")).splitlines()
    assert lines[:2] == ["A", "pw /data yes p /scratch"]
    assert "read-only" in lines


async def test_the_stack_of_a_program_in_a_container_is_read_from_outside(
    engine: Engine, image: str, api: NodeApi, tmp_path: Path
) -> None:
    """With its source lines, which only the image has."""
    script = "mkdir /shared; python /opt/model/wait.py; true"
    body = command_pod("p", *shell_command(script), container={"image": image})
    sampler, sentence = LocalStackSampler(tmp_path), ""
    async with running_node(api, tmp_path, settings(engine)):
        client = api.client()
        await client.create(Pod, body)
        await api.wait_phase("p", "Running")
        pod = await client.get(Pod, default_key("p"))

        async def stands() -> bool:
            nonlocal sentence
            sentence = stacks_sentence(stack_groups(await sampler.sample([pod])))
            return sentence == "p sleeps (wait.py:3)"

        try:
            await wait_until(stands, seconds=20)
        except TimeoutError:
            pytest.fail(sentence)
        (stack,) = await sampler.sample([pod])
    frames = [frame for one in stack.processes for thread in one.threads for frame in thread.frames]
    assert [frame.code for frame in frames] == ["while not os.path.exists('/shared/go'): time.sleep(0.05)"]


async def test_arguments_are_for_the_images_own_command(
    engine: Engine, image: str, api: NodeApi, tmp_path: Path
) -> None:
    env = [{"name": "RATE", "value": "0.1"}]
    body = command_pod("p", container={"image": image, "args": ["--lr", "$(RATE)", "$(NO)"], "env": env})
    del body["spec"]["containers"][0]["command"]
    async with running_node(api, tmp_path, settings(engine)):
        await api.client().create(Pod, body)
        await api.wait_phase("p", "Succeeded")
    assert await container_logs(tmp_path, "p") == "trained yes /opt/model ['--lr', '0.1', '$(NO)']\n"


async def test_a_deleted_pod_is_asked_to_end_and_then_killed(
    engine: Engine, image: str, api: NodeApi, tmp_path: Path
) -> None:
    polite = shell_command("trap 'echo bye; exit 0' TERM; echo up; while true; do sleep 0.1; done")
    stubborn = shell_command("trap '' TERM; echo up; while true; do sleep 0.1; done")
    async with running_node(api, tmp_path, settings(engine)):
        await api.client().create(Pod, command_pod("polite", *polite, container={"image": image}))
        body = command_pod("stubborn", *stubborn, container={"image": image}, terminationGracePeriodSeconds=1)
        await api.client().create(Pod, body)
        for name in ("polite", "stubborn"):
            await api.wait_phase(name, "Running")
            await wait_until(partial(has_logged, tmp_path, name, "up"))
        for name in ("polite", "stubborn"):
            await api.client().delete(Pod, default_key(name))
        await api.wait_deleted("polite")
        assert (await container_logs(tmp_path, "polite")).splitlines() == ["up", "bye"]
        await api.wait_deleted("stubborn")


async def test_a_container_above_its_memory_limit_is_killed_for_it(
    engine: Engine, image: str, api: NodeApi, tmp_path: Path
) -> None:
    container = {"image": image, "resources": {"limits": {"memory": "48Mi", "cpu": "500m"}}}
    async with running_node(api, tmp_path, settings(engine)):
        body = command_pod("p", "python", "-c", "x = bytearray(200_000_000)", container=container)
        await api.client().create(Pod, body)
        ended = main_container_status(await api.wait_phase("p", "Failed"))["state"]["terminated"]
    assert ended["exitCode"] == 137
    if not reports_memory(engine, image):
        pytest.skip(f"{engine.kind} itself does not report on this machine that a container ran out of memory")
    assert ended["reason"] == "OOMKilled"


def reports_memory(engine: Engine, image: str) -> bool:
    limits = ("--memory", "48m", "--network", "host", "--entrypoint", "python")
    engine("run", "--name", "oom", *limits, image, "-c", "x = bytearray(200_000_000)", check=False)
    try:
        return engine("inspect", "--format", "{{.State.OOMKilled}}", "oom").stdout.strip() == "true"
    finally:
        engine("rm", "--force", "oom")


async def test_commands_run_in_the_container(engine: Engine, image: str, api: NodeApi, tmp_path: Path) -> None:
    probe = {"exec": {"command": ["sh", "-c", "[ $FROM_IMAGE = yes ]"]}, "periodSeconds": 1}
    container = {"image": image, "readinessProbe": probe}
    async with running_node(api, tmp_path, settings(engine)) as running:
        await api.client().create(Pod, command_pod("p", "sleep", "99", container=container))
        await api.wait_phase("p", "Running")
        await api.wait_until(lambda: main_container_status(api.stored_pod("p")["status"])["ready"])
        target = running.container_targets(api.stored_pod("p")["metadata"]["uid"])["main"]
        words = ("sh", "-c", "echo in $FROM_IMAGE; exit 4")
        async with exec_command(target, words, SystemClock(), stdin=False, tty=False) as started:
            assert await started.read(1) == b"in yes\n"
            assert await started.wait() == 4


async def test_a_container_of_auto_outlives_the_node_and_is_adopted(
    engine: Engine, image: str, api: NodeApi, tmp_path: Path
) -> None:
    staying = msgspec.structs.replace(FAST_SETTINGS, runtime="auto", leave_running=True)
    folder = tmp_path / "shared"
    folder.mkdir()
    volumes = [{"name": "v", "hostPath": {"path": str(folder)}}]
    container = {"image": image, "volumeMounts": [{"name": "v", "mountPath": "/shared"}]}
    body = command_pod("p", "python", "/opt/model/wait.py", container=container, volumes=volumes)
    async with running_node(api, tmp_path, staying):
        await api.client().create(Pod, body)
        await wait_until((folder / "up").exists)
    assert len(engine.containers()) == 1
    async with running_node(api, tmp_path, staying):
        await asyncio.to_thread((folder / "go").touch)
        ended = main_container_status(await api.wait_phase("p", "Failed"))["state"]["terminated"]
    assert ended["exitCode"] == 6
