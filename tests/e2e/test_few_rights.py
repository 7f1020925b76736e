"""A user without rights is shown the commands that grant them; typed by an administrator, they do."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.cluster.clients import DetachedPlane, find_kubectl
from support.servers.embedded import EmbeddedServer, embedded_server

GRANT = "An administrator allows it: kubectl "


@pytest.mark.parametrize(
    "words",
    ["get pods", "get pods -A", "get secrets", "get nodes", "events", "delete cm a", "get leases -n kube-system"],
)
def test_printed_commands_grant_what_was_missing(words: str, tmp_path: Path) -> None:
    with embedded_server(tmp_path, ("jane",)) as server:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
        assert server.call("POST", "/api/v1/namespaces/default/configmaps", body).status == 201
        command = [sys.executable, "-m", "gangline", *words.split(), "--context", "jane"]
        refused = _run(server, command)
        assert refused.returncode == 1, refused
        error, *grants = refused.stderr.splitlines()
        assert error.startswith("Error from server (Forbidden): ")
        assert 'User "jane" cannot ' in error
        assert [line[: len(GRANT)] for line in grants] == [GRANT] * max(len(grants), 1)
        for line in grants:
            granted = _run(server, [str(find_kubectl()), *shlex.split(line.removeprefix(GRANT))])
            assert granted.returncode == 0, granted
        allowed = _run(server, command)
        assert (allowed.returncode, "Forbidden" in allowed.stderr) == (0, False), allowed


def test_the_doctor_lists_missing_rights_once_and_says_who_grants_them(tmp_path: Path) -> None:
    with embedded_server(tmp_path, ("jane",)) as server:
        done = _run(server, [sys.executable, "-m", "gangline", "doctor", "--context", "jane", "-o", "json"])
        rights = next(check for check in json.loads(done.stdout) if check["check"] == "rights")
    assert "you may not get, list, watch, create, patch, delete tfjobs, pytorchjobs, " in rights["found"]
    assert "; get, list, watch, delete pods; get pods/log; list events" in rights["found"]
    assert "kubectl create rolebinding NAME --clusterrole edit --user YOU -n default" in rights["remedy"]


def test_a_user_by_certificate_as_documented(tmp_path: Path) -> None:
    """The commands of docs/access.md, in their order: a certificate, its kubeconfig, then rights by the administrator."""
    text = (Path(__file__).parents[2] / "docs" / "access.md").read_text()
    blocks = text.partition("### A user by certificate")[2].partition("### When rights are missing")[0]
    lines = [line.removeprefix("$ ") for line in blocks.splitlines() if line.startswith("$ ")]
    assert lines[0] == "cd ~/.local/state/gangline/certificates"
    plane = DetachedPlane(tmp_path / "plane")
    plane.up()
    try:
        script = "\n".join(["set -e", f"cd '{plane.folder}/certificates'", *lines[1:]])
        path = f"{find_kubectl().parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", script], env={**plane.environment, "PATH": path}, capture_output=True, text=True, timeout=120
        )
    finally:
        plane.down()
    assert done.returncode == 0, done.stderr
    assert re.search(r"^Username +jane$", done.stdout, re.MULTILINE)
    assert re.search(r"^yes$", done.stdout, re.MULTILINE)


def test_rights_of_a_run_come_from_the_file_of_its_job(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "access.md").read_text()
    binding = text.partition("```yaml\n")[2].partition("```")[0]
    container = {"name": "pytorch", "image": "x", "command": [sys.executable, "-m", "gangline", "get", "secrets"]}
    replicas = {"Master": {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}}
    job = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "reader"}}
    body = json.dumps({**job, "spec": {"pytorchReplicaSpecs": replicas}})
    (tmp_path / "job.yaml").write_text(body)
    (tmp_path / "allowed.yaml").write_text(f"{binding}---\n{body}\n")
    environment = {**os.environ, "HOME": str(tmp_path), "GANGLINE_HOME": str(tmp_path / "home")}
    environment.pop("KUBECONFIG", None)

    def gangline(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "gangline", *words]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)

    assert gangline("run", "job.yaml").returncode == 100
    why = gangline("why", "reader").stdout
    assert "cannot list secrets in namespace default" in why
    assert "a RoleBinding in the job's file allows it; docs/access.md has one" in why
    allowed = gangline("run", "allowed.yaml")
    assert allowed.returncode == 0, allowed.stderr + allowed.stdout


def _run(server: EmbeddedServer, command: list[str]) -> "subprocess.CompletedProcess[str]":
    environment = {"KUBECONFIG": str(server.kubeconfig), "HOME": str(server.kubeconfig.parent), "PATH": "/usr/bin:/bin"}
    environment |= {"PYTHONPATH": ":".join(sys.path)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
