"""`gangline run --context` where the cluster is a real API server, with our operator and a node of this machine."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.cluster.operators import GANGLINE_OPERATOR, run_operator
from support.servers.real import RealServer

TRAIN = """\
import json, os
print("index", json.loads(os.environ["TF_CONFIG"])["task"]["index"], flush=True)
open("checkpoint", "w").close()
print("files", " ".join(sorted(os.listdir("."))), flush=True)
"""

# Defining all six kinds takes longer than all the rest.
OPERATOR = GANGLINE_OPERATOR._replace(
    crds=lambda: [found for found in GANGLINE_OPERATOR.crds() if found["spec"]["names"]["kind"] == "TFJob"]
)


@contextmanager
def node(server: RealServer, name: str, folder: Path) -> Iterator[None]:
    folder.mkdir()
    command = [sys.executable, "-m", "gangline", "node", "--name", name, "--dir", str(folder)]
    process = subprocess.Popen([*command, "--kubeconfig", str(server.kubeconfig)], cwd=folder)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_script_and_its_folder_run_in_a_real_cluster(
    real_server: RealServer, real_namespace: str, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text(TRAIN)
    template = "spec.tfReplicaSpecs.Worker.template.spec"
    # Nothing schedules here.
    settings = ["--set", "spec.successPolicy=AllWorkers", "--set", f"{template}.nodeName={real_namespace}"]
    flags = ["--context", "admin", "-n", real_namespace, "--image", "any", "--nproc", "2", "--kind", "TFJob"]
    command = [sys.executable, "-m", "gangline", "run", *flags, *settings, "--", "python", "train.py"]
    environment = {**os.environ, "KUBECONFIG": str(real_server.kubeconfig), "HOME": str(tmp_path)}

    def run() -> tuple[list[str], str]:
        done = subprocess.run(command, capture_output=True, text=True, cwd=project, env=environment, timeout=90)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.splitlines(), done.stderr

    extra = [f"--namespace={real_namespace}", "--enable-scheme=tfjob"]
    with (
        run_operator(OPERATOR, real_server, tmp_path / "operator", extra=extra),
        node(real_server, real_namespace, tmp_path / "node"),
    ):
        said, told = run()
        assert "1 file, " in told
        assert told.endswith(", in a ConfigMap\n")
        for index in range(2):
            assert f"worker-{index}| index {index}" in said
            assert f"worker-{index}| files checkpoint train.py" in said
        (carrier,) = carriers(real_server, real_namespace, "configmaps")
        assert [owner["name"] for owner in carrier["metadata"]["ownerReferences"]] == ["train"]


def carriers(server: RealServer, namespace: str, plural: str) -> list[dict[str, Any]]:
    path = f"/api/v1/namespaces/{namespace}/{plural}?labelSelector=training.gangline.dev/parcel"
    found: list[dict[str, Any]] = server.call("GET", path).body["items"]
    return found
