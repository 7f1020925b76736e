"""Options of `gangline run`: valid combinations, and the errors of the others."""

import subprocess
import sys
from pathlib import Path

import pytest

from gangline.cli.connect.server import ServerOptions
from gangline.cli.main import run
from gangline.cli.manifests.from_command import CommandJob, job_from_command
from gangline.cli.manifests.processes import ProcessCount
from gangline.cli.run.remote import server_flags

HERE = ("run", "--nproc", "1")
THERE = ("run", "--context", "c", "--image", "i", "--nproc", "1")
KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: c, user: {}}]
contexts: [{name: c, context: {cluster: c, user: c, namespace: team}}]
"""


@pytest.fixture(autouse=True)
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubeconfig whose server cannot be reached, and a working directory with a script."""
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "project")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("run", "--context", "nowhere", "--image", "i", "--nproc", "1", "--", "true"),
            'names "nowhere", which is not in contexts; known: c',
        ),
        (("run", "--context", "c", "--nproc", "1", "--", "true"), "needs an image; add --image IMAGE"),
        ((*HERE, "-n", "team", "--", "true"), "--namespace: the run is on this machine; add --context NAME"),
        ((*HERE, "--kubeconfig", "f", "--", "true"), "--kubeconfig: the run is on this machine"),
        ((*HERE, "--as-group", "g", "--", "true"), "--as-group: the run is on this machine"),
        ((*HERE, "--as", "somebody", "--", "true"), "--as: the run is on this machine"),
        ((*HERE, "--request-timeout", "3s", "--", "true"), "--request-timeout: the run is on this machine"),
        ((*THERE, "--capacity", "cpu=1", "--", "true"), "--capacity: is about a run on this machine"),
        ((*THERE, "--runtime", "podman", "--", "true"), "--runtime: is about a run on this machine"),
        (
            (*THERE, "--open", "--", "true"),
            "--open: is about a run on this machine; for the cluster: gangline dashboard",
        ),
        ((*THERE, "--limit", "gpu", "--", "true"), "--limit gpu: expected NAME=AMOUNT"),
        ((*THERE, "--limit", "gpu=much", "--", "true"), '--limit gpu=much: "much" is not a quantity'),
        (("run", "--image", "i", "job.yaml"), "--image: is for a COMMAND with --nproc"),
        (("run", "--limit", "cpu=1", "job.yaml"), "--limit: is for a COMMAND with --nproc"),
        (("run", "--context", "c"), "expected a FILE; or for a script"),
    ],
)
def test_wrong_options_are_one_line_and_exit_code_1(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 1
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert err.startswith("error: ")
    assert message in err


def told(*words: str) -> tuple[int, list[str]]:
    """The exit code and stderr of a command line, in a process of its own because it configures logging."""
    done = subprocess.run([sys.executable, "-m", "gangline", *words], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr.splitlines()


def test_an_invalid_ship_limit_is_an_error() -> None:
    code, lines = told(*THERE, "--ship-limit", "much", "--", "true")
    assert (code, lines[1:]) == (1, ["error: --ship-limit much: is no size; write 500Mi or 2Gi"])


def test_an_unreachable_server_is_named_in_the_error() -> None:
    code, lines = told(*THERE, "--", "python", "train.py")
    assert code == 1
    assert lines[0] == "server: context c (http://127.0.0.1:1), namespace team"
    assert lines[1].endswith(": 1 file, 0 bytes, in a ConfigMap")
    assert lines[2].startswith("error: ")
    assert "127.0.0.1:1" in lines[2]
    assert len(lines) == 3


def test_every_replica_of_a_command_has_the_limits() -> None:
    limits = {"nvidia.com/gpu": "1", "memory": "2Gi"}
    kind, body = job_from_command(CommandJob("PyTorchJob", ("true",), ProcessCount(2, 2), image="img", limits=limits))
    for replica in body["spec"][kind.replicas].values():
        (container,) = replica["template"]["spec"]["containers"]
        assert container["image"] == "img"
        assert container["resources"] == {"limits": {"nvidia.com/gpu": "1", "memory": "2Gi"}}


def test_suggested_commands_select_the_same_server() -> None:
    assert server_flags(ServerOptions(context="prod")) == "--context prod"
    assert (
        server_flags(ServerOptions(context="a b", kubeconfig="f", namespace="n"))
        == "--kubeconfig f --context 'a b' -n n"
    )


def test_a_dry_run_lists_every_file_and_sends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "project" / "data").mkdir()
    (tmp_path / "project" / "data" / "x.txt").write_text("12345")
    assert run([*THERE, "--dry-run", "--", "python", "train.py"]) == 0  # the server cannot be reached
    printed = capsys.readouterr()
    assert printed.out == "  data/x.txt  5 bytes\n  train.py  0 bytes\n"
    assert f"shipping {tmp_path / 'project'}: 2 files, 5 bytes, in a ConfigMap" in printed.err
    assert run([*HERE, "--dry-run", "--", "true"]) == 1
    assert "--dry-run: lists what is shipped to a cluster, and on this machine nothing is" in capsys.readouterr().err


def test_credentials_end_the_run_in_one_line_before_anything_is_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "project" / ".env").write_text("PASSWORD=hunter2\n")
    assert run([*THERE, "--", "python", "train.py"]) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith(f"error: {tmp_path / 'project'}: is not shipped")
    assert "hunter2" not in message
    assert run([*THERE, "--dry-run", "--ship-secrets", "--", "python", "train.py"]) == 0
    assert ".env" in capsys.readouterr().out
    assert run([*THERE, "--dry-run", "--no-ship", "--", "python", "train.py"]) == 0
    assert "no folder is shipped" in capsys.readouterr().err
