"""The programs of a control plane, unmodified, on a plane that `gangline up` started: kube-scheduler with its default
configuration, kube-controller-manager with all default controllers.
"""

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.cluster.clients import DetachedPlane, Kubectl, find_kubectl
from support.requirements import skip_or_fail
from support.servers.real import LoggedProcess, free_ports
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("clients")]

DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "none", "command": ["sleep", "600"]}],
            },
        },
    },
}
UPSTREAM = "ResourceQuota|Garbage collector|Namespaces|OrderedNamespaceDeletion"
_ERROR_LINE = re.compile(r"^[EF]\d{4} [\d:.]+ +\d+ (.*)$", re.MULTILINE)
_VARYING = re.compile(r'"[^"]*"|\d+')


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetachedPlane]:
    plane = DetachedPlane(tmp_path_factory.mktemp("programs") / "plane")
    plane.up("--default-scheduler", "none")
    yield plane
    plane.down()


@contextmanager
def program(plane: DetachedPlane, name: str, *flags: str) -> Iterator[Path]:
    """A program of Kubernetes with the plane's kubeconfig, until the block ends. Yields its log."""
    path = find_kubectl().parent / name
    if not path.is_file():
        skip_or_fail(f"{name} not found: run hack/kubernetes.sh {name}")
    (port,) = free_ports(1)
    config, log = plane.kubeconfig, plane.folder / f"{name}.log"
    files = [f"--{purpose}kubeconfig={config}" for purpose in ("", "authentication-", "authorization-")]
    process = LoggedProcess([str(path), *files, f"--secure-port={port}", "--bind-address=127.0.0.1", *flags], log)
    try:
        yield log
    finally:
        process.kill()


def repeated_errors(log: Path) -> list[str]:
    """What the log reports as an error more than once, but for names and numbers."""
    found = Counter(_VARYING.sub("_", line) for line in _ERROR_LINE.findall(log.read_text()))
    return [line for line, count in found.items() if count > 1]


def test_kube_scheduler_places_pods_with_its_default_configuration(plane: DetachedPlane) -> None:
    kubectl = Kubectl(plane)
    with program(plane, "kube-scheduler") as log:
        kubectl("run", "placed", "--image=none", "--restart=Never", "--command", "--", "true")
        kubectl("wait", "pod/placed", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s")
        assert kubectl.get("pod", "placed")["spec"]["nodeName"]
        events = kubectl("get", "events", "--field-selector=reason=Scheduled", "-o", "name")
        assert "placed" in events
        assert repeated_errors(log) == []


def test_kube_controller_manager_runs_all_default_controllers(plane: DetachedPlane) -> None:
    kubectl = Kubectl(plane)
    certificates = plane.folder / "certificates"
    flags = (
        "--use-service-account-credentials",
        f"--root-ca-file={certificates / 'ca.crt'}",
        f"--cluster-signing-cert-file={certificates / 'ca.crt'}",
        f"--cluster-signing-key-file={certificates / 'ca.key'}",
    )
    with program(plane, "kube-scheduler"), program(plane, "kube-controller-manager", *flags) as log:
        kubectl("apply", "-f", "-", stdin=DEPLOYMENT)
        kubectl("rollout", "status", "deployment/web", "--timeout=90s")
        kubectl("expose", "deployment", "web", "--port=80")
        wait_until_blocking(
            lambda: "web" in kubectl("get", "endpointslices", "-o", "name"), "no endpoint slice of the service"
        )
        kubectl("create", "namespace", "gone")
        kubectl("delete", "namespace", "gone", "--timeout=60s")
        kubectl("delete", "deployment", "web", "--cascade=foreground", "--timeout=60s")
        assert kubectl("get", "pods", "-l", "app=web", "-o", "name") == ""
        assert repeated_errors(log) == []


@pytest.mark.timeout(1800)
def test_kubernetes_own_tests_of_api_machinery_pass(plane: DetachedPlane) -> None:
    """Those conformance tests of the upstream e2e suite that need no image."""
    if not os.environ.get("GANGLINE_UPSTREAM_E2E"):
        pytest.skip("the e2e tests of Kubernetes take an hour to build: make test-upstream builds and runs them")
    tests = find_kubectl().parent / "e2e.test"
    flags = ("--use-service-account-credentials", f"--root-ca-file={plane.ca}")
    command = [str(tests), f"-kubeconfig={plane.kubeconfig}", "-provider=skeleton", "-allowed-not-ready-nodes=-1"]
    command += [f"-ginkgo.focus=\\[sig-api-machinery\\] ({UPSTREAM}).*\\[Conformance\\]", "-ginkgo.no-color"]
    with program(plane, "kube-scheduler"), program(plane, "kube-controller-manager", *flags):
        done = subprocess.run(command, capture_output=True, text=True, cwd=plane.folder, timeout=1500)
    assert re.search(r"^SUCCESS! -- [1-9]\d* Passed \| 0 Failed", done.stdout, re.MULTILINE), done.stdout[-5000:]
