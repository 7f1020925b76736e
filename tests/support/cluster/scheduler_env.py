"""A few fake nodes, gangs on them and a scheduler, on any API server: for end-to-end tests of the scheduler.

Tests on one server keep apart by namespace, by a label of their nodes and by the name of their scheduler.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from gangline.api.core import Event, Namespace
from gangline.api.kubeflow.training import REPLICA_INDEX, REPLICA_TYPE
from gangline.api.meta import JSON, Key, Object, Selector
from gangline.api.scheduler_views import Node, Pod
from gangline.api.scheduling import GANG_GATE, GROUP_NAME_ANNOTATION, PodGroup
from gangline.base.clock import Clock, SystemClock
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.errors import Conflict, Invalid, NotFound
from gangline.kube.options import PatchType
from gangline.kube.transport.api import Request, Response
from gangline.kube.transport.http import HttpTransport
from gangline.operator.definitions import CRDS, DefinitionWaiter, apply_crds
from gangline.operator.scheduler_process import REQUIRED_RESOURCES
from gangline.runtime.events import EventRecorder
from gangline.runtime.informer import Delta, Informer
from gangline.scheduler.scheduler import SCHEME, PrepareConnections, Scheduler
from gangline.scheduler.settings import Intervals, SchedulerSettings
from gangline.scheduler.types.cycle import SchedulerPolicy

T = TypeVar("T", bound=Object)

WAIT_SECONDS = 60.0  # seconds; what is waited for takes milliseconds, but the machine may be busy
ENV_LABEL = "gangtown"
DEFAULT_ALLOCATABLE = {"memory": "64Gi", "pods": "110"}
FAST_INTERVALS = Intervals(
    debounce=timedelta(milliseconds=2),
    max_cycle_delay=timedelta(milliseconds=50),
    report=timedelta(milliseconds=2),
    status_write=timedelta(),
    message_write=timedelta(),
    condition_write=timedelta(seconds=60),
    queue_write=timedelta(milliseconds=20),
)


class ObjectReader:
    """What is on the server now, in one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace

    async def pod(self, name: str) -> Pod:
        return await self._client.get(Pod, Key(self._namespace, name))

    async def group(self, name: str) -> PodGroup:
        return await self._client.get(PodGroup, Key(self._namespace, name))

    async def all_unbound(self, names: Sequence[str]) -> bool:
        """Whether none of the pods has a node."""
        return not any([(await self.pod(name)).spec.node_name for name in names])

    async def events(self, reason: str) -> list[Event]:
        page = await self._client.list(Event, Selector(namespace=self._namespace))
        return [event for event in page.items if event.reason == reason]


class Waiter:
    """Waits for states of objects on the server; fails when it takes too long."""

    def __init__(self, client: Client, namespace: str, read: ObjectReader) -> None:
        self._client, self._namespace, self._read = client, namespace, read

    async def until(self, kind: type[T], name: str, holds: Callable[[T], bool], *, namespaced: bool = True) -> T:
        """The object, as soon as it is there and `holds` is true of it."""
        key = Key(self._namespace, name) if namespaced else Key("", name)
        found: T | None = None
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while True:
                    with suppress(NotFound):
                        found = await self._client.get(kind, key)
                        if holds(found):
                            return found
                    await asyncio.sleep(0.005)
        except TimeoutError:
            shown = msgspec.json.encode(found).decode() if found is not None else "is not there"
            raise AssertionError(f"{name} did not come to that: {shown}") from None

    async def bound(self, name: str) -> str:
        """The node of a pod, as soon as it has one."""
        return (await self.until(Pod, name, lambda pod: bool(pod.spec.node_name))).spec.node_name

    async def phase(self, name: str, phase: str, reason: str | None = None) -> PodGroup:
        """The group, as soon as it is in a phase (for a reason)."""

        def there(group: PodGroup) -> bool:
            state = group.status.state
            return state.phase == phase and reason in (None, state.reason)

        return await self.until(PodGroup, name, there)

    async def events(self, reason: str, count: int = 1) -> list[Event]:
        """The Events for a reason, as soon as there are `count` of them."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                if len(found := await self._read.events(reason)) >= count:
                    return found
                await asyncio.sleep(0.005)


class PodDriver:
    """The kubelet's part: no node runs anything here, so tests say what becomes of pods."""

    def __init__(self, client: Client, namespace: str, wait: Waiter) -> None:
        self._client, self._namespace, self._wait = client, namespace, wait

    async def set_phase(
        self,
        name: str,
        phase: str = "Running",
        *,
        reason: str = "",
        exit_code: int | None = None,
        uid: str = "",
    ) -> None:
        """Write a pod's status as its kubelet would."""
        status: JSON = {"phase": phase, **({"reason": reason} if reason else {})}
        if exit_code is not None:
            ended = {"terminated": {"exitCode": exit_code, "reason": "Error"}}
            status["containerStatuses"] = [
                {
                    "name": "main",
                    "image": "i",
                    "imageID": "",
                    "ready": False,
                    "restartCount": 0,
                    "state": ended,
                }
            ]
        patch: JSON = {"status": status, **({"metadata": {"uid": uid}} if uid else {})}
        await self._client.patch(Pod, Key(self._namespace, name), patch, form=PatchType.STRATEGIC, subresource="status")

    async def run_when_bound(self, names: Sequence[str]) -> None:
        """Wait until the pods are bound, and set them running."""
        for name in names:
            await self._wait.bound(name)
            await self.set_phase(name)

    async def delete_now(self, name: str) -> None:
        """Delete a pod without a grace period, as if its node had ended it."""
        with suppress(NotFound):
            await self._client.delete(Pod, Key(self._namespace, name), grace=timedelta())

    async def finish_deletion(self, name: str) -> None:
        """Wait for somebody to delete a pod, and let it go as its node would."""
        await self._wait.until(Pod, name, lambda pod: pod.metadata.deletion_timestamp is not None)
        await self.delete_now(name)

    @asynccontextmanager
    async def run_kubelet(self, fails: Callable[[Pod], bool] = lambda pod: False) -> AsyncIterator[None]:
        """Until the block ends, set bound pods running, or failed where `fails` is true, and finish deletions."""
        clock = SystemClock()
        pods = Informer(self._client, Pod, Selector(namespace=self._namespace), clock=clock)
        todo: asyncio.Queue[Pod] = asyncio.Queue()

        async def work() -> None:
            while True:
                pod = await todo.get()
                name, leaving = pod.metadata.name, pod.metadata.deletion_timestamp is not None
                # Gone, or another pod by now: a patch that names another uid is invalid.
                with suppress(NotFound, Conflict, Invalid):
                    if leaving:
                        # By uid: another one may have its name by now.
                        await self._client.delete(Pod, pod.metadata.key, uid=pod.metadata.uid, grace=timedelta())
                    elif pod.spec.node_name and pod.status.phase == "Pending":
                        await self.set_phase(name, "Failed" if fails(pod) else "Running", uid=pod.metadata.uid)

        def told(delta: Delta[Pod]) -> None:
            if delta.after is not None:
                todo.put_nowait(delta.after)

        async with asyncio.TaskGroup() as group:
            with pods.subscribe(told):
                tasks = [group.create_task(pods.run()), group.create_task(work())]
                try:
                    yield
                finally:
                    for task in tasks:
                        task.cancel()


class SchedulerEnv:
    """One test's part of a server: makes nodes, gangs and a scheduler. `read`, `wait` and `pods` look, wait and run."""

    def __init__(self, client: Client, namespace: str) -> None:
        """The client needs the resources of `gangline.scheduler.scheduler.SCHEME`."""
        self.client, self.namespace = client, namespace
        self.scheduler_name = f"gangline-{namespace}"
        self.read = ObjectReader(client, namespace)
        self.wait = Waiter(client, namespace, self.read)
        self.pods = PodDriver(client, namespace, self.wait)
        self._node_names: list[str] = []

    def key(self, name: str) -> Key:
        return Key(self.namespace, name)

    # Making

    async def create_node(self, name: str, *, labels: dict[str, str] | None = None, **offers: str) -> str:
        """Create a ready node with these resources: `create_node("a", cpu="4")`."""
        name = f"{self.namespace}-{name}"
        marks = {ENV_LABEL: self.namespace, "kubernetes.io/hostname": name, **(labels or {})}
        await self.client.create(Node, {"metadata": {"name": name, "labels": marks}})
        self._node_names.append(name)
        await self.set_allocatable(name, **offers)
        # A real server taints new nodes until a controller has seen them.
        await self.client.patch(Node, Key("", name), {"spec": {"taints": None}})
        return name

    async def set_allocatable(self, name: str, **offers: str) -> None:
        """Set the capacity and allocatable resources of a node."""
        spelled = {key.replace("gpu", "nvidia.com/gpu"): value for key, value in offers.items()}
        has = {**DEFAULT_ALLOCATABLE, **spelled}
        ready = {"type": "Ready", "status": "True"}
        status = {"capacity": has, "allocatable": has, "conditions": [ready]}
        await self.client.patch(Node, Key("", name), {"status": status}, subresource="status")

    async def create_group(self, name: str, least: int, **spec: Any) -> PodGroup:
        body = {"metadata": {"name": name}, "spec": {"minMember": least, **spec}}
        return await self.client.create(PodGroup, body, namespace=self.namespace)

    async def create_pod(
        self,
        name: str,
        group: str = "",
        *,
        role: str = "",
        index: int | None = None,
        cpu: str = "1",
        gated: bool = False,
        **spec: Any,
    ) -> Pod:
        labels = {**({REPLICA_TYPE: role} if role else {})}
        if index is not None:
            labels[REPLICA_INDEX] = str(index)
        body: JSON = {
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": {GROUP_NAME_ANNOTATION: group} if group else {},
            },
            "spec": {
                "schedulerName": "default-scheduler" if gated else self.scheduler_name,
                "nodeSelector": {ENV_LABEL: self.namespace},
                "containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 1,
                **({"schedulingGates": [{"name": GANG_GATE}]} if gated else {}),
                **spec,
            },
        }
        return await self.client.create(Pod, body, namespace=self.namespace)

    async def create_gang(self, name: str, members: int, least: int | None = None, **pod: Any) -> list[str]:
        """Create a group and its pods, `name-0` and so on; returns their names."""
        await self.create_group(name, members if least is None else least)
        names = [f"{name}-{number}" for number in range(members)]
        for number, each in enumerate(names):
            await self.create_pod(each, name, role="worker", index=number, **pod)
        return names

    # The scheduler

    @asynccontextmanager
    async def run_scheduler(
        self,
        client: Client | None = None,
        *,
        clock: Clock | None = None,
        policy: SchedulerPolicy | None = None,
        prepare: PrepareConnections | None = None,
        **settings: Any,
    ) -> AsyncIterator[Scheduler]:
        """A scheduler of this namespace's pods, until the block ends. It then ends as if it had been killed."""
        clock, client = clock or SystemClock(), client or self.client
        recorder = EventRecorder(client, "gangline.dev/scheduler", "test", clock, scheme=client.scheme)
        options = SchedulerSettings(
            name=self.scheduler_name, intervals=FAST_INTERVALS, policy=policy or SchedulerPolicy(), **settings
        )
        scheduler = Scheduler(client, clock, recorder, options, prepare=prepare)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(scheduler.run()), group.create_task(recorder.run())]
            yield scheduler
            for task in tasks:
                task.cancel()

    async def clean_up(self) -> None:
        """Delete all groups, pods and nodes of this environment."""
        for kind in (PodGroup, Pod):
            page = await self.client.list(kind, Selector(namespace=self.namespace))
            for found in page.items:
                with suppress(NotFound):
                    await self.client.delete(kind, found.metadata.key, grace=timedelta())
        for name in self._node_names:
            with suppress(NotFound):
                await self.client.delete(Node, Key("", name))


@asynccontextmanager
async def scheduler_env(server: Connection) -> AsyncIterator[SchedulerEnv]:
    """A namespace of its own on a server that serves PodGroups; everything but the definitions is deleted afterwards."""
    async with HttpTransport(server, warn=lambda text: None) as transport:
        client = Client(transport, scheme=SCHEME.with_resources(CRDS))
        await apply_crds(client, ())
        await DefinitionWaiter(client, REQUIRED_RESOURCES, SystemClock()).wait_until_served()
        name = f"gangs-{uuid.uuid4().hex[:8]}"
        await client.create(Namespace, {"metadata": {"name": name}})
        env = SchedulerEnv(client, name)
        yield env
        await env.clean_up()


class InterceptedTransport(HttpTransport):
    """A transport whose `intercept` may answer a request in the server's place."""

    intercept: Callable[[Request], Awaitable[Response | None]] | None = None

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        answer = await self.intercept(request) if self.intercept is not None else None
        return answer if answer is not None else await super().send(request, timeout=timeout)


def is_binding(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/binding")


def error_response(code: int = 500) -> Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "message": "somebody meddled"}
    return Response(code, msgspec.json.encode(body))
