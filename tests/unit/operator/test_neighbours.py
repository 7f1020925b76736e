"""One slow or broken job never delays the others (D13).

An API server in this process, and the operator on it, whose requests for one namespace go wrong. What is asserted is
order: a job of the same kind, made when the other is in trouble, goes through its whole life before that is over.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from gangline.api.core import Namespace, Pod
from gangline.api.kubeflow.kinds import JAXJOB, JAXJob
from gangline.api.kubeflow.training import ConditionType
from gangline.api.meta import JSON, Key
from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.base.tasks import background_tasks, unwrap_exception_group
from gangline.frameworks.jax import Jax
from gangline.jobs.site import ServiceMode, Site
from gangline.kube.client import Client
from gangline.kube.transport.api import Request, Response, Transport
from gangline.kube.transport.http import HttpTransport
from gangline.local.plane import PlaneSettings, control_plane
from gangline.operator.assembly import run_engine
from gangline.operator.definitions import create_crds
from gangline.operator.engine import OPERATOR_SCHEME
from gangline.operator.request_gate import MAX_IN_FLIGHT, RequestGate
from gangline.operator.settings import OperatorSettings
from gangline.runtime.informer import Informer
from support.servers.scripted import ForwardingTransport, refusal_response

TROUBLED, CALM = "troubled", "calm"
HUGE = 2_000
GIVE_UP = 60.0  # seconds: only a test that fails takes so long
# One service per job: only pods matter here.
SETTINGS = OperatorSettings(kinds=("JAXJob",), site=Site(services=ServiceMode.PER_JOB))


class Trouble(ForwardingTransport):
    """A transport on which some requests of one namespace fail."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._about: Callable[[Request], bool] = lambda request: False
        self._after = 0
        self._answer: Response | None = None
        self._changed = asyncio.Condition()
        self.passed, self.met, self.hanging = 0, 0, 0

    def begin(self, method: str, ending: str, *, after: int = 0, answer: Response | None = None) -> None:
        """From the request of that number on, answer with this response, or never."""
        self._about = lambda request: (
            request.method == method and f"/namespaces/{TROUBLED}/" in request.path and ending in f"{request.path}/"
        )
        self._after, self._answer = after, answer

    async def until(self, met: int) -> None:
        """Wait until so many requests have failed."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.met >= met)

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        if not self._about(request):
            return await self._transport.send(request, timeout=timeout)
        if self.passed < self._after:
            self.passed += 1
            return await self._transport.send(request, timeout=timeout)
        async with self._changed:
            self.met += 1
            self._changed.notify_all()
        if self._answer is not None:
            return self._answer
        self.hanging += 1
        try:
            await asyncio.Event().wait()
            raise AssertionError
        finally:
            self.hanging -= 1


class Town:
    """A user who creates jobs, and a kubelet that changes their pods."""

    def __init__(self, client: Client, trouble: Trouble) -> None:
        self.client, self.trouble = client, trouble
        self.jobs: Informer[JAXJob] = Informer(client, JAXJob, clock=SystemClock())
        self.pods: Informer[Pod] = Informer(client, Pod, clock=SystemClock())

    async def submit(self, namespace: str, workers: int) -> None:
        template = {"spec": {"containers": [{"name": "jax", "image": "train:1"}]}}
        body: JSON = {
            "metadata": {"name": "job"},
            "spec": {
                "jaxReplicaSpecs": {"Worker": {"replicas": workers, "template": template}},
                "runPolicy": {"cleanPodPolicy": "All"},
            },
        }
        await self.client.create(JAXJob, body, namespace=namespace)

    def pods_in(self, namespace: str) -> list[Pod]:
        return [pod for pod in self.pods.cache if pod.metadata.namespace == namespace]

    async def until_pods(self, namespace: str, count: int) -> None:
        await self.pods.wait_until(lambda cache: len(self.pods_in(namespace)) == count)

    async def until_job(self, namespace: str, condition: ConditionType) -> None:
        def holds(cache: object) -> bool:
            job = self.jobs.cache.get(Key(namespace, "job"))
            return job is not None and job.status.holds(condition)

        await self.jobs.wait_until(holds)

    async def move(self, namespace: str, phase: str) -> None:
        for pod in self.pods_in(namespace):
            await self.client.patch(Pod, pod.metadata.key, {"status": {"phase": phase}}, subresource="status")

    async def live(self) -> None:
        """Run a job of two replicas from start to end."""
        await self.submit(CALM, 2)
        await self.until_pods(CALM, 2)
        await self.until_job(CALM, ConditionType.CREATED)
        await self.move(CALM, "Running")
        await self.until_job(CALM, ConditionType.RUNNING)
        await self.move(CALM, "Succeeded")
        await self.until_job(CALM, ConditionType.SUCCEEDED)
        await self.until_pods(CALM, 0)


@asynccontextmanager
async def inhabited() -> AsyncIterator[Town]:
    """A server with an operator. An error in the block is raised unchanged."""
    with unwrap_exception_group():
        async with asyncio.timeout(GIVE_UP), served(SystemClock()) as town:
            yield town


@asynccontextmanager
async def served(clock: SystemClock) -> AsyncIterator[Town]:
    async with (
        Store() as store,
        control_plane(store, PlaneSettings(), clock) as plane,
        HttpTransport(plane.connection) as transport,
    ):
        client = Client(transport, scheme=OPERATOR_SCHEME)
        for namespace in (TROUBLED, CALM):
            await client.create(Namespace, {"metadata": {"name": namespace}})
        await create_crds(client, clock, [JAXJOB])
        town = Town(client, Trouble(transport))
        # As in the operator process: requests that hang do so behind the gate.
        operator = Client(RequestGate(town.trouble, clock), scheme=OPERATOR_SCHEME, clock=clock)
        async with background_tasks(town.jobs.run(), town.pods.run(), run_engine(operator, SETTINGS, [Jax()], clock)):
            yield town


async def test_a_huge_job_that_is_under_way() -> None:
    async with inhabited() as town:
        await town.submit(TROUBLED, HUGE)
        await town.pods.wait_until(lambda cache: len(cache) >= 50)
        await town.live()
        assert 50 <= len(town.pods_in(TROUBLED)) < HUGE


async def test_a_huge_job_whose_pods_are_not_answered_for() -> None:
    """More requests of the job hang than the gate has slots."""
    async with inhabited() as town:
        town.trouble.begin("POST", "/pods/", after=40)
        await town.submit(TROUBLED, HUGE)
        await town.trouble.until(MAX_IN_FLIGHT)
        await town.live()
        assert town.trouble.hanging >= MAX_IN_FLIGHT
        assert len(town.pods_in(TROUBLED)) == 40


async def test_a_job_whose_pods_cannot_be_deleted() -> None:
    async with inhabited() as town:
        await town.submit(TROUBLED, 40)
        await town.until_pods(TROUBLED, 40)
        town.trouble.begin("DELETE", "/pods/")
        await town.client.patch(JAXJob, Key(TROUBLED, "job"), {"spec": {"runPolicy": {"suspend": True}}})
        await town.trouble.until(MAX_IN_FLIGHT)
        await town.live()
        assert town.trouble.hanging >= MAX_IN_FLIGHT
        assert len(town.pods_in(TROUBLED)) == 40


async def test_a_job_whose_status_cannot_be_written() -> None:
    async with inhabited() as town:
        town.trouble.begin("PATCH", "/status/")
        await town.submit(TROUBLED, HUGE)
        await town.trouble.until(1)
        await town.live()
        assert town.trouble.hanging == 1
        assert town.pods_in(TROUBLED) == []


QUOTA = refusal_response(403, 'pods "job-worker-3" is forbidden: exceeded quota: pods', "Forbidden")
DOWN = refusal_response(500, 'failed calling webhook "pods.example.com"', "InternalError")


@pytest.mark.parametrize("answer", [QUOTA, DOWN], ids=["quota", "500"])
async def test_a_huge_job_whose_pods_are_refused(answer: Response) -> None:
    """The job is retried, but never with all its pods at once."""
    async with inhabited() as town:
        town.trouble.begin("POST", "/pods/", after=3, answer=answer)
        await town.submit(TROUBLED, HUGE)
        await town.trouble.until(3)
        before = town.trouble.met
        await town.live()
        assert len(town.pods_in(TROUBLED)) == 3
        assert town.trouble.met - before < 200
        job = town.jobs.cache.get(Key(TROUBLED, "job"))
        assert job is not None
        assert not job.status.finished
