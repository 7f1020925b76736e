"""`gangline up` and `gangline down` as a person types them."""

import json
import os
import re
import signal
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gangline.cli.main import run
from support.cluster.clients import DetachedPlane, Kubectl, run_gangline
from support.servers.real import free_ports
from support.waiting import wait_until_blocking


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetachedPlane]:
    """One for all who leave it running, or start it again: nobody is given its port by chance meanwhile."""
    found = DetachedPlane(tmp_path_factory.mktemp("up") / "plane")
    done = run_gangline("up", "--detach", "--dir", found.folder, "--port", str(free_ports(1)[0]))
    assert done.returncode == 0, done.stderr
    yield found
    found.down()


def modes(folder: Path) -> dict[str, int]:
    return {str(file.relative_to(folder)): stat.S_IMODE(file.stat().st_mode) for file in folder.rglob("*")}


def processes_with(argument: str) -> list[int]:
    """Of everybody: the pods of a plane are not its children."""
    found = psutil.process_iter(["pid", "cmdline"])
    return [each.info["pid"] for each in found if argument in (each.info["cmdline"] or ())]


def test_only_the_owner_can_read_what_a_plane_keeps(plane: DetachedPlane) -> None:
    assert stat.S_IMODE(plane.folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(plane.kubeconfig.stat().st_mode) == 0o600
    kept = {name: mode for name, mode in modes(plane.folder).items() if mode & 0o077}
    assert {name for name in kept if "key" in name or "token" in name or "state" in name} == set()


def test_a_second_plane_in_the_same_folder_is_refused_in_one_line(plane: DetachedPlane) -> None:
    second = run_gangline("up", "--dir", plane.folder)
    assert second.returncode == 1
    assert second.stdout == ""
    told = f"error: {plane.folder}: a plane is running already (process {plane.pid}); stop it with gangline down\n"
    assert second.stderr == told


def test_state_port_and_token_survive_down_and_up(plane: DetachedPlane) -> None:
    kubectl = Kubectl(plane)
    kubectl("create", "configmap", "kept", "--from-literal=a=b")
    before, config = kubectl.get("configmap", "kept"), plane.kubeconfig.read_text()
    token = kubectl("create", "token", "default").strip()
    assert stat.S_IMODE((plane.folder / "service-account-key.json").stat().st_mode) == 0o600
    plane.down()
    assert kubectl.run("get", "pods").returncode == 1
    plane.up()
    assert kubectl.get("configmap", "kept") == before
    assert plane.kubeconfig.read_text() == config
    assert "system:serviceaccount:default:default" in kubectl("auth", "whoami", "--token", token)
    assert token not in (plane.folder / "log").read_text()


def test_users_of_a_token_file_and_disabled_plugins(tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text('secret-1,ann,u1,"dev,ops"\n')
    plane = DetachedPlane(tmp_path / "plane")
    flags = ("--token-auth-file", str(tmp_path / "users.csv"), "--disable-admission-plugins", "ServiceAccount")
    done = run_gangline("up", "--detach", "--dir", plane.folder, *flags)
    assert done.returncode == 0, done.stderr
    try:
        kubectl = Kubectl(plane)
        whoami = kubectl("auth", "whoami", "-o", "json", "--token", "secret-1")
        assert json.loads(whoami)["status"]["userInfo"] == {
            "username": "ann",
            "uid": "u1",
            "groups": ["dev", "ops", "system:authenticated"],
        }
        kubectl("run", "plain", "--image=none", "--restart=Never", "--command", "--", "true")
        assert "volumes" not in kubectl.get("pod", "plain")["spec"]
        # Pods have no token, so nothing is granted to service accounts.
        assert "gangline:pods" not in kubectl("get", "clusterroles,rolebindings", "-A", "-o", "name")
    finally:
        plane.down()


def test_down_without_a_plane_is_fine(tmp_path: Path) -> None:
    done = run_gangline("down", "--dir", tmp_path)
    assert done.returncode == 0
    assert done.stderr == f"no plane is running in {tmp_path}\n"


def test_a_plane_that_was_killed_starts_again_with_all_it_had(plane: DetachedPlane) -> None:
    kubectl = Kubectl(plane)
    kubectl("create", "configmap", "outlives", "--from-literal=a=b")
    kubectl("run", "sleeper", "--image=none", "--restart=Never", "--command", "--", "sleep", "600")
    kubectl("wait", "pod/sleeper", "--for=condition=Ready")
    first = psutil.Process(plane.pid)
    os.kill(first.pid, signal.SIGKILL)
    first.wait(60)
    lines = run_gangline("down", "--dir", plane.folder).stderr.splitlines()
    assert lines[0].startswith("no plane is running")
    assert lines[1].startswith("1 container that it started still runs")
    assert [line.partition(" ")[2] for line in lines[2:]] == [
        f"up --detach --dir {plane.folder}",
        f"down --dir {plane.folder}",
    ]
    plane.up()
    assert kubectl.get("configmap", "outlives")["data"] == {"a": "b"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_plane_and_every_pod(tmp_path: Path, number: signal.Signals) -> None:
    plane, mark = DetachedPlane(tmp_path / "plane"), f"--mark-{os.getpid()}-{number}"
    command = [sys.executable, "-m", "gangline", "up", "--dir", str(plane.folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert "control plane ready" in process.stderr.readline()
            kubectl, sleep = Kubectl(plane), "import time; time.sleep(999)"
            kubectl("run", "p", "--image=any", "--command", "--", sys.executable, "-c", sleep, mark)
            kubectl("wait", "pod/p", "--for=condition=Ready", "--timeout=50s")
            assert processes_with(mark)
            process.send_signal(number)
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert processes_with(mark) == []
    assert not (plane.folder / "pid").exists()


def test_the_log_of_a_plane_says_when_and_why(tmp_path: Path) -> None:
    folder = tmp_path / "plane"
    folder.mkdir()
    (folder / "history").write_text("in the way")
    plane = DetachedPlane(folder)
    plane.up()
    try:
        wait_until_blocking(lambda: "the history" in (folder / "log").read_text())
    finally:
        plane.down()
    line = next(line for line in (folder / "log").read_text().splitlines() if "the history" in line)
    when = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    found = re.fullmatch(rf'{when} WARNING the history cannot be written, will retry error="(.*)"', line)
    assert found is not None, line
    assert str(folder / "history") in found[1]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run_gangline("up", "--dir", tmp_path / "file" / "plane")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "cannot be used" in done.stderr


def test_a_port_that_is_taken_is_one_line(plane: DetachedPlane, tmp_path: Path) -> None:
    port = (plane.folder / "port").read_text()
    done = run_gangline("up", "--dir", tmp_path / "other", "--port", port)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert port in done.stderr


# Where it listens


def reached(address: str, plane: DetachedPlane) -> int:
    """The status of an answer from there, over TLS that is checked against the plane's CA."""
    port = int((plane.folder / "port").read_text())
    trusted = ssl.create_default_context(cafile=str(plane.folder / "certificates" / "ca.crt"))
    with (
        socket.create_connection((address, port), timeout=60) as plain,
        trusted.wrap_socket(plain, server_hostname=address) as connection,
    ):
        connection.sendall(f"GET /healthz HTTP/1.1\r\nHost: {address}:{port}\r\nConnection: close\r\n\r\n".encode())
        return int(connection.recv(100).split()[1])


def addresses_of_this_machine() -> list[str]:
    found = (entry for each in psutil.net_if_addrs().values() for entry in each)
    return [each.address for each in found if each.family is socket.AF_INET]


def test_a_plane_listens_everywhere_when_told_and_says_what_that_means(tmp_path: Path) -> None:
    plane = DetachedPlane(tmp_path / "plane")
    plane.up()
    plane.down()  # its certificate knew loopback only
    done = run_gangline("up", "--detach", "--dir", plane.folder, "--bind", "0.0.0.0")
    try:
        assert done.returncode == 0, done.stderr
        assert done.stderr.startswith("warning: the API server listens on 0.0.0.0: whoever reaches it")
        assert {reached(address, plane) for address in addresses_of_this_machine()} == {200}
        assert "https://127.0.0.1:" in plane.kubeconfig.read_text()
    finally:
        plane.down()


def test_an_address_of_loopback_needs_no_warning(tmp_path: Path) -> None:
    plane = DetachedPlane(tmp_path / "plane")
    done = run_gangline("up", "--detach", "--dir", plane.folder, "--bind", "127.0.0.2")
    try:
        assert done.returncode == 0, done.stderr
        assert "warning" not in done.stderr
        assert reached("127.0.0.2", plane) == 200
        with pytest.raises(ConnectionRefusedError):
            reached("127.0.0.1", plane)
    finally:
        plane.down()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ("--bind", "here"),
            "error: --bind here: is not an IP address; write 192.0.2.10, or 0.0.0.0 for all\n",
        ),
        (("--images", "none.yaml"), "error: --images none.yaml: No such file or directory\n"),
        (("--capacity", "gpu"), "error: --capacity gpu: write NAME=AMOUNT, such as nvidia.com/gpu=4\n"),
        (
            ("--token-auth-file", "none.csv"),
            "error: --token-auth-file none.csv: No such file or directory\n",
        ),
        (("--disable-admission-plugins", "Service"), None),
        (("--network", "isolated", "--runtime", "docker"), None),
        (("--bind", "203.0.113.77"), None),
    ],
)
def test_wrong_options_are_one_line(tmp_path: Path, options: tuple[str, ...], told: str | None) -> None:
    done = run_gangline("up", "--dir", tmp_path / "plane", *options)
    assert done.returncode == 1
    complaint = [line for line in done.stderr.splitlines(keepends=True) if not line.startswith("warning")]
    assert len(complaint) == 1
    assert told is None or complaint == [told]


# What its node is made of


def test_pods_of_a_plane_have_networks_of_their_own_when_asked(tmp_path: Path) -> None:
    plane = DetachedPlane(tmp_path / "plane")
    kubectl = Kubectl(plane)
    done = run_gangline("up", "--detach", "--dir", plane.folder, "--network", "isolated")
    if "pods cannot have networks here" in done.stderr:
        assert done.stderr.count("\n") == 1
        pytest.skip(done.stderr.strip())
    try:
        assert done.returncode == 0, done.stderr
        kubectl("run", "p", "--image=any", "--command", "--", "sleep", "999")
        kubectl("wait", "pod/p", "--for=condition=Ready", "--timeout=50s")
        assert kubectl("exec", "p", "--", "hostname") == "p\n"
        assert kubectl.get("pod", "p")["status"]["podIP"].startswith("10.244.")
    finally:
        plane.down()
    assert processes_with(str(plane.folder / "pods" / "network")) == []


def test_pods_of_a_plane_are_containers_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, state = tmp_path / "bin" / "podman", tmp_path / "containers"
    program.parent.mkdir()
    state.mkdir()
    script = Path(__file__).parents[1] / "support" / "cluster" / "podman.py"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{script}" "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STANDIN", str(state))
    plane = DetachedPlane(tmp_path / "plane")
    kubectl = Kubectl(plane)
    done = run_gangline("up", "--detach", "--dir", plane.folder, "--runtime", "podman")
    try:
        assert done.returncode == 0, done.stderr
        kubectl("run", "p", "--image=example", "--command", "--", "sleep", "999")
        kubectl("wait", "pod/p", "--for=condition=Ready", "--timeout=50s")
        assert kubectl("exec", "p", "--", "sh", "-c", "echo $IMAGE") == "example\n"
    finally:
        plane.down()
    assert len(list(state.glob("gangline-*/removed"))) == 1


def test_a_run_has_a_plane_of_its_own_unless_it_is_told_to_use_the_one_that_runs(
    plane: DetachedPlane, tmp_path: Path
) -> None:
    env = {**os.environ, "GANGLINE_HOME": str(plane.folder), "HOME": str(tmp_path), "KUBECONFIG": ""}
    (tmp_path / "hello.py").write_text("print('hello')")

    def typed(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "gangline", *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=60)

    script = ("--nproc", "1", "--", sys.executable, "hello.py")
    own = typed("run", *script)
    assert (own.returncode, "master-0| hello" in own.stdout) == (0, True), own
    assert own.stderr.splitlines()[0].startswith("note: a plane is running on this machine, but this run")
    assert typed("get", "jobs", "-o", "name").stdout == ""
    there = typed("run", "--context", "gangline", *script)
    assert (there.returncode, "master-0| hello" in there.stdout) == (0, True), there
    assert typed("get", "jobs", "-o", "name").stdout == "pytorchjob.kubeflow.org/hello\n"
    assert typed("delete", "hello").returncode == 0


def test_a_job_of_a_plane_that_was_stopped_is_not_said_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith("KUBE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "plane"))
    plane = DetachedPlane(tmp_path / "plane")
    plane.up()
    try:
        container = {"name": "tensorflow", "image": "none", "command": ["sleep", "600"]}
        worker = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
        body = {
            "apiVersion": "kubeflow.org/v1",
            "kind": "TFJob",
            "metadata": {"name": "long"},
            "spec": {"tfReplicaSpecs": {"Worker": worker}},
        }
        (tmp_path / "long.json").write_text(json.dumps(body))
        assert run(["submit", str(tmp_path / "long.json")]) == 0
        assert run(["wait", "long", "--for", "condition=Running", "--timeout", "60s"]) == 0
    finally:
        plane.down()
    capsys.readouterr()
    said = {}
    for words in (
        ("get", "--no-headers"),
        ("get", "pods", "--no-headers"),
        ("describe", "long"),
        ("why", "long"),
    ):
        run(words)
        said[words[:2]] = capsys.readouterr()
    assert "and the plane that stopped at " in said["get", "--no-headers"].err
    row = said["get", "--no-headers"].out.split(maxsplit=3)
    assert row[:3] == ["TFJob", "long", "Stopped"]
    assert "the plane was stopped before the job had ended" in row[3]
    assert said["get", "pods"].out.split()[2] == "Stopped"
    assert "State:         Stopped: the plane was stopped" in said["describe", "long"].out
    assert "long was Running" in said["why", "long"].out
    # Nothing changes any more: nobody waits for it.
    assert run(["wait", "long"]) == 101
    assert "is Stopped, and stays so while no server is running" in capsys.readouterr().err
