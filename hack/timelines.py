"""Records what happens to real teams on the local plane, as data for the tests of timelines: tests/data/timelines.

    python hack/timelines.py                 record everything again
    python hack/timelines.py killed oom      only these

Every version of the job, its pods, its events, its gang and the node is recorded as a watch delivers it, with the time
at which it came. Only fields that a timeline reads are kept.
"""

import argparse
import asyncio
import json
import lzma
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.base.clock import SystemClock
from gangline.cli.resources.watch import watch_objects
from gangline.kube.client import Client
from gangline.local.cluster import LocalSettings
from gangline.node.options import node_settings
from gangline.operator.assembly import embedded_plane
from gangline.operator.settings import LOCAL_SETTINGS
from gangline.summary.objects import EVENTS, JOB_KINDS, NODES, PODS
from gangline.timeline.live import trimmed_body

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "data" / "timelines"
JOB = next(kind for kind in JOB_KINDS if kind.kind == "PyTorchJob")
POD_GROUPS: Resource[JSON] = Resource(
    "scheduling.gangline.dev", "v1alpha1", "PodGroup", "podgroups", dict[str, Any], namespaced=True
)
KEY = Key("default", "team")
PATIENCE = 90.0
PROGRESS = "training.gangline.dev/progress"

# Trains for so many steps. The last rank fails on request, and peers that miss it fail a little later, as ranks of a
# collective operation do.
PROGRAM = """
import os, sys, time
from gangline.progress import report
rank, steps, fails = int(os.environ.get("RANK", "0")), int(sys.argv[1]), int(sys.argv[2])
for step in range(1, steps + 1):
    time.sleep(0.1)
    if fails and step == fails + (0 if rank == 2 else 8):
        sys.exit(3 if rank == 2 else 1)
    if rank == 0 and step % 5 == 0:
        report(step=step, total=steps, loss=6 * 0.93**step, rate=0.01)
"""


def team(steps: int, *, fails: int = 0, policy: str = "OnFailure", **run_policy: Any) -> JSON:
    container = {
        "name": "pytorch",
        "image": "i",
        "command": ["python", "team.py", str(steps), str(fails)],
    }
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}

    def replicas(count: int) -> JSON:
        return {"replicas": count, "restartPolicy": policy, "template": template}

    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": KEY.name},
        "spec": {
            "pytorchReplicaSpecs": {"Master": replicas(1), "Worker": replicas(2)},
            "runPolicy": {"cleanPodPolicy": "None", **run_policy},
        },
    }


# What happens to the teams


async def until(client: Client, holds: Callable[[JSON, list[JSON]], bool]) -> None:
    """Wait until the job and its pods are as they should be."""
    async with asyncio.timeout(PATIENCE):
        while not holds(  # noqa: ASYNC110 - the server has the state
            await client.get(JOB, KEY), list((await client.list(PODS, Selector("default"))).items)
        ):
            await asyncio.sleep(0.05)


def condition(job: JSON, *kinds: str) -> bool:
    found = (job.get("status") or {}).get("conditions") or []
    return any(one["type"] in kinds and one["status"] == "True" for one in found)


def is_training(_: JSON, pods: list[JSON]) -> bool:
    return any(PROGRESS in (pod["metadata"].get("annotations") or {}) for pod in pods)


async def drill(client: Client, fault: str, **options: Any) -> None:
    await until(client, is_training)
    request = json.dumps({"id": "recorded", "fault": fault, **options})
    body = {"metadata": {"annotations": {"local.gangline.dev/drill": request}}}
    await client.patch(PODS, Key("default", "team-worker-1"), body)


async def kill(client: Client) -> None:
    await drill(client, "kill")


async def exhaust_memory(client: Client) -> None:
    await drill(client, "oom")


async def lose_node(client: Client) -> None:
    await drill(client, "node-lost", seconds=4.0)


async def scale(client: Client) -> None:
    for count in (3, 1):
        await until(client, lambda _, pods: sum(pod["status"].get("phase") == "Running" for pod in pods) >= 3)
        await until(client, is_training)
        await asyncio.sleep(1.0)
        await client.patch(JOB, KEY, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": count}}}})
        if count == 3:
            await until(client, lambda _, pods: sum(pod["status"].get("phase") == "Running" for pod in pods) == 4)


async def suspend(client: Client) -> None:
    await until(client, is_training)
    await client.patch(JOB, KEY, {"spec": {"runPolicy": {"suspend": True}}})
    await until(client, lambda job, pods: condition(job, "Suspended") and not pods)
    await asyncio.sleep(1.0)
    await client.patch(JOB, KEY, {"spec": {"runPolicy": {"suspend": False}}})


async def watch_only(_: Client) -> None:
    """Nothing is done to the team."""


SCENARIOS: dict[str, tuple[JSON, Callable[[Client], Awaitable[None]]]] = {
    "killed": (team(50), kill),
    "gang-restart": (team(50, policy="ExitCode", restartScope="Job", schedulingPolicy={"minAvailable": 3}), kill),
    "oom": (team(40, policy="Never"), exhaust_memory),
    "failing-rank": (team(60, fails=20, policy="Never"), watch_only),
    "node-lost": (team(90), lose_node),
    "scale": (team(80), scale),
    "suspend": (team(30), suspend),
}


# Recording


async def record(name: str) -> list[JSON]:
    job, act = SCENARIOS[name]
    clock, versions = SystemClock(), list[JSON]()

    async def watch(client: Client, resource: Resource[JSON]) -> None:
        async with aclosing(watch_objects(client, resource, Selector(""))) as objects:
            async for watched in objects:
                if watched.body is not None:
                    metadata = watched.body["metadata"]
                    place = f"{metadata.get('namespace', '')}/{metadata['name']}"
                    versions.append(version(clock, f"/{resource.group}/{resource.plural}/{place}", watched))

    with tempfile.TemporaryDirectory(prefix="gangline-") as folder:
        (Path(folder) / "team.py").write_text(PROGRAM, encoding="utf-8")
        node = node_settings(capacity=("cpu=64",), images=None, runtime="process", network="shared")
        settings = LocalSettings(folder=Path(folder), logs=Path(folder) / "logs", node=node)
        only = msgspec.structs.replace(LOCAL_SETTINGS, kinds=("PyTorchJob",))
        async with embedded_plane(settings, clock, only) as plane, asyncio.TaskGroup() as group:
            watches = [group.create_task(watch(plane.client, kind)) for kind in (JOB, PODS, EVENTS, POD_GROUPS, NODES)]
            await plane.client.create(JOB, job, namespace="default")
            await act(plane.client)
            await until(plane.client, lambda job, _: condition(job, "Succeeded", "Failed"))
            # What is written about the end comes a moment later.
            await asyncio.sleep(1.0)
            for task in watches:
                task.cancel()
    return versions


def version(clock: SystemClock, path: str, watched: Any) -> JSON:
    """One line of the record: of a pod also its report, of which a curve is made."""
    at = round(clock.now().timestamp(), 3)
    if watched.deleted:
        return {"at": at, "path": path, "body": None}
    body = trimmed_body(path, watched.body)
    report = (watched.body["metadata"].get("annotations") or {}).get(PROGRESS)
    if report and "/pods/" in path:
        body["metadata"]["annotations"] = {**body["metadata"].get("annotations", {}), PROGRESS: report}
    return {"at": at, "path": path, "body": body}


def main() -> None:
    parser = argparse.ArgumentParser(description="Record real teams for the tests of timelines.")
    parser.add_argument("names", nargs="*", choices=[*SCENARIOS, []], help="which; all by default")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in parser.parse_args().names or SCENARIOS:
        versions = asyncio.run(record(name))
        (FOLDER / f"{name}.json.xz").write_bytes(lzma.compress(json.dumps(versions, sort_keys=True).encode()))
        print(f"tests/data/timelines/{name}.json.xz: {len(versions)} versions")


if __name__ == "__main__":
    main()
