"""Moves a workload of jobs along on a real API server: submits it, plays the kubelets, and says when what was reached.

On a small machine it is the operator that shall be measured, so this asks for little: of pods only the metadata, which
without the environment of hundreds of siblings is a few hundred bytes.
"""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiohttp
import msgspec
from bench.measure import Figures

from support.servers.real import RealServer

NODE = "fake-0"
AT_ONCE = 32
LONGEST_LINE = 2**22
METADATA = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
KINDS: Mapping[str, tuple[str, str]] = {
    "TFJob": ("tfjobs", "tensorflow"),
    "PyTorchJob": ("pytorchjobs", "pytorch"),
}


class Workload(msgspec.Struct, frozen=True):
    """So many jobs of so many pods each."""

    jobs: int
    pods: int
    kind: str = "TFJob"

    def __str__(self) -> str:
        return f"{self.jobs}x{self.pods}"


def job(kind: str, name: str, pods: int) -> Any:
    """One that runs until it is told to stop."""
    spec = {
        "nodeName": NODE,
        "automountServiceAccountToken": False,
        "containers": [{"name": KINDS[kind][1], "image": "train:1", "command": ["train"]}],
    }
    one = {"restartPolicy": "Never", "template": {"spec": spec}}
    if kind == "TFJob":
        replicas: Any = {"tfReplicaSpecs": {"Worker": {"replicas": pods, **one}}}
    else:
        workers = {"Worker": {"replicas": pods - 1, **one}} if pods > 1 else {}
        replicas = {"pytorchReplicaSpecs": {"Master": {"replicas": 1, **one}, **workers}}
    return {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": name}, "spec": replicas}


# What is read of events; the rest is passed over.


class _Meta(msgspec.Struct, gc=False):
    name: str
    version: str = msgspec.field(name="resourceVersion")


class _Pod(msgspec.Struct, gc=False):
    metadata: _Meta


class _Condition(msgspec.Struct, gc=False):
    type: str
    status: str


class _Counts(msgspec.Struct, gc=False):
    active: int = 0


class _JobStatus(msgspec.Struct):
    conditions: list[_Condition] | None = None
    replicas: dict[str, _Counts] | None = msgspec.field(name="replicaStatuses", default=None)


class _Job(msgspec.Struct):
    metadata: _Meta
    status: _JobStatus = msgspec.field(default_factory=_JobStatus)


class _PodEvent(msgspec.Struct):
    type: str
    object: _Pod


class _JobEvent(msgspec.Struct):
    type: str
    object: _Job


Event = TypeVar("Event", _PodEvent, _JobEvent)


class Namespace:
    """One namespace of a server: who lives in it, and since when."""

    def __init__(self, session: aiohttp.ClientSession, name: str, kind: str) -> None:
        self._session, self.name, self._kind = session, name, kind
        self._jobs = f"/apis/kubeflow.org/v1/namespaces/{name}/{KINDS[kind][0]}"
        self._pods = f"/api/v1/namespaces/{name}/pods"
        self._report = json.dumps({"status": _running(KINDS[kind][1])}).encode()
        self._new: asyncio.Queue[str] = asyncio.Queue()
        self.created: dict[str, float] = {}
        self.running: dict[str, float] = {}  # pods that were reported to run
        self.jobs_running: dict[str, float] = {}
        self.active: dict[str, int] = {}
        self.changed = asyncio.Event()

    async def submit(self, names: Sequence[str], pods: int) -> None:
        await self.submit_bodies([job(self._kind, name, pods) for name in names])

    async def submit_bodies(self, jobs: Sequence[Any]) -> None:
        await post_all(self._session, [(self._jobs, json.dumps(one).encode()) for one in jobs])

    async def wait_for(self, reached: Any, patience: float) -> bool:
        """Until the condition holds; False when that took too long."""
        try:
            async with asyncio.timeout(patience):
                while not reached():
                    self.changed.clear()
                    await self.changed.wait()
        except TimeoutError:
            return False
        return True

    async def follow_pods(self) -> None:
        async for event in watch(self._session, self._pods, _PodEvent):
            name = event.object.metadata.name
            if event.type == "ADDED":
                self.created[name] = time.perf_counter()
                self._new.put_nowait(name)
                self.changed.set()

    async def follow_jobs(self) -> None:
        async for event in watch(self._session, self._jobs, _JobEvent):
            name, status = event.object.metadata.name, event.object.status
            if any(one.type == "Running" and one.status == "True" for one in status.conditions or ()):
                self.jobs_running.setdefault(name, time.perf_counter())
            self.active[name] = sum(one.active for one in (status.replicas or {}).values())
            self.changed.set()

    async def kubelet(self) -> None:
        """Every new pod runs at once."""
        headers = {"Content-Type": "application/merge-patch+json", **METADATA}
        while True:
            name = await self._new.get()
            path = f"{self._pods}/{name}/status"
            async with self._session.patch(path, data=self._report, headers=headers) as response:
                await response.read()
                assert response.status == 200, await response.text()
            self.running[name] = time.perf_counter()
            self.changed.set()


def _running(container: str) -> Any:
    now = "2030-01-01T00:00:00Z"
    state = {"running": {"startedAt": now}}
    return {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "startTime": now,
        "conditions": [
            {"type": name, "status": "True", "lastTransitionTime": now}
            for name in ("Initialized", "ContainersReady", "Ready")
        ],
        "containerStatuses": [
            {
                "name": container,
                "image": "train:1",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": state,
            }
        ],
    }


@asynccontextmanager
async def session_of(server: RealServer, token: str) -> AsyncIterator[aiohttp.ClientSession]:
    trust = ssl.create_default_context(cafile=str(server.ca))
    async with aiohttp.ClientSession(
        server.url,
        connector=aiohttp.TCPConnector(ssl=trust, limit=0),
        headers={"Authorization": f"Bearer {token}"},
        timeout=aiohttp.ClientTimeout(total=None),
        read_bufsize=LONGEST_LINE,
    ) as session:
        yield session


@asynccontextmanager
async def namespace(session: aiohttp.ClientSession, name: str, kind: str) -> AsyncIterator[Namespace]:
    """A new one, followed and with kubelets."""
    await post_all(session, [("/api/v1/namespaces", json.dumps({"metadata": {"name": name}}).encode())])
    place = Namespace(session, name, kind)
    async with asyncio.TaskGroup() as group:
        loops = [place.follow_pods(), place.follow_jobs(), *(place.kubelet() for _ in range(AT_ONCE))]
        tasks = [group.create_task(loop) for loop in loops]
        yield place
        for task in tasks:
            task.cancel()


async def watch(session: aiohttp.ClientSession, path: str, model: type[Event]) -> AsyncIterator[Event]:
    """The events of what happens from now on. A server ends the watch of one who reads too slowly; then it goes on."""
    async with session.get(path, params={"limit": "1"}) as response:
        newest = msgspec.json.decode(await response.read())["metadata"]["resourceVersion"]
    decoder = msgspec.json.Decoder(model)
    headers = METADATA if model is _PodEvent else None
    while True:
        params = {"watch": "true", "resourceVersion": newest}
        async with session.get(path, params=params, headers=headers) as response:
            async for line in response.content:
                event = decoder.decode(line)
                newest = event.object.metadata.version
                yield event


async def post_all(session: aiohttp.ClientSession, work: Sequence[tuple[str, bytes]]) -> None:
    """As many at once as we measure others with. Raises RuntimeError when one is refused."""
    todo = iter(work)

    async def some() -> None:
        for path, body in todo:
            headers = {"Content-Type": "application/json", **METADATA}
            async with session.post(path, data=body, headers=headers) as response:
                if response.status >= 300 and response.status != 409:
                    raise RuntimeError(f"POST {path}: {response.status} {(await response.text())[:300]}")
                await response.read()

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(some())


def last(times: Mapping[str, float], count: int, began: float) -> float | None:
    """Seconds until there were so many; None if there never were."""
    return sorted(times.values())[count - 1] - began if len(times) >= count else None


def marks(place: Namespace, work: Workload, began: float, active: float | None) -> Figures:
    return {
        "created": last(place.created, work.jobs * work.pods, began),
        "running": last(place.jobs_running, work.jobs, began),
        "active": None if active is None else active - began,
    }
