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
from gangline.api.scheduling import GATE, GROUP_NAME, PodGroup
from gangline.base.clock import Clock, SystemClock
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.errors import Conflict, Invalid, NotFound
from gangline.kube.options import PatchForm
from gangline.kube.transport.api import Request, Response
from gangline.kube.transport.http import HttpTransport
from gangline.operator.definitions import CRDS, Definitions, install
from gangline.operator.scheduler_process import GANG_KINDS
from gangline.runtime.events import Recorder
from gangline.runtime.informer import Delta, Informer
from gangline.scheduler.scheduler import SCHEME, Prepare, Scheduler
from gangline.scheduler.settings import Pace, SchedulerSettings
from gangline.scheduler.types.cycle import Policy

T = TypeVar("T", bound=Object)

PATIENCE = 60.0  # seconds; what is waited for takes milliseconds, but the machine may be busy
TOWN = "gangtown"
ALLOCATABLE = {"memory": "64Gi", "pods": "110"}
QUICK = Pace(
    debounce=timedelta(milliseconds=2),
    longest=timedelta(milliseconds=50),
    report=timedelta(milliseconds=2),
    same=timedelta(),
    why=timedelta(),
    words=timedelta(seconds=60),
    queues=timedelta(milliseconds=20),
)


class Town:
    """One test's part of a server."""

    def __init__(self, client: Client, namespace: str) -> None:
        """The client needs `service.SCHEME`."""
        self.client, self.namespace = client, namespace
        self.scheduler = f"gangline-{namespace}"
        self._nodes: list[str] = []

    def key(self, name: str) -> Key:
        return Key(self.namespace, name)

    # Making

    async def node(self, name: str, *, labels: dict[str, str] | None = None, **offers: str) -> str:
        """A node that is ready and has so much: `node("a", cpu="4")`."""
        name = f"{self.namespace}-{name}"
        marks = {TOWN: self.namespace, "kubernetes.io/hostname": name, **(labels or {})}
        await self.client.create(Node, {"metadata": {"name": name, "labels": marks}})
        self._nodes.append(name)
        await self.offer(name, **offers)
        # A real server taints new nodes until a controller has seen them.
        await self.client.patch(Node, Key("", name), {"spec": {"taints": None}})
        return name

    async def offer(self, name: str, **offers: str) -> None:
        """The node has so much from now on."""
        spelled = {key.replace("gpu", "nvidia.com/gpu"): value for key, value in offers.items()}
        has = {**ALLOCATABLE, **spelled}
        ready = {"type": "Ready", "status": "True"}
        status = {"capacity": has, "allocatable": has, "conditions": [ready]}
        await self.client.patch(Node, Key("", name), {"status": status}, subresource="status")

    async def group(self, name: str, least: int, **spec: Any) -> PodGroup:
        body = {"metadata": {"name": name}, "spec": {"minMember": least, **spec}}
        return await self.client.create(PodGroup, body, namespace=self.namespace)

    async def pod(
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
                "annotations": {GROUP_NAME: group} if group else {},
            },
            "spec": {
                "schedulerName": "default-scheduler" if gated else self.scheduler,
                "nodeSelector": {TOWN: self.namespace},
                "containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 1,
                **({"schedulingGates": [{"name": GATE}]} if gated else {}),
                **spec,
            },
        }
        return await self.client.create(Pod, body, namespace=self.namespace)

    async def gang(self, name: str, members: int, least: int | None = None, **pod: Any) -> list[str]:
        """A group and its pods, `name-0` and so on."""
        await self.group(name, members if least is None else least)
        names = [f"{name}-{number}" for number in range(members)]
        for number, each in enumerate(names):
            await self.pod(each, name, role="worker", index=number, **pod)
        return names

    # Being a kubelet

    async def becomes(
        self,
        name: str,
        phase: str = "Running",
        *,
        reason: str = "",
        exit_code: int | None = None,
        uid: str = "",
    ) -> None:
        """A pod's node reports."""
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
        await self.client.patch(Pod, self.key(name), patch, form=PatchForm.STRATEGIC, subresource="status")

    async def run_all(self, names: Sequence[str]) -> None:
        """Wait for them to be bound, and let them run."""
        for name in names:
            await self.bound(name)
            await self.becomes(name)

    async def kill(self, name: str) -> None:
        """A pod goes at once, as if its node had ended it."""
        with suppress(NotFound):
            await self.client.delete(Pod, self.key(name), grace=timedelta())

    @asynccontextmanager
    async def kubelet(self, fails: Callable[[Pod], bool] = lambda pod: False) -> AsyncIterator[None]:
        """Nodes that run what is bound to them, and let go what is to go. Those that `fails` is true of end badly."""
        clock = SystemClock()
        pods = Informer(self.client, Pod, Selector(namespace=self.namespace), clock=clock)
        todo: asyncio.Queue[Pod] = asyncio.Queue()

        async def work() -> None:
            while True:
                pod = await todo.get()
                name, leaving = pod.metadata.name, pod.metadata.deletion_timestamp is not None
                # Gone, or another pod by now: a patch that names another uid is invalid.
                with suppress(NotFound, Conflict, Invalid):
                    if leaving:
                        # By uid: another one may have its name by now.
                        await self.client.delete(
                            Pod, pod.metadata.key, uid=pod.metadata.uid, grace=timedelta()
                        )
                    elif pod.spec.node_name and pod.status.phase == "Pending":
                        await self.becomes(name, "Failed" if fails(pod) else "Running", uid=pod.metadata.uid)

        def told(delta: Delta[Pod]) -> None:
            if delta.after is not None:
                todo.put_nowait(delta.after)

        async with asyncio.TaskGroup() as group:
            with pods.subscribed(told):
                tasks = [group.create_task(pods.run()), group.create_task(work())]
                try:
                    yield
                finally:
                    for task in tasks:
                        task.cancel()

    # Looking

    async def pod_now(self, name: str) -> Pod:
        return await self.client.get(Pod, self.key(name))

    async def group_now(self, name: str) -> PodGroup:
        return await self.client.get(PodGroup, self.key(name))

    async def until(
        self, kind: type[T], name: str, holds: Callable[[T], bool], *, namespaced: bool = True
    ) -> T:
        """The object, as soon as something is true of it."""
        key = self.key(name) if namespaced else Key("", name)
        found: T | None = None
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    with suppress(NotFound):
                        found = await self.client.get(kind, key)
                        if holds(found):
                            return found
                    await asyncio.sleep(0.005)
        except TimeoutError:
            shown = msgspec.json.encode(found).decode() if found is not None else "is not there"
            raise AssertionError(f"{name} did not come to that: {shown}") from None

    async def bound(self, name: str) -> str:
        """The node of a pod, as soon as it has one."""
        return (await self.until(Pod, name, lambda pod: bool(pod.spec.node_name))).spec.node_name

    async def gone(self, name: str) -> None:
        """Return when a pod is on its way out, and let it go."""
        await self.until(Pod, name, lambda pod: pod.metadata.deletion_timestamp is not None)
        await self.kill(name)

    async def phase(self, name: str, phase: str, reason: str | None = None) -> PodGroup:
        """The group, as soon as it is in a phase (for a reason)."""

        def there(group: PodGroup) -> bool:
            state = group.status.state
            return state.phase == phase and reason in (None, state.reason)

        return await self.until(PodGroup, name, there)

    async def unbound(self, names: Sequence[str]) -> bool:
        """Whether none of them has a node."""
        return not any([(await self.pod_now(name)).spec.node_name for name in names])

    async def events(self, reason: str) -> list[Event]:
        page = await self.client.list(Event, Selector(namespace=self.namespace))
        return [event for event in page.items if event.reason == reason]

    async def told(self, reason: str, count: int = 1) -> list[Event]:
        """The Events for a reason, as soon as there are so many."""
        async with asyncio.timeout(PATIENCE):
            while True:
                if len(found := await self.events(reason)) >= count:
                    return found
                await asyncio.sleep(0.005)

    # The scheduler

    @asynccontextmanager
    async def scheduling(
        self,
        client: Client | None = None,
        *,
        clock: Clock | None = None,
        policy: Policy | None = None,
        prepare: Prepare | None = None,
        **settings: Any,
    ) -> AsyncIterator[Scheduler]:
        """A scheduler of this town's pods, until the block ends. It then ends as if it had been killed."""
        clock, client = clock or SystemClock(), client or self.client
        recorder = Recorder(client, "gangline.dev/scheduler", "test", clock, scheme=client.scheme)
        options = SchedulerSettings(name=self.scheduler, pace=QUICK, policy=policy or Policy(), **settings)
        scheduler = Scheduler(client, clock, recorder, options, prepare=prepare)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(scheduler.run()), group.create_task(recorder.run())]
            yield scheduler
            for task in tasks:
                task.cancel()

    async def clean_up(self) -> None:
        """Nothing of it is left on the server."""
        for kind in (PodGroup, Pod):
            page = await self.client.list(kind, Selector(namespace=self.namespace))
            for found in page.items:
                with suppress(NotFound):
                    await self.client.delete(kind, found.metadata.key, grace=timedelta())
        for name in self._nodes:
            with suppress(NotFound):
                await self.client.delete(Node, Key("", name))


@asynccontextmanager
async def town_on(server: Connection) -> AsyncIterator[Town]:
    """A town on a server that knows what a gang is; nothing of it is left, but what a gang is."""
    async with HttpTransport(server, warn=lambda text: None) as transport:
        client = Client(transport, scheme=SCHEME.extended(CRDS))
        await install(client, ())
        await Definitions(client, GANG_KINDS, SystemClock()).served()
        name = f"gangs-{uuid.uuid4().hex[:8]}"
        await client.create(Namespace, {"metadata": {"name": name}})
        town = Town(client, name)
        yield town
        await town.clean_up()


class Meddled(HttpTransport):
    """A transport between which and the server somebody stands: `meddle` may answer in the server's place."""

    meddle: Callable[[Request], Awaitable[Response | None]] | None = None

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        answer = await self.meddle(request) if self.meddle is not None else None
        return answer if answer is not None else await super().send(request, timeout=timeout)


def is_binding(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/binding")


def refused(code: int = 500) -> Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "message": "somebody meddled"}
    return Response(code, msgspec.json.encode(body))
