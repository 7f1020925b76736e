"""Other people's clients and operators, unmodified, on a plane that `gangline up` started.

What each does is in tests/clients; hack/clients.sh brings the packages and builds the controller.
"""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest

from support.cluster.clients import (
    CLIENTS_FOLDER,
    DetachedPlane,
    Kubectl,
    find_clients_python,
    find_controller,
    find_kubeflow_python,
    find_tfjob_python,
    pythonpath_with_gangline,
)

pytestmark = pytest.mark.xdist_group("clients")  # one plane for all of them


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetachedPlane]:
    find_clients_python()
    found = DetachedPlane(tmp_path_factory.mktemp("plane"))
    found.up()
    yield found
    found.down()


def run(plane: DetachedPlane, script: str, *arguments: str, python: Path | None = None, **environment: str) -> str:
    """Run a script of tests/clients to its end. It checks what it sees, and fails if that is wrong."""
    done = subprocess.run(
        [python or find_clients_python(), CLIENTS_FOLDER / script, *arguments],
        capture_output=True,
        text=True,
        env={**plane.environment, **environment},
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def test_the_official_python_client(plane: DetachedPlane) -> None:
    run(plane, "official.py", "official")


def test_kr8s(plane: DetachedPlane) -> None:
    run(plane, "feels_like_kubectl.py", "kr8s")


def test_an_operator_on_kopf(plane: DetachedPlane) -> None:
    run(plane, "operator_in_kopf.py", "kopf")


def test_kubeflows_own_sdk(plane: DetachedPlane) -> None:
    run(plane, "kubeflow_sdk.py", "kubeflow-sdk", "team", "kubeflow.training", python=find_kubeflow_python())


def test_code_written_for_it_changes_one_import(plane: DetachedPlane) -> None:
    told = run(
        plane,
        "kubeflow_sdk.py",
        "one-import",
        "alone",
        "gangline",
        python=find_kubeflow_python(),
        PYTHONPATH=pythonpath_with_gangline(),
    )
    assert told == "", "that code closes nothing, and must not hear of it"


@pytest.mark.parametrize("script", ["tfjob_sdk.py", "pytorchjob_sdk.py"])
def test_the_sdks_of_2020(plane: DetachedPlane, script: str) -> None:
    run(plane, script, "sdks-of-2020", python=find_tfjob_python())


@contextmanager
def controlling(plane: DetachedPlane, namespace: str, log: Path) -> Iterator[IO[bytes]]:
    """Runs the controller; gives its input, which ends it when closed."""
    command = [str(find_controller()), namespace]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=plane.environment
        ) as process,
    ):
        assert process.stdin is not None
        try:
            yield process.stdin
            process.stdin.close()
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()


def test_a_controller_in_go_elects_a_leader_and_does_its_work(plane: DetachedPlane, tmp_path: Path) -> None:
    Kubectl(plane)("create", "namespace", "mirror")
    kubectl = Kubectl(plane, "mirror")
    with ExitStack() as both:
        first = both.enter_context(controlling(plane, "mirror", tmp_path / "first"))
        kubectl("create", "configmap", "early", "--from-literal=a=b")
        kubectl("label", "configmap", "early", "clients.example/mirrored=true")
        kubectl("wait", "--for=create", "secret/early", "--timeout=50s")
        leader = kubectl.get("lease", "mirror")["spec"]["holderIdentity"]
        assert leader

        secret = kubectl.get("secret", "early")
        assert secret["data"] == {"a": "Yg=="}
        (owner,) = secret["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("ConfigMap", "early", True)
        kubectl("patch", "configmap", "early", "-p", '{"data": {"a": "c"}}')
        kubectl("wait", "secret/early", "--for=jsonpath={.data.a}=Yw==", "--timeout=50s")
        kubectl("delete", "secret", "early")
        kubectl("wait", "--for=create", "secret/early", "--timeout=50s")

        both.enter_context(controlling(plane, "mirror", tmp_path / "second"))
        first.close()
        kubectl("create", "configmap", "late")
        kubectl("label", "configmap", "late", "clients.example/mirrored=true")
        kubectl("wait", "--for=create", "secret/late", "--timeout=50s")
        assert kubectl.get("lease", "mirror")["spec"]["holderIdentity"] not in ("", leader)

        kubectl("delete", "configmap", "early")
        kubectl("wait", "secret/early", "--for=delete", "--timeout=50s")
