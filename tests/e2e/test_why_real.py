"""`why` on a real kube-apiserver: what only its admission says, and pods as a kubelet would report them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gangline.api.core import Namespace, Node
from gangline.api.meta import JSON, Key
from gangline.base.clock import SystemClock
from gangline.cli.jobs.why import report_text
from gangline.kube.client import Client
from gangline.kube.config.connection import load_connection
from gangline.kube.transport.http import HttpTransport
from gangline.operator.assembly import run_engine
from gangline.operator.definitions import create_crds
from gangline.operator.engine import OPERATOR_SCHEME, enabled_frameworks
from gangline.operator.settings import OperatorSettings
from gangline.why.collect import collect
from gangline.why.diagnosis.case import DiagnosisTimeouts, JobSnapshot
from gangline.why.diagnosis.diagnose import diagnose
from gangline.why.diagnosis.report import Diagnosis
from gangline.why.kinds import PODS, WORKLOAD_KINDS, json_resource
from support.cases.why_faults import fault_job
from support.cluster.operators import KUBEFLOW_LIFTED, run_operator
from support.requirements import skip_or_fail
from support.servers.real import RealServer

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.xdist_group("why-real")]

DEADLINE = 90.0
CLOCK = SystemClock()
TFJOBS = WORKLOAD_KINDS[0].resource
QUOTAS = json_resource("", "v1", "ResourceQuota", "resourcequotas")
LIMITS = json_resource("", "v1", "LimitRange", "limitranges")
CLAIMS = json_resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")


class Cluster:
    """The server, and what is done to it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.reports: dict[str, Diagnosis] = {}

    async def namespace(self, name: str, labels: dict[str, str] | None = None) -> None:
        await self.client.create(Namespace, {"metadata": {"name": name, "labels": labels or {}}})

    async def submit(self, namespace: str, body: JSON) -> None:
        await self.client.create(TFJOBS, body, namespace=namespace)

    async def report(self, key: str, until: Callable[[JobSnapshot], bool]) -> None:
        """Look at namespace/name when it has come so far, and keep the report under the namespace."""
        namespace, _, name = key.partition("/")
        patience = DiagnosisTimeouts(unnoticed_after=timedelta())
        case = await collect(self.client, name, namespace, CLOCK, patience)
        with suppress(TimeoutError):
            async with asyncio.timeout(DEADLINE):
                while not until(case):
                    await asyncio.sleep(0.2)
                    case = await collect(self.client, name, namespace, CLOCK, patience)
        self.reports[namespace] = diagnose(case)

    async def has_pods(self, namespace: str, name: str) -> list[str]:
        """The names of the job's pods, once it has them."""
        async with asyncio.timeout(DEADLINE):
            while True:
                case = await collect(self.client, name, namespace, CLOCK)
                if len(case.replicas) == case.job.desired_total:
                    return [one.pod.metadata.name for one in case.replicas]
                await asyncio.sleep(0.1)

    async def says(self, namespace: str, pod: str, status: JSON) -> None:
        """What a kubelet would write."""
        await self.client.patch(PODS, Key(namespace, pod), {"status": status}, subresource="status")


Operators = Callable[[Client], AbstractAsyncContextManager[None]]


def refused(case: JobSnapshot) -> bool:
    """As our status has it, or as events do."""
    return case.job.true_condition("Blocked") is not None or any(
        one.reason.startswith("FailedCreate") for one in case.events
    )


def _container(state: JSON) -> JSON:
    return {
        "name": "tensorflow",
        "image": "i",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": state,
    }


async def play(cluster: Cluster) -> None:
    client = cluster.client
    await cluster.namespace("strict", {"pod-security.kubernetes.io/enforce": "restricted"})
    for name in ("quota", "limits", "priority", "pulls", "lost", "killed", "alone", "claims", "team", "well"):
        await cluster.namespace(name)
    await client.create(QUOTAS, {"metadata": {"name": "compute"}, "spec": {"hard": {"pods": "0"}}}, namespace="quota")
    # In place of the controller that counts.
    status = {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}
    await client.patch(QUOTAS, Key("quota", "compute"), status, subresource="status")
    limit = {"type": "Container", "max": {"memory": "1Gi"}}
    await client.create(LIMITS, {"metadata": {"name": "l"}, "spec": {"limits": [limit]}}, namespace="limits")
    await client.create(Node, {"metadata": {"name": "gpu-7"}})
    gone = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
    }
    await client.patch(Node, Key("", "gpu-7"), {"status": {"conditions": [gone]}}, subresource="status")
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Ti"}},
        "storageClassName": "fast",
    }
    await client.create(CLAIMS, {"metadata": {"name": "data"}, "spec": claim}, namespace="claims")
    big = {"resources": {"limits": {"memory": "4Gi"}}}
    data = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}
    bodies: dict[str, JSON] = {
        "strict": fault_job("j", "true"),
        "quota": fault_job("j", "true"),
        "limits": fault_job("j", "true", container=big),
        "priority": fault_job("j", "true", pod={"priorityClassName": "urgent"}),
        "pulls": fault_job("j", "true", Worker=2),
        "lost": fault_job("j", "true", pod={"nodeName": "gpu-7"}),
        "killed": fault_job("j", "true", container=big),
        "alone": fault_job("j", "true"),
        "claims": fault_job("j", "true", pod=data),
        "team": fault_job("j", "true", restart="ExitCode", Worker=2),
        "well": fault_job("j", "true", Worker=2),
    }
    for namespace, body in bodies.items():
        await cluster.submit(namespace, body)
    await _kubelet(cluster)
    for namespace in ("strict", "quota", "limits", "priority"):
        await cluster.report(f"{namespace}/j", refused)
    for namespace in ("pulls", "lost", "alone", "claims"):
        await cluster.report(f"{namespace}/j", lambda case: bool(case.replicas))
    for namespace in ("killed", "team"):
        await cluster.report(f"{namespace}/j", lambda case: case.job.state == "Failed")
    await cluster.report("well/j", lambda case: case.job.state == "Running")


async def _kubelet(cluster: Cluster) -> None:
    held = {"waiting": {"reason": "ErrImagePull", "message": "failed to resolve reference: train:1: not found"}}
    for pod in await cluster.has_pods("pulls", "j"):
        await cluster.says("pulls", pod, {"phase": "Pending", "containerStatuses": [_container(held)]})
    for pod in await cluster.has_pods("lost", "j"):
        await cluster.says("lost", pod, {"phase": "Running", "containerStatuses": [_container({"running": {}})]})
    for pod in await cluster.has_pods("well", "j"):
        await cluster.says("well", pod, {"phase": "Running", "containerStatuses": [_container({"running": {}})]})
    codes = {"j-worker-0": 1, "j-worker-1": 3}
    for pod in await cluster.has_pods("team", "j"):
        end = {
            "exitCode": codes[pod],
            "reason": "Error",
            "finishedAt": f"2026-01-01T00:00:0{4 - codes[pod]}Z",
        }
        told = {"message": "Connection closed by peer"} if codes[pod] == 1 else {}
        state = {"terminated": {**end, **told}}
        await cluster.says("team", pod, {"phase": "Failed", "containerStatuses": [_container(state)]})
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:00:00Z"}}
    for pod in await cluster.has_pods("killed", "j"):
        await cluster.says("killed", pod, {"phase": "Failed", "containerStatuses": [_container(ended)]})


async def play_on(server: RealServer, home: Path, operators: Operators) -> dict[str, Diagnosis]:
    connection = load_connection(kubeconfig=str(server.kubeconfig), environ={}, home=home)
    async with HttpTransport(connection) as transport:
        client = Client(transport, scheme=OPERATOR_SCHEME, clock=CLOCK)
        cluster = Cluster(client)
        async with operators(client):
            await play(cluster)
    return cluster.reports


@asynccontextmanager
async def ours(client: Client) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        await create_crds(client, CLOCK)
        running_operator = group.create_task(
            run_engine(client, OperatorSettings(), enabled_frameworks(OperatorSettings()), CLOCK)
        )
        yield
        running_operator.cancel()


@asynccontextmanager
async def nobody(client: Client) -> AsyncIterator[None]:
    yield


@pytest.fixture(scope="module", params=["gangline", "kubeflow"])
def reports(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Diagnosis]:
    """The same cluster, run by us and by the operator that we replace, whose status says less."""
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("real")
    if request.param == "gangline":
        with RealServer(directory=folder) as server:
            return asyncio.run(play_on(server, home, ours))
    missing = KUBEFLOW_LIFTED.missing()
    if missing is not None:
        skip_or_fail(missing)
    with RealServer(directory=folder) as server, run_operator(KUBEFLOW_LIFTED, server, folder / "operator"):
        return asyncio.run(play_on(server, home, nobody))


@pytest.mark.parametrize(
    ("namespace", "rule", "words"),
    [
        ("strict", "pod-security", '"restricted" pods only'),
        ("quota", "quota", "pods=1 asked, pods=0 used, pods=0 allowed"),
        ("limits", "limit-range", "maximum memory of 1Gi per Container"),
        ("priority", "priority-class-missing", "urgent"),
        ("pulls", "image-name", "worker-0 and worker-1"),
        ("lost", "node-lost", "gpu-7"),
        ("killed", "oom-killed", "worker-0"),
        ("alone", "no-scheduler", "default-scheduler"),
        ("claims", "claim-unbound", "1Ti of class fast"),
        ("team", "permanent-exit-code", "worker-1 ended with exit code 3"),
    ],
)
def test_fault_of_a_cluster_is_found(reports: dict[str, Any], namespace: str, rule: str, words: str) -> None:
    report: Diagnosis = reports[namespace]
    assert [cause.rule for cause in report.causes] == [rule], report_text(report)
    assert words in report.cause
    # Whoever is lost has no log to read, and nothing else is missing.
    assert all(line.startswith("log of j-worker-0") for line in report.unread)


def test_nothing_is_found_in_a_job_that_runs(reports: dict[str, Any]) -> None:
    report: Diagnosis = reports["well"]
    assert report.healthy, report_text(report)
