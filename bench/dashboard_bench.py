"""The dashboard with 2,000 jobs of 8 replicas and 20 viewers. Run it as `make bench-dashboard`.

The API server, the dashboard and the viewers are processes of their own, so that memory and CPU are the dashboard's alone.
Exits with 1 when a promise is missed: first view in 1 s, 150 MB more, a change visible in 0.5 s, 5 % of a core with 20
viewers and 10 changes a second, a killed worker on the timeline in 1 s.
"""

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.measure import Figures, concluded, machine

from gangline.api.meta import JSON, Key, timestamp
from gangline.apiserver.store.paths import object_path
from gangline.apiserver.store.records import StoreWrite
from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.dashboard.app import serve_dashboard
from gangline.dashboard.doorway import listening_socket, socket_url
from gangline.dashboard.links import DashboardAddress, new_secret, read_address
from gangline.dashboard.settings import DashboardSettings
from gangline.frameworks.pytorch import PyTorch
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection, load_connection
from gangline.kube.transport.http import HttpTransport
from gangline.local.plane import PlaneSettings, control_plane
from gangline.operator.definitions import create_crds
from gangline.summary.objects import JOB_KINDS, NAMESPACES

PYTORCHJOBS = next(kind for kind in JOB_KINDS if kind.kind == "PyTorchJob")
FIRST_VIEW, MORE_MEMORY, VISIBLE, CPU_SHARE, KILL_SHOWN = 1.0, 150e6, 0.5, 0.05, 1.0
KILLS = 5
VIEWERS, CHANGES_PER_SECOND, SECONDS = 20, 10, 20.0
CLOCK = SystemClock()


def job_body(number: int, replicas: int) -> JSON:
    now = timestamp(CLOCK.now())
    container = {
        "name": "pytorch",
        "image": "registry.example/train:1",
        "command": ["python", "-m", "train", "--config", f"experiments/{number}.yaml"],
        "env": [{"name": f"SETTING_{index}", "value": "value"} for index in range(10)],
        "resources": {"limits": {"nvidia.com/gpu": 1, "cpu": "8", "memory": "64Gi"}},
    }
    template = {"spec": {"containers": [container]}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": _metadata(f"job-{number:04d}", now, "kubeflow.org/v1"),
        "spec": {
            "pytorchReplicaSpecs": {
                "Worker": {"replicas": replicas, "restartPolicy": "OnFailure", "template": template}
            }
        },
        "status": {
            "conditions": [
                {
                    "type": kind,
                    "status": "True",
                    "reason": kind,
                    "message": f"the job is {kind}",
                    "lastTransitionTime": now,
                }
                for kind in ("Created", "Running")
            ],
            "replicaStatuses": {"Worker": {"active": replicas}},
            "startTime": now,
            "progress": {"step": 0, "total": 1000, "metrics": {"loss": 1.0}, "updated": now, "replica": "worker-0"},
        },
    }


def pod_body(number: int, index: int) -> JSON:
    now = timestamp(CLOCK.now())
    name = f"job-{number:04d}"
    labels = {
        "training.kubeflow.org/job-name": name,
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": str(index),
    }
    metadata = {
        **_metadata(f"{name}-worker-{index}", now, "v1"),
        "labels": labels,
        "ownerReferences": [
            {
                "apiVersion": "kubeflow.org/v1",
                "kind": "PyTorchJob",
                "name": name,
                "uid": f"uid-{name}",
                "controller": True,
            }
        ],
    }
    container = {"name": "pytorch", "image": "registry.example/train:1", "resources": {"requests": {"cpu": "8"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "nodeName": f"node-{number % 200}",
            "containers": [{**container, "env": [{"name": "A", "value": "b"}] * 20}],
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": now}
                for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ],
            "containerStatuses": [
                {"name": "pytorch", "ready": True, "restartCount": 0, "state": {"running": {"startedAt": now}}}
            ],
            "startTime": now,
        },
    }


def _metadata(name: str, now: str, version: str) -> JSON:
    managed = [
        {
            "manager": "gangline",
            "operation": "Update",
            "apiVersion": version,
            "time": now,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {f"f:field{number}": {} for number in range(20)}},
        }
    ]
    return {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "creationTimestamp": now,
        "generation": 1,
        "managedFields": managed,
    }


async def serve_plane(jobs: int, replicas: int) -> None:
    """The API server with all objects, until its input ends."""
    settings = PlaneSettings(controllers_enabled=True, warn_on_inert_kinds=False)
    async with Store() as store, control_plane(store, settings, CLOCK) as plane:
        async with HttpTransport(plane.connection) as transport:
            client = Client(transport)
            await create_crds(client, CLOCK, [PyTorch().facts])
            await client.create(NAMESPACES, {"metadata": {"name": "team"}})
        for first in range(0, jobs, 100):
            numbers = range(first, min(first + 100, jobs))
            bodies = [("kubeflow.org", "pytorchjobs", job_body(number, replicas)) for number in numbers]
            bodies += [("", "pods", pod_body(number, index)) for number in numbers for index in range(replicas)]
            await store.commit(
                *(
                    StoreWrite(object_path(group, plural, "team", body["metadata"]["name"]), body, 0)
                    for group, plural, body in bodies
                )
            )
            await asyncio.sleep(0.3)  # the controllers of the server keep up
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bench",
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "clusters": [{"name": "bench", "cluster": {"server": plane.url}}],
            "users": [{"name": "bench", "user": {"token": plane.token}}],
        }
        print(json.dumps(config), flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def run_dashboard(kubeconfig: str) -> None:
    """The dashboard, until its input ends."""
    settings = DashboardSettings(connection=connection(Path(kubeconfig)))
    with listening_socket() as opened:
        address = DashboardAddress(socket_url(opened), new_secret())
        async with serve_dashboard(settings, opened, address.secret):
            print(json.dumps(address._asdict()), flush=True)
            await asyncio.to_thread(sys.stdin.read)


def connection(kubeconfig: Path) -> Connection:
    return load_connection(kubeconfig=str(kubeconfig), environ={}, home=kubeconfig.parent)


class Program:
    """This script as another process, with the first line that it printed."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, __file__, *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(arguments)}: did not start")
        self.answer: Any = json.loads(line)
        self.usage = psutil.Process(self.process.pid)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    @property
    def memory(self) -> int:
        return int(self.usage.memory_info().rss)

    @property
    def cpu(self) -> float:
        times = self.usage.cpu_times()
        return float(times.user + times.system)


@asynccontextmanager
async def stream(
    http: aiohttp.ClientSession, url: str, query: str = "view=board"
) -> AsyncIterator[AsyncIterator[tuple[str, bytes]]]:
    """The messages of a view: event and data, undecoded."""

    async def messages(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, bytes]]:
        pending = b""
        async for chunk in response.content.iter_any():
            *whole, pending = (pending + chunk).split(b"\n\n")
            for message in whole:
                if not message.startswith(b":"):
                    head, _, data = message.partition(b"\ndata: ")
                    yield head.split(b"\n", 1)[0].removeprefix(b"event: ").decode(), data

    timeout = aiohttp.ClientTimeout(total=None)
    async with http.get(f"{url}/api/stream?{query}", timeout=timeout) as response:
        assert response.status == 200, await response.text()
        yield messages(response)


async def measure(asked: argparse.Namespace, folder: Path) -> Figures:
    plane = Program("--plane", "--jobs", str(asked.jobs), "--replicas", str(asked.replicas))
    try:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(plane.answer))
        await until_quiet(plane)  # its controllers look at every object once
        dashboard = Program("--dashboard", str(kubeconfig))
        try:
            return await measure_dashboard(asked, dashboard, connection(kubeconfig))
        finally:
            dashboard.stop()
    finally:
        plane.stop()


async def measure_dashboard(asked: argparse.Namespace, dashboard: Program, server: Connection) -> Figures:
    address = DashboardAddress(**dashboard.answer)
    jar = aiohttp.CookieJar(unsafe=True)
    connector = aiohttp.TCPConnector(limit=0)
    found: Figures = {}
    async with aiohttp.ClientSession(cookie_jar=jar, connector=connector, read_bufsize=2**22) as http:
        async with http.get(address.new_link(CLOCK.now())) as response:
            await response.read()
        async with http.get(f"{address.url}/api/session") as response:
            assert response.status == 200, await response.text()
        before = dashboard.memory
        began, used = time.perf_counter(), dashboard.cpu
        async with stream(http, address.url) as messages:
            _, snapshot = await anext(messages)
            found["first_view_seconds"] = time.perf_counter() - began
            found["first_view_cpu"] = dashboard.cpu - used
            found["first_view_bytes"] = len(snapshot)
            found["rows"] = json.loads(snapshot)["total"]
            await until_quiet(dashboard)
            found["all_read_cpu"] = dashboard.cpu - used
            async with stream(http, address.url) as again:
                began = time.perf_counter()
                await anext(again)
                found["next_view_seconds"] = time.perf_counter() - began
            found |= await follow(asked, http, address.url, dashboard, server)
        found["more_memory"] = dashboard.memory - before
    return found


async def until_quiet(program: Program) -> None:
    """Wait until a process has read all that there is: it uses no CPU any more."""
    quiet = 0
    while quiet < 3:
        used = program.cpu
        await asyncio.sleep(0.5)
        quiet = quiet + 1 if program.cpu - used < 0.03 else 0


async def follow(
    asked: argparse.Namespace, http: aiohttp.ClientSession, url: str, dashboard: Program, server: Connection
) -> Figures:
    """Viewers look while jobs report progress: how long until each viewer has each change, and what that costs."""
    sent: dict[int, float] = {}
    delays: list[float] = []
    sizes: list[int] = []
    ready = asyncio.Barrier(asked.viewers + 1)

    async def view(number: int) -> None:
        async with stream(http, url) as messages:
            await anext(messages)
            await ready.wait()
            async for event, data in messages:
                now = time.perf_counter()
                if event != "patch":
                    continue
                sizes.append(len(data))
                for row in json.loads(data)["upsert"]:
                    step = int(row["progress"]["step"])
                    if step in sent:
                        delays.append(now - sent[step])

    async with asyncio.TaskGroup() as group, HttpTransport(server) as transport:
        client = Client(transport)
        viewers = [group.create_task(view(number)) for number in range(asked.viewers)]
        await ready.wait()
        used, began = dashboard.cpu, time.perf_counter()
        changes = int(asked.seconds * CHANGES_PER_SECOND)
        for step in range(1, changes + 1):
            sent[step] = time.perf_counter()
            patch = {"status": {"progress": {"step": step, "metrics": {"loss": 1 / step}}}}
            name = f"job-{(step * 7) % asked.jobs:04d}"
            await client.patch(PYTORCHJOBS, Key("team", name), patch, subresource="status")
            await asyncio.sleep(max(0.0, began + step / CHANGES_PER_SECOND - time.perf_counter()))
        wall, cpu = time.perf_counter() - began, dashboard.cpu - used
        await asyncio.sleep(1)
        for viewer in viewers:
            viewer.cancel()
    delays.sort()
    return {
        "changes": changes,
        "patches_seen": len(delays),
        "patch_bytes": sum(sizes) / max(len(sizes), 1),
        "visible_median": delays[len(delays) // 2],
        "visible_p99": delays[int(len(delays) * 0.99)],
        "visible_worst": delays[-1],
        "cpu_share": cpu / wall,
        "lost": changes * asked.viewers - len(delays),
    }


def measure_kills(folder: Path) -> Figures:
    """How long after the end of a worker's process its failure is on the timeline of an open page."""
    command = [sys.executable, "-m", "gangline", "up", "--dir", str(folder), "--port", "0"]
    output = folder.parent / "up.log"
    with output.open("wb") as log:
        plane = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        while (address := read_address(folder)) is None or not (folder / "kubeconfig").exists():
            if plane.poll() is not None:
                raise SystemExit(output.read_text())
            time.sleep(0.1)
        shown = asyncio.run(kills_shown(address, connection(folder / "kubeconfig")))
    finally:
        plane.send_signal(signal.SIGTERM)
        plane.wait()
    return {"kill_shown_median": sorted(shown)[len(shown) // 2], "kill_shown_worst": max(shown)}


async def kills_shown(address: DashboardAddress, server: Connection) -> list[float]:
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar, read_bufsize=2**22) as http, HttpTransport(server) as transport:
        async with http.get(address.new_link(CLOCK.now())) as response:
            await response.read()
        return [await kill_shown(http, address.url, Client(transport), number) for number in range(KILLS)]


async def kill_shown(http: aiohttp.ClientSession, url: str, client: Client, number: int) -> float:
    """The time from the kill of one of two workers to its mark on the timeline."""
    name = f"killed-{number}"
    command = [sys.executable, "-c", "import time; time.sleep(600)", name]
    template = {"spec": {"containers": [{"name": "pytorch", "image": "x", "command": command}]}}
    workers = {"Worker": {"replicas": 2, "restartPolicy": "OnFailure", "template": template}}
    body = {"metadata": {"name": name}, "spec": {"pytorchReplicaSpecs": workers}}
    await client.create(PYTORCHJOBS, body, namespace="default")
    killed_at: float | None = None
    async with stream(http, url, f"view=job&id=default/pytorchjobs/{name}") as messages:
        async for _, data in messages:
            timeline = json.loads(data).get("timeline")
            if timeline is None:
                continue
            if killed_at is not None and any(mark["row"] for mark in timeline["marks"] if "failure" in mark["kind"]):
                seconds = time.perf_counter() - killed_at
                await client.delete(PYTORCHJOBS, Key("default", name))
                return seconds
            states = [row["spans"][-1]["state"] if row["spans"] else "" for row in timeline["rows"]]
            if killed_at is None and states == ["running", "running"]:
                victims = [
                    each for each in psutil.process_iter(["cmdline"]) if (each.info["cmdline"] or [])[-1:] == [name]
                ]
                killed_at = time.perf_counter()
                victims[-1].kill()
    raise SystemExit("the stream of a job has ended")


def broken_promises(found: Figures) -> list[str]:
    promises = {
        f"first view in {found['first_view_seconds']:.2f} s, not {FIRST_VIEW:g}": found["first_view_seconds"]
        <= FIRST_VIEW,
        f"{found['more_memory'] / 1e6:.0f} MB more, not {MORE_MEMORY / 1e6:.0f}": found["more_memory"] <= MORE_MEMORY,
        f"a change visible in {found['visible_p99']:.2f} s, not {VISIBLE:g}": found["visible_p99"] <= VISIBLE,
        f"{found['cpu_share']:.1%} of a core, not {CPU_SHARE:.0%}": found["cpu_share"] <= CPU_SHARE,
        f"a killed worker shown in {found['kill_shown_worst']:.2f} s, not {KILL_SHOWN:g}": found["kill_shown_worst"]
        <= KILL_SHOWN,
        f"{found['lost']} changes did not reach a viewer": not found["lost"],
    }
    return [text for text, kept in promises.items() if not kept]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--replicas", type=int, default=8)
    parser.add_argument("--viewers", type=int, default=VIEWERS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--plane", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--dashboard", metavar="KUBECONFIG", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.plane:
        asyncio.run(serve_plane(asked.jobs, asked.replicas))
        return 0
    if asked.dashboard:
        asyncio.run(run_dashboard(asked.dashboard))
        return 0
    began = time.perf_counter()
    found: Figures = {"machine": machine(), "jobs": asked.jobs, "replicas": asked.replicas, "viewers": asked.viewers}
    print("Machine:", ", ".join(f"{name} {value}" for name, value in found["machine"].items()))
    with tempfile.TemporaryDirectory() as folder:
        found |= measure_kills(Path(folder, "plane"))
        found |= asyncio.run(measure(asked, Path(folder)))
    for name, value in found.items():
        if name != "machine":
            print(f"{name:20} {value:,.3f}" if isinstance(value, float) else f"{name:20} {value:,}")
    return concluded(found, began, asked.json, broken_promises(found))


if __name__ == "__main__":
    sys.exit(main())
