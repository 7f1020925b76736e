"""Schedulers as processes on a real API server with fake nodes, and gangs of pods for them to place.

On a small machine it is the scheduler that shall be measured, so this asks for little: of a watch only where each pod is.
"""

import asyncio
import json
import os
import signal
import ssl
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec
import psutil
from bench.measure import Figures

from support.servers.real import HOST, LoggedProcess, RealServer, RealServerError, free_ports

T = TypeVar("T")

AT_ONCE = 32
NAMESPACE = "bench"
GPUS = 8
OFFERS = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": str(GPUS), "pods": "110"}
GROUPS = f"/apis/scheduling.gangline.dev/v1alpha1/namespaces/{NAMESPACE}/podgroups"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
PATCH = "application/merge-patch+json"
SETTLES = 1.0  # seconds between the last creation and the start of the clock


class Load(msgspec.Struct, frozen=True):
    """So many gangs of so many pods, one GPU each."""

    gangs: int
    members: int

    @classmethod
    def parse(cls, text: str) -> "Load":
        gangs, _, members = text.partition("x")
        return cls(int(gangs), int(members))

    @property
    def pods(self) -> int:
        return self.gangs * self.members

    @property
    def names(self) -> list[str]:
        return [f"g{gang:04d}" for gang in range(self.gangs)]

    def __str__(self) -> str:
        return f"{self.gangs}x{self.members}"


LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


# Sides


class Side(msgspec.Struct, frozen=True):
    """One that can be measured. `start` gives its process; None: there is none, and bindings are posted here."""

    name: str
    scheduler: str
    start: Callable[[RealServer, Path], LoggedProcess] | None
    groups: bool = False


def _gangline(server: RealServer, folder: Path) -> LoggedProcess:
    probe, metrics = free_ports(2)
    command = [sys.executable, "-m", "gangline", "scheduler", f"--kubeconfig={server.kubeconfig}"]
    # As it is installed: elected, and with metrics. Each run has a Lease of its own: nobody waits for that of the last.
    lease = f"bench-{time.time_ns()}"
    command += ["--leader-elect", "--leader-election-namespace=default", f"--leader-election-id={lease}"]
    command += [f"--metrics-bind-address={HOST}:{metrics}"]
    command += [f"--health-probe-bind-address={HOST}:{probe}", "--log-level=warn"]
    process = LoggedProcess(command, folder / "gangline.log")
    process.wait_until(lambda: _ready(probe) and server.call("GET", f"{LEASES}/{lease}").status == 200)
    return process


def kube_scheduler(assets: Path) -> Callable[[RealServer, Path], LoggedProcess]:
    """With its client's rate limit out of the way: else that alone is measured."""

    def start(server: RealServer, folder: Path) -> LoggedProcess:
        (port,) = free_ports(1)
        config = folder / "kube-scheduler.json"
        content = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(server.kubeconfig), "qps": 10000, "burst": 10000},
            "leaderElection": {"leaderElect": False},
        }
        config.write_text(json.dumps(content))
        command = [str(assets / "kube-scheduler"), f"--config={config}", f"--secure-port={port}"]
        command += [f"--bind-address={HOST}", f"--cert-dir={folder}"]
        log = folder / "kube-scheduler.log"
        process = LoggedProcess(command, log)
        process.wait_until(lambda: "Caches are synced" in log.read_text() or "Serving securely" in log.read_text())
        return process

    return start


GANGLINE = Side("gangline", "gangline", _gangline, groups=True)
LIMIT = Side("raw bindings, 32 in flight", "nobody", None)


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/readyz", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


# The server


class _Meta(msgspec.Struct):
    name: str = ""


class _Spec(msgspec.Struct):
    nodeName: str = ""  # noqa: N815 - the wire's


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


class _Change(msgspec.Struct):
    type: str
    object: _Pod


_change = msgspec.json.Decoder(_Change).decode


class Stage:
    """A server with fake nodes on which loads are played."""

    def __init__(self, server: RealServer, session: aiohttp.ClientSession) -> None:
        self._server, self._session = server, session
        self._nodes: list[str] = []

    async def call(self, method: str, path: str, body: Any = None, media: str = "application/json") -> Any:
        data = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        async with self._session.request(
            method, self._server.url + path, data=data, headers={"Content-Type": media}
        ) as response:
            text = await response.read()
            if response.status >= 300 and response.status not in (404, 409):
                raise RealServerError(f"{method} {path}: {response.status} {text[:500]!r}")
            return msgspec.json.decode(text)

    async def furnish(self, nodes: int) -> None:
        """Have so many nodes, ready and empty."""
        await self.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        names = [f"node-{number:05d}" for number in range(len(self._nodes), nodes)]
        ready = {"type": "Ready", "status": "True"}
        status = {"status": {"capacity": OFFERS, "allocatable": OFFERS, "conditions": [ready]}}

        async def make(name: str) -> None:
            labels = {"kubernetes.io/hostname": name}
            await self.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
            await self.call("PATCH", f"/api/v1/nodes/{name}/status", status, PATCH)
            # A new node is tainted until a controller manager, which there is none of, has seen it ready.
            await self.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, PATCH)

        await each(names, make)
        self._nodes += names

    async def play(self, side: Side, load: Load, process: LoggedProcess | None, patience: float) -> Figures:
        """Create the load while the scheduler is held, let it go, and see how long it takes and what it costs."""
        bound: dict[str, tuple[float, str]] = {}
        complete = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            since = (await self.call("GET", f"{PODS}?limit=1"))["metadata"]["resourceVersion"]
            watching = group.create_task(self._watch(since, bound, load.pods, complete))
            with held(process):
                await self._create(side, load)
                await self._tidy()
                await asyncio.sleep(SETTLES)
            used = Usage(process)
            began = time.perf_counter()
            if side.start is None:
                await self._post(load)
            try:
                await asyncio.wait_for(complete.wait(), patience)
            except TimeoutError:
                print(f"    only {len(bound)} of {load.pods} were bound in {patience:.0f} s")
            found = used.figures()
            watching.cancel()
        return found | marks(bound, load, began)

    async def _tidy(self) -> None:
        """Let the server collect its garbage now: once in a few runs it does so by itself, which takes half a second of
        CPU, and whoever is measured just then would pay for all."""
        async with self._session.get(f"{self._server.url}/debug/pprof/heap?gc=1") as response:
            response.raise_for_status()
            await response.read()

    async def clear(self) -> None:
        """Groups first: a scheduler goes on writing about one whose pods are gone."""
        await self._clear(GROUPS)
        await self._clear(PODS)

    async def _clear(self, path: str) -> None:
        async def drop(name: str) -> None:
            await self.call("DELETE", f"{path}/{name}?gracePeriodSeconds=0")

        await each([one["metadata"]["name"] for one in (await self.call("GET", path))["items"]], drop)

    async def _create(self, side: Side, load: Load) -> None:
        groups = [
            msgspec.json.encode(
                {
                    "apiVersion": "scheduling.gangline.dev/v1alpha1",
                    "kind": "PodGroup",
                    "metadata": {"name": name},
                    "spec": {"minMember": load.members},
                }
            )
            for name in (load.names if side.groups else ())
        ]
        await each(groups, lambda body: self.call("POST", GROUPS, body))
        pods = [msgspec.json.encode(pod(side, gang, number)) for gang in load.names for number in range(load.members)]
        await each(pods, lambda body: self.call("POST", PODS, body))

    async def _post(self, load: Load) -> None:
        names = [f"{gang}-{number:04d}" for gang in load.names for number in range(load.members)]
        bodies = [
            (
                f"{PODS}/{name}/binding",
                msgspec.json.encode(
                    {
                        "apiVersion": "v1",
                        "kind": "Binding",
                        "metadata": {"name": name},
                        "target": {"kind": "Node", "name": self._nodes[number // GPUS]},
                    }
                ),
            )
            for number, name in enumerate(names)
        ]
        await each(bodies, lambda one: self.call("POST", *one))

    async def _watch(
        self, since: str, bound: dict[str, tuple[float, str]], wanted: int, complete: asyncio.Event
    ) -> None:
        """Note who is bound, and when. A server short of CPU ends watches that it cannot serve: then look, and go on."""
        while True:
            await self._follow(since, bound, wanted, complete)
            page = await self.call("GET", f"{PODS}?fieldSelector=spec.nodeName!=")
            for item in page["items"]:
                bound.setdefault(item["metadata"]["name"], (time.perf_counter(), item["spec"]["nodeName"]))
            since = page["metadata"]["resourceVersion"]
            print(f"    the server ended our watch after {len(bound)} pods", flush=True)
            if len(bound) >= wanted:
                complete.set()

    async def _follow(
        self, since: str, bound: dict[str, tuple[float, str]], wanted: int, complete: asyncio.Event
    ) -> None:
        url = f"{self._server.url}{PODS}?watch=1&resourceVersion={since}&fieldSelector=spec.nodeName!="
        async with self._session.get(url) as response:
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                now = time.perf_counter()
                for line in lines:
                    found = _change(line).object
                    if found.spec.nodeName:
                        bound.setdefault(found.metadata.name, (now, found.spec.nodeName))
                if len(bound) >= wanted:
                    complete.set()


@asynccontextmanager
async def stage(server: RealServer) -> AsyncIterator[Stage]:
    context = ssl.create_default_context(cafile=str(server.ca))
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    headers = {"Authorization": f"Bearer {server.token}"}
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout) as session:
        yield Stage(server, session)


async def each(items: Iterable[T], act: Callable[[T], Any]) -> None:
    left = iter(items)

    async def work() -> None:
        for item in left:
            await act(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


def pod(side: Side, gang: str, number: int) -> Any:
    metadata: dict[str, Any] = {"name": f"{gang}-{number:04d}", "labels": {"gang": gang}}
    if side.groups:
        metadata["annotations"] = {"scheduling.k8s.io/group-name": gang}
    resources = {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    return {
        "metadata": metadata,
        "spec": {
            "schedulerName": side.scheduler,
            "automountServiceAccountToken": False,
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "train:1", "command": ["train"], "resources": resources}],
        },
    }


@contextmanager
def held(process: LoggedProcess | None) -> Any:
    """Stopped meanwhile, so that creating and placing do not overlap."""
    if process is not None:
        os.killpg(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        if process is not None:
            os.killpg(process.pid, signal.SIGCONT)


class Usage:
    """CPU time of a process from now on."""

    def __init__(self, process: LoggedProcess | None) -> None:
        self._process = psutil.Process(process.pid) if process is not None else None
        self._before = self._seconds()

    def _seconds(self) -> float:
        if self._process is None:
            return 0.0
        used = self._process.cpu_times()
        return float(used.user + used.system)

    def figures(self) -> Figures:
        if self._process is None:
            return {}
        return {"cpu": self._seconds() - self._before, "memory": self._process.memory_info().rss}


def marks(bound: Mapping[str, tuple[float, str]], load: Load, began: float) -> Figures:
    """When what was reached, and how closely pods were packed."""
    moments = sorted(moment for moment, _ in bound.values())
    if not moments:
        return {"bound": 0, "seconds": None, "first": None, "rate": 0.0, "nodes_used": 0}
    last = moments[-1] - began
    return {
        "bound": len(bound),
        "seconds": last,
        "first": moments[0] - began,
        "rate": len(bound) / last,
        "nodes_used": len(Counter(node for _, node in bound.values())),
    }


def idle(process: LoggedProcess, seconds: float) -> float:
    """The share of one core that it uses with nothing to do."""
    used = Usage(process)
    time.sleep(seconds)
    spent: float = used.figures()["cpu"]
    return spent / seconds
