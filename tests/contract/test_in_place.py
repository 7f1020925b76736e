"""Restart in place with real kube-apiservers: which of them offer it, and whether they accept all that it consists of.

There is no kubelet: the test writes the statuses that the one of 1.35 writes.
"""

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gangline.api.core import Pod
from gangline.api.in_place import HOLD_CONTAINER, IN_PLACE_ANNOTATION, IN_PLACE_REASONS
from gangline.api.kubeflow.kinds import JAXJOB
from gangline.api.meta import JSON, Selector
from gangline.jobs.in_place_support import may_restart_in_place, offers_restart_in_place
from gangline.jobs.pods.in_place_containers import GATE_CONTAINER
from gangline.kube.client import Client
from gangline.kube.config.connection import load_connection
from gangline.kube.discovery import server_version
from gangline.kube.transport.http import HttpTransport
from support.cluster.installation import installed_rights
from support.cluster.operator_process import (
    APIS,
    apply_object,
    create_object,
    job_pods,
    running_operator,
    submit_job,
)
from support.cluster.operators import GANGLINE_OPERATOR, install_crds
from support.servers.real import USERS, RealServer, cache_dir, find_assets
from support.waiting import wait_until_blocking

OPERATOR = "system:serviceaccount:gangline:gangline-operator"
GATES = "NodeDeclaredFeatures=true,RestartAllContainersOnContainerExits=true"
VERSION = "1.35.4"
ASSETS = cache_dir().with_name(VERSION)
BY_KUBELET = IN_PLACE_REASONS[1]
# Too large to be built for every change.
needs_1_35 = pytest.mark.skipif(
    not (ASSETS / "kube-apiserver").is_file(),
    reason=f"no Kubernetes {VERSION}: KUBERNETES_VERSION={VERSION} hack/kubernetes.sh kube-apiserver etcd",
)


class Release(NamedTuple):
    """A kube-apiserver of the version in which restart in place is alpha, and whether it is on."""

    flags: tuple[str, ...]
    offers: bool


async def test_servers_before_it_do_not_offer_it(client: Client, namespace: str) -> None:
    assert not may_restart_in_place(await server_version(client))
    assert not await offers_restart_in_place(client, namespace, "gangline:1")
    assert not (await client.list(Pod, Selector(namespace))).items


@pytest.mark.parametrize(
    ("version", "may"), [("v1.34.4", False), ("v1.35.0", True), ("v1.36.3-eks-1", True), ("v2.0.0", True), ("", False)]
)
def test_versions(version: str, may: bool) -> None:
    assert may_restart_in_place(version) == may


@pytest.fixture(
    params=[Release((f"--feature-gates={GATES}",), offers=True), Release((), offers=False)], ids=["on", "off"]
)
async def release(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Client, Release]]:
    with RealServer(ASSETS, directory=tmp_path, flags=request.param.flags) as server:
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        create_object(server, "/api/v1/namespaces", {"metadata": {"name": "gangline", "labels": labels}})
        connection = load_connection(kubeconfig=str(server.kubeconfig), environ={}, home=tmp_path)
        async with HttpTransport(connection) as transport:
            yield Client(transport), request.param


@needs_1_35
@pytest.mark.real
async def test_1_35_offers_it_behind_its_gate(release: tuple[Client, Release]) -> None:
    client, wanted = release
    assert may_restart_in_place(await server_version(client))
    # In the operator's own namespace, as it is installed.
    assert await offers_restart_in_place(client, "gangline", "gangline:1") == wanted.offers
    assert not (await client.list(Pod, Selector("gangline"))).items


# A job beside a real server


@pytest.fixture(params=["usual", pytest.param("1.35", marks=needs_1_35)])
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RealServer]:
    is_newer = request.param == "1.35"
    assets, flags = ASSETS if is_newer else find_assets(), [f"--feature-gates={GATES}"] if is_newer else []
    with RealServer(assets, directory=tmp_path / "server", flags=flags, users={**USERS, OPERATOR: ()}) as server:
        install_crds(server, GANGLINE_OPERATOR.crds())
        for document in installed_rights({"namespace": {"create": True}}):
            apply_object(server, document)
        yield server


def write(server: RealServer, pod: Any, phase: str, program: JSON, hold: JSON, gate: JSON, restarts: int) -> None:
    """Write the status of a pod, as its kubelet does."""
    metadata = pod["metadata"]
    names = [JAXJOB.container, *([HOLD_CONTAINER] if len(pod["spec"]["containers"]) > 1 else [])]
    states = [program, hold]
    empty = {"image": "none", "imageID": "", "ready": False, "restartCount": restarts}
    status: JSON = {
        "phase": phase,
        "containerStatuses": [{"name": name, **empty, **states[number]} for number, name in enumerate(names)],
    }
    if len(names) > 1:
        status["initContainerStatuses"] = [{"name": GATE_CONTAINER, **empty, **gate}]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
    answer = server.call("PATCH", path, {"status": status}, content_type="application/merge-patch+json")
    assert answer.status == 200, answer.body


RUNNING: JSON = {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}


def ended(code: int, reason: str = "Error") -> JSON:
    times = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01:00Z"}
    return {"state": {"terminated": {"exitCode": code, "reason": reason, **times}}}


REMOVED: JSON = {
    "state": {"waiting": {"reason": BY_KUBELET, "message": "The container is removed"}, "terminated": None},
    "lastState": {"terminated": {"exitCode": 137, "reason": BY_KUBELET, "startedAt": None, "finishedAt": None}},
}


def orders(pods: list[Any]) -> set[str]:
    return {pod["metadata"].get("annotations", {}).get(IN_PLACE_ANNOTATION, "") for pod in pods}


@pytest.mark.real
def test_a_team_of_a_real_server(real: RealServer, tmp_path: Path) -> None:
    policy = {"inPlace": True, "rules": [{"when": {"exitCodes": [42]}, "then": "RestartJob"}]}
    namespace = f"test-{uuid.uuid4().hex[:12]}"
    create_object(real, "/api/v1/namespaces", {"metadata": {"name": namespace}})

    def pods() -> list[Any]:
        return job_pods(real, namespace, "job")

    def status() -> Any:
        return real.call("GET", f"{APIS}/namespaces/{namespace}/{JAXJOB.plural}/job").body.get("status") or {}

    with running_operator(real, tmp_path, "--agent-image", "gangline:1", context=OPERATOR):
        submit_job(real, namespace, JAXJOB, "job", recovery=policy)
        wait_until_blocking(lambda: len(pods()) == 2, "no pods were created")
        before = {pod["metadata"]["uid"] for pod in pods()}
        for pod in pods():
            write(real, pod, "Running", RUNNING, RUNNING, ended(0), 0)
        if orders(pods()) == {""}:
            # It is not offered: the team gets new pods, and the status says so.
            write(real, pods()[1], "Failed", ended(42), RUNNING, ended(0), 0)
            wait_until_blocking(lambda: "recovery" in status(), "nothing was decided")
            assert status()["recovery"]["message"].endswith("because this cluster does not restart pods in place")
            return
        assert orders(pods()) == {"0"}
        write(real, pods()[1], "Running", ended(42), RUNNING, ended(0), 0)
        wait_until_blocking(lambda: orders(pods()) == {"1 stop"}, "the team was not stopped")
        assert status()["recovery"]["message"].startswith("restarted in place because worker-1 (rank 1)")
        for pod in pods():
            write(real, pod, "Pending", REMOVED, REMOVED, {**RUNNING, "lastState": {}}, 1)
        wait_until_blocking(lambda: orders(pods()) == {"1"}, "the team may not start")
        for pod in pods():
            write(real, pod, "Running", {**RUNNING, "lastState": REMOVED["lastState"]}, RUNNING, ended(0), 1)
        wait_until_blocking(lambda: "restartingInPlace" not in status()["ledger"], "the restart is not complete")
        assert (status()["restarts"], status()["firstFailure"]["exitCode"]) == (1, 42)
        assert {pod["metadata"]["uid"] for pod in pods()} == before
        for pod in pods():
            write(real, pod, "Running", ended(0, "Completed"), RUNNING, ended(0), 1)
        wait_until_blocking(lambda: orders(pods()) == {""}, "pods whose program has succeeded were not let go")
        conditions = {one["type"] for one in status()["conditions"] if one["status"] == "True"}
        assert "Succeeded" in conditions
