"""Other people's SDKs, unmodified, on a real kube-apiserver: all else is `gangline operator` and `gangline node`.

What they do is in tests/clients. Where they are asked to, their jobs have one member: there is no DNS.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster.clients import CLIENTS_FOLDER, find_kubeflow_python, find_tfjob_python
from support.cluster.operators import GANGLINE_OPERATOR, run_operator
from support.servers.real import LoggedProcess, RealServer

PATIENCE = 110.0
NAMESPACE = NODE = "other-sdks"
# No image is pulled here, and the SDK of 2020 needs its labels.
FLAGS = (
    f"--namespace={NAMESPACE}",
    "--mpi-kubectl-delivery-image=",
    "--pytorch-init-container-image=",
    "--legacy-labels",
)


class Cluster:
    """A server with an operator and a node."""

    def __init__(self, server: RealServer, folder: Path) -> None:
        self._server, self._folder = server, folder

    def run(self, python: Path, script: str, *arguments: str) -> None:
        """Run a script of tests/clients to its end. It checks what it sees, and fails if that is wrong."""
        environment = {**os.environ, "KUBECONFIG": str(self._server.kubeconfig), "HOME": str(self._folder)}
        command = [str(python), str(CLIENTS_FOLDER / script), NAMESPACE, *arguments]
        output = self._folder / script
        with output.open("wb") as log:
            user = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        try:
            deadline = time.monotonic() + PATIENCE
            while user.poll() is None and time.monotonic() < deadline:
                self._bind()
                time.sleep(0.05)
            assert user.poll() == 0, output.read_text()
        finally:
            user.kill()
            user.wait()

    def _bind(self) -> None:
        """The least that a scheduler does, in one namespace: others' pods are not ours to place."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        for pod in self._server.call("GET", f"{path}?fieldSelector=spec.nodeName=").body["items"]:
            name = pod["metadata"]["name"]
            self._server.call("POST", f"{path}/{name}/binding", {"metadata": {"name": name}, "target": target})


@pytest.fixture(scope="module")
def cluster(real_server: RealServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("sdks")
    real_server.revive()
    node = ["node", "--name", NODE, "--dir", str(folder), "--kubeconfig", str(real_server.kubeconfig)]
    with run_operator(GANGLINE_OPERATOR, real_server, folder, extra=FLAGS):
        kubelet = LoggedProcess([sys.executable, "-m", "gangline", *node], folder / "node.log")
        try:
            yield Cluster(real_server, folder)
        finally:
            kubelet.kill()


def test_kubeflows_sdk_drives_all_six_kinds_to_the_end(cluster: Cluster) -> None:
    cluster.run(find_kubeflow_python(), "kubeflow_sdk.py", "alone", "kubeflow.training")


def test_the_tfjob_sdk_of_2020_does_what_it_did(cluster: Cluster) -> None:
    cluster.run(find_tfjob_python(), "tfjob_sdk.py")
