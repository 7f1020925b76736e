"""`gangline handover` that is interrupted at any of its writes: repeated, it ends as one that was not."""

import io
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gangline.api.meta import JSON
from gangline.base.clock import SystemClock
from gangline.cli.connect.server import ServerTarget
from gangline.cli.handover.handover import Handover
from gangline.cli.handover.record import HANDOVER_SELECTOR, HandoverRecord, read_handover
from gangline.cli.install.request import InstallRequest
from gangline.cli.install.screen import InstallScreen
from gangline.kube.client import Client
from gangline.kube.config.connection import load_connection
from gangline.kube.transport.api import Request, Response, ResponseStream, Transport, WebSocket
from gangline.kube.transport.http import HttpTransport
from support.cluster.migration import DEPLOYMENTS_PATH
from support.cluster.operators import CRDS_PATH, KUBEFLOW, install_crds, peer_crds
from support.requirements import skip_or_fail
from support.servers.real import RealServer

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("operator"), pytest.mark.timeout(600)]

NAME = "validator.training-operator.kubeflow.org"
HOOKS_PATH = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
OTHER = f"{DEPLOYMENTS_PATH}/kubeflow/deployments/training-operator"
OURS = f"{DEPLOYMENTS_PATH}/gangline/deployments/gangline-operator"
REQUEST = InstallRequest("gangline", {}, wait=False)
STOPS = 4
# Two of theirs, so that it does not take long.
CRD_NAMES = ("tfjobs.kubeflow.org", "pytorchjobs.kubeflow.org")


def never(number: int, request: Request) -> bool:
    return False


class Interrupted(BaseException):
    """The process is ended."""


class StoppingTransport:
    """Passes requests on until the process ends: before or after a request that changes something."""

    def __init__(self, transport: Transport, stops: Callable[[int, Request], bool], *, after: bool) -> None:
        """`stops` is given the number and the request."""
        self._transport, self._stops, self._after = transport, stops, after
        self.writes = 0

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        if request.method == "GET" or any(name == "dryRun" for name, _ in request.query):
            return await self._transport.send(request, timeout=timeout)
        self.writes += 1
        ends = self._stops(self.writes, request)
        if ends and not self._after:
            raise Interrupted
        response = await self._transport.send(request, timeout=timeout)
        if ends:
            raise Interrupted
        return response

    def stream(self, request: Request, *, idle: timedelta | None = None) -> AbstractAsyncContextManager[ResponseStream]:
        return self._transport.stream(request, idle=idle)

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        return self._transport.frames(request, protocols)


class HandoverCluster:
    """A server with the objects of the Kubeflow operator; nobody runs them."""

    def __init__(self, server: RealServer, folder: Path) -> None:
        self.server, self._folder = server, folder

    def body(self, path: str) -> JSON | None:
        answer = self.server.call("GET", path)
        return answer.body if answer.status == 200 else None

    def replicas(self, path: str) -> int | None:
        found = self.body(path)
        return found["spec"]["replicas"] if found is not None else None

    def crd_specs(self) -> dict[str, Any]:
        return {name: (self.body(f"{CRDS_PATH}/{name}") or {}).get("spec") for name in CRD_NAMES}

    def record(self) -> HandoverRecord | None:
        maps = self.server.call("GET", f"/api/v1/namespaces/gangline/configmaps?labelSelector={HANDOVER_SELECTOR}").body
        return read_handover(maps["items"])

    async def attempt(
        self, *, back: bool = False, stops: Callable[[int, Request], bool] = never, after: bool = False
    ) -> int:
        """Hand over, there or back. Returns how many writes there were."""
        connection = load_connection(kubeconfig=str(self.server.kubeconfig), environ={}, home=self._folder)
        async with HttpTransport(connection) as transport:
            stopping = StoppingTransport(transport, stops, after=after)
            handover = Handover(Client(stopping), REQUEST, InstallScreen(io.StringIO()), SystemClock())
            target: ServerTarget = None  # type: ignore[assignment] # only for the verdict at the end, which needs pods
            try:
                await (handover.run_back(confirmed=True) if back else handover.run(target, confirmed=True))
            except Interrupted:
                assert stops is not never
            return stopping.writes


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[HandoverCluster]:
    if KUBEFLOW.missing():
        skip_or_fail("the Kubeflow operator is missing: run hack/peer.sh")
    with RealServer(directory=tmp_path / "server") as server:
        server.call("POST", "/api/v1/namespaces", {"metadata": {"name": "kubeflow"}})
        install_crds(server, [body for body in peer_crds() if body["metadata"]["name"] in CRD_NAMES])
        labels = {"control-plane": "kubeflow-training-operator"}
        containers = [{"name": "training-operator", "image": "kubeflow/training-operator:v1-855e096"}]
        template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
        spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
        deployment = {"metadata": {"name": "training-operator"}, "spec": spec}
        assert server.call("POST", f"{DEPLOYMENTS_PATH}/kubeflow/deployments", deployment).status == 201
        hook = {
            "name": "tfjob.kubeflow.org",
            "clientConfig": {"service": {"name": "training-operator", "namespace": "kubeflow"}},
            "rules": [
                {
                    "apiGroups": ["kubeflow.org"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["tfjobs"],
                }
            ],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }
        assert server.call("POST", HOOKS_PATH, {"metadata": {"name": NAME}, "webhooks": [hook]}).status == 201
        yield HandoverCluster(server, tmp_path)


async def test_it_can_be_repeated_wherever_it_was_interrupted(cluster: HandoverCluster) -> None:
    crds, hook = cluster.crd_specs(), cluster.body(f"{HOOKS_PATH}/{NAME}")
    assert hook is not None

    def assert_there() -> None:
        assert cluster.replicas(OTHER) == 0
        assert cluster.body(f"{HOOKS_PATH}/{NAME}") is None
        assert (cluster.replicas(OURS) or 0) > 0
        assert cluster.crd_specs() != crds
        record = cluster.record()
        assert record is not None
        assert [(one.name, one.replicas) for one in record.deployments] == [("training-operator", 2)]
        kept = {body["metadata"]["name"]: body for body in record.objects}
        assert {name: kept[name]["spec"] for name in crds} == crds, "what is kept is what the first attempt found"
        assert kept[NAME]["webhooks"] == hook["webhooks"]

    def assert_back() -> None:
        assert cluster.replicas(OTHER) == 2
        assert cluster.replicas(OURS) == 0
        assert cluster.crd_specs() == crds
        assert (cluster.body(f"{HOOKS_PATH}/{NAME}") or {})["webhooks"] == hook["webhooks"]
        assert (
            cluster.server.call(
                "GET", "/api/v1/namespaces/gangline/configmaps?labelSelector=" + HANDOVER_SELECTOR
            ).body["items"]
            == []
        )

    writes_there = await cluster.attempt()
    assert_there()
    writes_back = await cluster.attempt(back=True)
    assert_back()
    for number in range(STOPS):
        await cluster.attempt(stops=at_write(number, writes_there), after=number % 2 == 1)
        await cluster.attempt()
        assert_there()
        await cluster.attempt(back=True, stops=at_write(number, writes_back), after=number % 2 == 0)
        if cluster.record() is not None:
            await cluster.attempt(back=True)
        assert_back()


def at_write(number: int, writes: int) -> Callable[[int, Request], bool]:
    """Stops at one of the writes: the first, the last, or between them."""
    return lambda count, _: count == 1 + number * (writes - 1) // (STOPS - 1)


async def test_one_that_was_interrupted_can_be_taken_back(cluster: HandoverCluster) -> None:
    crds = cluster.crd_specs()
    await cluster.attempt(stops=lambda _, request: request.path.endswith("/training-operator/scale"), after=True)
    assert cluster.replicas(OTHER) == 0
    assert cluster.body(OURS) is None
    await cluster.attempt(back=True)
    assert cluster.replicas(OTHER) == 2
    assert cluster.body(f"{HOOKS_PATH}/{NAME}") is not None
    assert cluster.crd_specs() == crds
