"""What the history costs: bytes of a week, CPU beside the operator's, the time to read. `make bench-history`.

The week: 200 jobs a day of eight replicas, each with a report of progress every five seconds for an hour. The CPU: the
operator of a plane makes jobs run and takes their reports; all that changed is recorded afterwards, as `gangline up`
does it in the same process, and the CPU seconds of both are compared. Exits with 1 when a promise is missed.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.measure import machine, show, size

from gangline.api.core import Pod
from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.api.kubeflow.training import PROGRESS_ANNOTATION
from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.apiserver.store.records import StoreEvent
from gangline.base.clock import SystemClock
from gangline.history.parts import ObjectDecoder
from gangline.history.reader import HistoryReader
from gangline.history.recorder import HistoryRecorder
from gangline.history.records import LogLine
from gangline.history.selection import recorded_body, recorded_prefixes
from gangline.history.writer import HistoryWriter
from gangline.kube.client import Client
from gangline.local.cluster import LocalSettings
from gangline.operator.assembly import embedded_plane
from support.builders.histories import POD, START, busy_team

T = TypeVar("T")

MAX_WEEK_BYTES = 100 * 10**6
MAX_CPU_RATIO = 0.05
JOBS, REPLICAS, REPORTS = 20, 8, 20
"""The workload of the comparison of CPU."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=float, default=7.0, help="days of the week to write")
    parser.add_argument("--only", choices=["week", "cpu"], help="only this part")
    parser.add_argument("--json", type=Path, help="write the figures there")
    asked = parser.parse_args()
    figures: dict[str, object] = {"machine": machine()}
    missed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="gangline-bench-") as folder:
        if asked.only != "cpu":
            missed += measure_week(Path(folder, "week"), asked.days, figures)
        if asked.only != "week":
            work = Path(folder, "cpu")
            work.mkdir()
            missed += asyncio.run(measure_cpu(work, figures))
    if asked.json is not None:
        asked.json.write_text(json.dumps(figures, indent=2, default=str))
    for text in missed:
        print(f"missed: {text}")
    return 1 if missed else 0


def measure_week(folder: Path, days: float, figures: dict[str, object]) -> list[str]:
    began = time.process_time()
    write_week(folder, days)
    cpu = time.process_time() - began
    files = sorted(folder.iterdir())
    total = sum(file.stat().st_size for file in files)
    reader = HistoryReader(folder)
    jobs, listing = _timed(reader.jobs)
    middle = jobs[len(jobs) // 2]
    changes, reading = _timed(lambda: reader.job_changes(middle.namespace, middle.plural, middle.name))
    objects, moment = _timed(lambda: reader.objects_at(middle.created + 1800))
    week = total * 7 / days
    rows = [
        ("jobs", f"{len(jobs)} in {days:g} days"),
        ("on the disk", f"{size(total)} in {len(files)} segments; a week: {size(week)}"),
        ("CPU to write", f"{cpu:.1f} s"),
        ("list of jobs", f"{listing * 1000:.0f} ms of CPU"),
        ("one job", f"{reading * 1000:.0f} ms of CPU, {len(changes)} versions"),
        ("one moment", f"{moment * 1000:.0f} ms of CPU, {len(objects)} objects"),
    ]
    show("a week of 200 jobs a day", ("what", "how much"), rows)
    figures["week"] = {"bytes": week, "cpu": cpu, "list": listing, "job": reading, "moment": moment}
    return [f"a week takes {size(week)}"] if week > MAX_WEEK_BYTES else []


def write_week(folder: Path, days: float, jobs_a_day: int = 200) -> None:
    """Write the history of a busy team, flushed every second as a recorder does."""
    writer = HistoryWriter(folder, START, source="bench")
    flushed = last = START
    for at, path, body, log in busy_team(days, jobs_a_day):
        if at - flushed >= 1:
            writer.flush()
            flushed = at
        if log and body is not None:
            writer.record_log(at, path, body, LogLine(0, 0, "pytorch", "process://1", 0, log))
        else:
            writer.record(at, path, recorded_body(path, body) if body is not None else None)
        last = at
    writer.close(last)


async def measure_cpu(folder: Path, figures: dict[str, object]) -> list[str]:
    """Record what happens on a plane while its operator makes jobs run."""
    changes: list[tuple[float, Sequence[StoreEvent]]] = []
    clock = SystemClock()
    # Nobody binds pods, so no process runs: the workload says what becomes of them.
    settings = LocalSettings(folder=folder, logs=folder / "pods", default_scheduler_enabled=False)
    async with embedded_plane(settings, clock) as plane:
        with plane.store.observe(lambda events: changes.append((clock.now().timestamp(), events))):
            began = time.process_time()
            await _run_workload(plane.client)
            plane_cpu = time.process_time() - began
    cpu = await _recording_cpu(folder / "history", changes)
    count = sum(len(events) for _, events in changes)
    ratio = cpu / plane_cpu
    rows = [
        ("workload", f"{JOBS} jobs of {REPLICAS} replicas, {REPORTS} reports of progress each"),
        ("changes", str(count)),
        ("CPU of the plane", f"{plane_cpu:.2f} s: operator, API server, and the client that plays the kubelet"),
        ("CPU of the recording", f"{cpu:.3f} s, {cpu / max(1, count) * 1e6:.0f} us a change"),
        ("ratio", f"{ratio:.1%}"),
    ]
    show("recording beside the operator", ("what", "how much"), rows)
    figures["cpu"] = {"plane": plane_cpu, "recording": cpu, "ratio": ratio, "changes": count}
    return [f"recording costs {ratio:.1%} of the plane's CPU"] if ratio > MAX_CPU_RATIO else []


async def _recording_cpu(folder: Path, changes: Sequence[tuple[float, Sequence[StoreEvent]]]) -> float:
    """The CPU seconds to record these changes as `gangline.local.history` does, a flush every second."""
    prefixes, decoder = recorded_prefixes(), ObjectDecoder()
    began = time.process_time()
    recorder = HistoryRecorder(folder, SystemClock(), "bench")
    flushed = changes[0][0]
    recorder.begin(flushed, {})
    for at, events in changes:
        for event in events:
            path = event.record.path
            if path.startswith(prefixes):
                recorder.record(at, path, None if event.deleted else decoder.decode(path, event.record.data))
        if at - flushed >= 1:
            await recorder.write()
            flushed = at
    recorder.finish()
    return time.process_time() - began


async def _run_workload(client: Client) -> None:
    """Make jobs run and report progress."""
    jobs, pods = client.unstructured(PYTORCHJOB.model), client.unstructured(Pod)
    for number in range(JOBS):
        await client.create(jobs, _job(f"train-{number}"))
    await _until(lambda: _has_pods(client, pods))
    listed = [pod async for pod in client.iterate(pods, Selector(namespace="default"))]
    running = {name: value for name, value in POD["status"].items() if name != "qosClass"}
    for pod in listed:
        key = Key("default", pod["metadata"]["name"])
        await client.patch(pods, key, {"status": running}, subresource="status")
    for step in range(1, REPORTS + 1):
        for number in range(JOBS):
            report = json.dumps({"progress": {"step": step, "total": REPORTS, "loss": 1 / step, "lr": 0.0001}})
            body = {"metadata": {"annotations": {PROGRESS_ANNOTATION: report}}}
            await client.patch(pods, Key("default", f"train-{number}-master-0"), body)
        await _until(partial(_have_reached, client, jobs, step))


async def _has_pods(client: Client, pods: Resource[JSON]) -> bool:
    return len([pod async for pod in client.iterate(pods, Selector(namespace="default"))]) == JOBS * REPLICAS


async def _have_reached(client: Client, jobs: Resource[JSON], step: int) -> bool:
    listed = [job async for job in client.iterate(jobs, Selector(namespace="default"))]
    return all(((job.get("status") or {}).get("progress") or {}).get("step") == step for job in listed)


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(120):
        while not await holds():  # noqa: ASYNC110 - it asks a server
            await asyncio.sleep(0.5)


def _job(name: str) -> JSON:
    container = {"name": "pytorch", "image": "none", "command": ["python", "train.py"]}
    template = {"spec": {"containers": [container]}}
    replicas = {"Master": {"replicas": 1, "template": template}}
    replicas["Worker"] = {"replicas": REPLICAS - 1, "template": template}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"pytorchReplicaSpecs": replicas},
    }


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    began = time.process_time()
    result = work()
    return result, time.process_time() - began


if __name__ == "__main__":
    sys.exit(main())
