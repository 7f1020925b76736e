"""What a scheduler holds of 5,000 nodes with 50,000 pods: memory, and how long it takes to read them. Prints JSON."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.measure import resident

from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.transport.api import Request, Response, ResponseStream
from gangline.runtime.events import EventRecorder
from gangline.scheduler.scheduler import SCHEME, Scheduler

NODES, PODS, GANG = 5000, 50_000, 50
OFFERS = {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "16", "pods": "110"}


def node(number: int) -> Any:
    name = f"node-{number:05d}"
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"z{number % 3}"}
    return {
        "metadata": {"name": name, "uid": f"n{number}", "resourceVersion": "1", "labels": labels},
        "status": {"allocatable": OFFERS, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(number: int) -> Any:
    gang = f"gang-{number // GANG:05d}"
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {
        "metadata": {
            "name": f"{gang}-worker-{number % GANG}",
            "namespace": "team",
            "uid": f"9f3c0c66-0000-4000-8000-{number:012d}",
            "resourceVersion": str(number + 1),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "training.kubeflow.org/job-name": gang,
                "training.kubeflow.org/replica-type": "worker",
                "training.kubeflow.org/replica-index": str(number % GANG),
            },
            "annotations": {"scheduling.k8s.io/group-name": gang},
        },
        "spec": {
            "nodeName": f"node-{number % NODES:05d}",
            "schedulerName": "gangline",
            "containers": [
                {
                    "name": "pytorch",
                    "image": "train:1",
                    "resources": {"requests": {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}},
                }
            ],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
        "status": {"phase": "Running", "conditions": [condition]},
    }


def group(number: int) -> Any:
    name = f"gang-{number:05d}"
    metadata = {"name": name, "namespace": "team", "uid": f"g{number}", "resourceVersion": "1"}
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
    stamp = "2026-01-01T00:00:00Z"
    state = {"phase": "Running", "lastProbeTime": stamp, "lastTransitionTime": stamp}
    state["message"] = f"{GANG}/{GANG} members running"
    return {"metadata": metadata, "spec": {"minMember": GANG}, "status": {"state": state, "running": GANG}}


class Canned:
    """A server that has these, page by page, and on which nothing happens."""

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        makers = {"/api/v1/nodes": (node, NODES), "/api/v1/pods": (pod, PODS)}
        makers["/apis/scheduling.gangline.dev/v1alpha1/podgroups"] = (group, PODS // GANG)
        make, count = makers.get(request.path, (node, 0))
        query = dict(request.query)
        start, limit = int(query.get("continue") or 0), int(query.get("limit") or 500)
        end = min(start + limit, count)
        metadata = {"resourceVersion": "1", **({"continue": str(end)} if end < count else {})}
        return Response(
            200,
            msgspec.json.encode({"metadata": metadata, "items": [make(one) for one in range(start, end)]}),
        )

    @asynccontextmanager
    async def stream(self, request: Request, *, idle: timedelta | None = None) -> AsyncIterator[ResponseStream]:
        yield _Quiet()

    def frames(self, request: Request, protocols: tuple[str, ...]) -> Any:
        raise NotImplementedError


class _Quiet:
    response = Response(200)

    async def chunks(self) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""


async def main() -> None:
    clock = SystemClock()
    client = Client(Canned(), scheme=SCHEME)
    recorder = EventRecorder(client, "gangline.dev/scheduler", "bench", clock, scheme=SCHEME)
    scheduler = Scheduler(client, clock, recorder)
    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(scheduler.run())
        took = None
        while took is None:
            await asyncio.sleep(0.1)
            took = None if scheduler.unsynced_message() else time.perf_counter() - began
        await asyncio.sleep(3)
        print(json.dumps({"memory": resident(), "seconds": took}))
        running.cancel()


if __name__ == "__main__":
    asyncio.run(main())
