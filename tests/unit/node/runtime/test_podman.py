"""The command lines that podman and docker get."""

from pathlib import Path

import msgspec
import pytest

from gangline.kube.config.access import PlaneAccess
from gangline.node.checkpoint import RunFiles, RunRecord
from gangline.node.pod_types import RunContainer, RunPod
from gangline.node.runtime.paths import TOKEN_MOUNT
from gangline.node.runtime.podman import ContainerEngineRuntime
from gangline.node.runtime.runtime import ContainerConfig, ContainerMount
from gangline.node.settings import NodeSettings

POD = msgspec.convert({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}, RunPod)


def config(
    record: RunRecord | None = None, mounts: tuple[ContainerMount, ...] = (), **container: object
) -> ContainerConfig:
    spec = msgspec.convert({"name": "c", "image": "example.org/i:1", **container}, RunContainer)
    env = {variable.name: variable.value for variable in spec.env}
    return ContainerConfig(spec, POD, RunFiles(Path("/state/c"), 0), record or RunRecord("0a1b", 0), env, mounts)


def words(kind: str, run: ContainerConfig) -> list[str]:
    """The arguments without those that every command line has."""
    command = list(ContainerEngineRuntime(f"/bin/{kind}", kind, NodeSettings()).process_spec(run).command)
    fixed = [f"/bin/{kind}", "run", "--name", "gangline-0a1b", "--network", "host", "--hostname", "p"]
    assert command[:8] == fixed
    return command[8:]


MESSAGE = ["--volume", "/state/c/0.message:/dev/termination-log"]
OURS = ["--env", "HOSTNAME", "--env", "GANGLINE_TERMINATION_LOG", "--env", "GANGLINE_CONTAINER"]


def test_an_image_runs_what_it_is_made_to_run() -> None:
    assert words("podman", config()) == [*OURS, *MESSAGE, "example.org/i:1"]


def test_a_command_replaces_the_entry_point_and_arguments_its_arguments() -> None:
    assert words("docker", config(command=["a", "b"], args=["c"]))[-5:] == [
        "--entrypoint",
        "a",
        "example.org/i:1",
        "b",
        "c",
    ]
    assert words("docker", config(args=["c"]))[-3:] == [MESSAGE[1], "example.org/i:1", "c"]


def test_references_are_expanded_and_paths_are_left_alone() -> None:
    env = [{"name": "WHERE", "value": "/data"}]
    mount = ContainerMount("v", "/data", Path("/real"))
    arguments = words("podman", config(mounts=(mount,), env=env, args=["$(WHERE)/x", "$(NO)"], workingDir="$(WHERE)"))
    assert arguments[-3:] == ["example.org/i:1", "/data/x", "$(NO)"]
    assert arguments[arguments.index("--workdir") + 1] == "/data"
    assert "/real:/data" in arguments


@pytest.mark.parametrize("name", ["PATH", "HOME", "DOCKER_HOST", "https_proxy", "CONTAINERS_CONF"])
def test_what_the_client_itself_would_read_is_written_out(name: str) -> None:
    run = config(env=[{"name": name, "value": "x"}, {"name": "SECRET", "value": "hidden"}])
    spec = ContainerEngineRuntime("/bin/podman", "podman", NodeSettings()).process_spec(run)
    assert f"{name}=x" in spec.command
    assert spec.env.get(name) != "x"
    assert spec.env["SECRET"] == "hidden"
    assert not [word for word in spec.command if "hidden" in word]


def test_limits_and_devices() -> None:
    limits = {"memory": "1Gi", "cpu": "1500m", "nvidia.com/gpu": "2"}
    run = config(RunRecord("0a1b", 0, devices={"nvidia.com/gpu": (1, 3)}), resources={"limits": limits})
    for kind, devices in (
        ("docker", ["--gpus", '"device=1,3"']),
        ("podman", ["--device", "nvidia.com/gpu=1", "--device", "nvidia.com/gpu=3"]),
    ):
        arguments = words(kind, run)
        at = arguments.index("--memory")
        assert arguments[at:-1] == ["--memory", str(2**30), "--cpus", "1.5", *devices]


def test_a_container_is_killed_asked_and_removed_by_its_name() -> None:
    spec = ContainerEngineRuntime("/bin/docker", "docker", NodeSettings()).process_spec(config())
    assert spec.kill == ("/bin/docker", "kill", "gangline-0a1b")
    assert spec.inspect == ("/bin/docker", "inspect", "--format", "{{.State.OOMKilled}}", "gangline-0a1b")
    assert spec.remove == ("/bin/docker", "rm", "--force", "gangline-0a1b")


def test_commands_go_into_the_container() -> None:
    runtime = ContainerEngineRuntime("/bin/podman", "podman", NodeSettings())
    run = config()
    target = runtime.target(run, runtime.process_spec(run), {}, 1)
    assert target.command_line(["ls", "/data"]) == (
        "/bin/podman",
        "exec",
        "--interactive",
        "gangline-0a1b",
        "ls",
        "/data",
    )
    assert target.command_line(["sh"], tty=True)[2:5] == ("--interactive", "--tty", "gangline-0a1b")


def test_the_folder_of_the_job_is_mounted_and_named(tmp_path: Path) -> None:
    labelled = msgspec.structs.replace(POD.metadata, labels={"training.kubeflow.org/job-name": "bert"})
    run = msgspec.structs.replace(config(), pod=msgspec.structs.replace(POD, metadata=labelled))
    settings = NodeSettings(artifacts=tmp_path / "{job}")
    spec = ContainerEngineRuntime("/bin/podman", "podman", settings).process_spec(run)
    assert f"{tmp_path / 'bert'}:/gangline/artifacts" in spec.command
    assert spec.env["GANGLINE_ARTIFACTS"] == "/gangline/artifacts"


def test_container_finds_the_api_server_as_in_a_cluster() -> None:
    access = PlaneAccess("https://127.0.0.1:6443", "", Path("/state/ca.crt"))
    token = ContainerMount("kube-api-access-x", TOKEN_MOUNT, Path("/state/volume"), read_only=True)
    runtime = ContainerEngineRuntime("/bin/podman", "podman", NodeSettings(), access)
    spec = runtime.process_spec(config(mounts=(token,)))
    assert spec.env["KUBERNETES_SERVICE_HOST"] == "127.0.0.1"
    assert spec.env["KUBERNETES_SERVICE_PORT"] == "6443"
    assert f"/state/volume:{TOKEN_MOUNT}:ro" in spec.command
    assert not any(name.startswith("GANGLINE_VOLUME_") for name in spec.env)
