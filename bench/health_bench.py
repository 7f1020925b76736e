"""What the watch for hangs and the goodput ledger cost while jobs are healthy. Run it as `make bench-health`.

Here: jobs of one process each, half of which report steps and half of which only print lines, on a plane with its node, as
`gangline up` runs them. The CPU time of the watch and of the ledger is counted call by call, not as a difference of two
runs. Writes of jobs are counted, and those that would not have been made without the watch and the ledger.

In a cluster: the operator's process on a real API server, with the watch and without it, for jobs whose pods say that they
run: the CPU time of both, and what the watch asks the server for. Skipped with a line where there is no such server.

Exits with 1 when a promise is missed: under 1 % of the machine's CPU, and at most one write a minute for a healthy job.
"""

import argparse
import asyncio
import contextvars
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.joblife import Workload, job, namespace, session_of
from bench.measure import Figures, concluded, cpu_seconds, machine, show
from bench.operator_bench import READS, WRITES, Usage, all_active, as_operator, measured_server, requests, settled
from bench.operator_load import FLAGS, KIND, PODS_PER_JOB, count

from gangline.api.kubeflow.kinds import PYTORCHJOB, PyTorchJob
from gangline.api.kubeflow.training import ConditionType
from gangline.api.meta import JSON, Selector
from gangline.apiserver.store.records import StoreEvent
from gangline.base.clock import SystemClock
from gangline.health.watcher import HangWatcher
from gangline.jobs import reconciler
from gangline.jobs.goodput import GoodputBook, plan_with_goodput
from gangline.local.cluster import LocalCluster, LocalSettings
from gangline.node.settings import NodeSettings
from gangline.operator.assembly import embedded_plane
from support.cluster.operators import GANGLINE_OPERATOR, run_operator
from support.servers.real import find_assets

MAX_SHARE, MAX_WRITES = 0.01, 1.0
LINES = "while :; do echo a line; sleep 5; done"
STEPS = """n=0; while :; do n=$((n + 1)); echo "{\\"progress\\": {\\"step\\": $n}}"; sleep 5; done"""

_is_metered: contextvars.ContextVar[bool] = contextvars.ContextVar("is_metered", default=False)


class CpuMeter:
    """Counts the CPU time of functions, and of coroutines with all tasks that they start."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def function(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def metered(*arguments: Any, **options: Any) -> Any:
            began = time.thread_time()
            try:
                return function(*arguments, **options)
            finally:
                self.seconds[name] += time.thread_time() - began

        return metered

    def coroutine(self, name: str, made: Coroutine[Any, Any, Any]) -> "_MeteredCoroutine":
        return _MeteredCoroutine(self, name, made)

    def task_factory(self, name: str) -> Callable[..., "asyncio.Task[Any]"]:
        """Tasks that a metered coroutine starts are metered, too."""

        def new_task(
            loop: asyncio.AbstractEventLoop, made: Coroutine[Any, Any, Any], **options: Any
        ) -> "asyncio.Task[Any]":
            return asyncio.Task(
                _awaited(self.coroutine(name, made)) if _is_metered.get() else made, loop=loop, **options
            )

        return new_task


class _MeteredCoroutine:
    """A coroutine each step of which is measured."""

    def __init__(self, meter: CpuMeter, name: str, made: Coroutine[Any, Any, Any]) -> None:
        self._meter, self._name, self._made = meter, name, made

    def __await__(self) -> Generator[Any, Any, Any]:
        value, error = None, None
        while True:
            token, began = _is_metered.set(True), time.thread_time()
            try:
                waits_for = self._made.throw(error) if error is not None else self._made.send(value)
            except StopIteration as end:
                return end.value
            finally:
                self._meter.seconds[self._name] += time.thread_time() - began
                _is_metered.reset(token)
            value, error = None, None
            try:
                value = yield waits_for
            except BaseException as raised:  # noqa: BLE001 - it is the coroutine's
                error = raised


async def _awaited(metered: _MeteredCoroutine) -> Any:
    return await metered


class JobWrites:
    """Counts the writes of jobs, and those that were made for the watch or the ledger alone."""

    def __init__(self) -> None:
        self.all, self.extra = 0, 0
        self._bodies: dict[str, JSON] = {}

    def see(self, events: Sequence[StoreEvent]) -> None:
        for event in events:
            path = event.record.path
            if f"/{PYTORCHJOB.plural}/" not in path or event.deleted:
                continue
            body = json.loads(event.record.data)
            without = _without_health(body)
            self.all += 1
            self.extra += self._bodies.get(path) == without
            self._bodies[path] = without


def _without_health(body: JSON) -> JSON:
    status = {name: value for name, value in (body.get("status") or {}).items() if name != "goodput"}
    conditions = status.get("conditions") or []
    status["conditions"] = [one for one in conditions if one["type"] != ConditionType.STALLED.value]
    return {"spec": body.get("spec"), "status": status}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, nargs="+", default=[20, 200], help="how many run (20 200)")
    parser.add_argument("--seconds", type=float, default=120, help="how long each is measured (120)")
    parser.add_argument("--only", choices=["here", "cluster"], help="only this part")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    asked = parser.parse_args()
    began = time.perf_counter()
    found: Figures = {"machine": machine(), "here": {}, "cluster": {}}
    print("Machine:", ", ".join(f"{name} {value}" for name, value in found["machine"].items()))
    for jobs in asked.jobs if asked.only != "cluster" else ():
        with tempfile.TemporaryDirectory(prefix="gangline-bench-") as folder:
            found["here"][jobs] = asyncio.run(measure_here(Path(folder), jobs, asked.seconds))
    if asked.only != "here" and find_assets() is None:
        print("in a cluster: skipped, no real API server; run hack/kubernetes.sh to build one", file=sys.stderr)
    elif asked.only != "here":
        with (
            tempfile.TemporaryDirectory(prefix=".bench-", dir=Path(__file__).parents[1]) as folder,
            measured_server(Path(folder)) as server,
        ):
            for jobs in asked.jobs:
                found["cluster"][jobs] = asyncio.run(measure_in_cluster(Path(folder), server, jobs, asked.seconds))
    report(found)
    return concluded(found, began, asked.json, broken_promises(found))


# On this machine


async def measure_here(folder: Path, jobs: int, seconds: float) -> Figures:
    """The CPU of watch and ledger while so many jobs run."""
    meter, written = CpuMeter(), JobWrites()
    asyncio.get_running_loop().set_task_factory(meter.task_factory("watch"))
    # A node takes 110 pods unless it is told otherwise.
    node = NodeSettings(capacity={"pods": str(2 * jobs)})
    settings = LocalSettings(folder=folder, logs=folder / "pods", node=node)
    with _metered(meter):
        async with embedded_plane(settings, SystemClock()) as plane:
            with plane.store.observe(written.see):
                await _start_jobs(plane, jobs)
                # The watch begins five seconds after the first job, and looks at all of them within ten.
                await asyncio.sleep(20)
                meter.seconds.clear()
                written.all = written.extra = 0
                began, cpu = time.perf_counter(), cpu_seconds()
                await asyncio.sleep(seconds)
                elapsed = time.perf_counter() - began
                used = {"watch": meter.seconds["watch"], "ledger": meter.seconds["ledger"], "all": cpu_seconds() - cpu}
                stalled = [one for one in await _jobs(plane) if one.status.condition(ConditionType.STALLED)]
    assert not stalled, stalled
    return {"elapsed": elapsed, "cpu": used, "writes": written.all, "extra_writes": written.extra}


@contextmanager
def _metered(meter: CpuMeter) -> Iterator[None]:
    """Let the watch and the ledger be counted."""
    watch, account, plan = HangWatcher.run, GoodputBook.account, plan_with_goodput

    async def run(watcher: HangWatcher) -> None:
        await meter.coroutine("watch", watch(watcher))

    with (
        mock.patch.object(HangWatcher, "run", run),
        mock.patch.object(GoodputBook, "account", meter.function("ledger", account)),
        mock.patch.object(reconciler, "plan_with_goodput", meter.function("ledger", plan)),
    ):
        yield


async def _start_jobs(plane: LocalCluster, jobs: int) -> None:
    for number in range(jobs):
        await plane.client.create(PyTorchJob, _job(f"train-{number}", STEPS if number % 2 else LINES))
    await _until(lambda: _all_run(plane, jobs))


def _job(name: str, script: str) -> JSON:
    container = {"name": "pytorch", "image": "none", "command": ["sh", "-c", script]}
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    spec = {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def _jobs(plane: LocalCluster) -> list[PyTorchJob]:
    return [one async for one in plane.client.iterate(PyTorchJob, Selector(namespace="default"))]


async def _all_run(plane: LocalCluster, jobs: int) -> bool:
    running = [one for one in await _jobs(plane) if one.status.holds(ConditionType.RUNNING)]
    return len(running) == jobs


async def _until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(600):
        while not await holds():  # noqa: ASYNC110 - it asks a server
            await asyncio.sleep(0.5)


# In a cluster


async def measure_in_cluster(folder: Path, server: Any, jobs: int, seconds: float) -> Figures:
    """The operator's CPU and requests with the watch and without it, by turns."""
    figures: Figures = {}
    async with session_of(server, server.token) as session, namespace(session, f"live-{jobs}", KIND) as place:
        for watch in (False, True):
            flags = (*FLAGS, f"--hang-watch={str(watch).lower()}")
            log = folder / f"operator-{jobs}-{watch}"
            kubeconfig = as_operator(server)
            with run_operator(GANGLINE_OPERATOR, server, log, kubeconfig=kubeconfig, extra=flags) as process:
                if not watch:
                    await place.submit_bodies([job(KIND, f"job-{number:06d}", PODS_PER_JOB) for number in range(jobs)])
                assert await place.wait_for(lambda: all_active(place, Workload(jobs, PODS_PER_JOB)), 600)
                await asyncio.sleep(20)
                if not watch:
                    await settled(server)
                usage, since = Usage(process.pid), time.time()
                await asyncio.sleep(seconds)
                asked = requests(server, since)
                figures["with" if watch else "without"] = {
                    "cpu": usage.figures()["cpu"],
                    "writes": count(asked, WRITES),
                    "reads": count(asked, READS),
                    "requests": asked,
                }
    return {**figures, "elapsed": seconds}


# Reports


def report(found: Figures) -> None:
    cores = os.cpu_count() or 1
    rows: list[tuple[str, ...]] = []
    for jobs, one in found["here"].items():
        used, minutes = one["cpu"], one["elapsed"] / 60
        share = (used["watch"] + used["ledger"]) / one["elapsed"]
        rows.append(
            (
                str(jobs),
                f"{used['watch']:.2f} s",
                f"{used['ledger']:.3f} s",
                f"{share:.2%}",
                f"{share / cores:.2%}",
                f"{used['all'] / one['elapsed']:.1%}",
                f"{one['writes'] / jobs / minutes:.2f}",
                f"{one['extra_writes'] / jobs / minutes:.3f}",
            )
        )
    head: tuple[str, ...] = ("jobs", "watch", "ledger", "of a core", "of the machine", "whole plane", "writes", "extra")
    if rows:
        show("here: CPU, and writes for a job in a minute", head, rows)
    rows = [
        (
            f"{jobs}, {side} the watch",
            f"{one[side]['cpu']:.2f} s",
            f"{one[side]['cpu'] / one['elapsed'] / cores:.2%}",
            f"{one[side]['reads'] / one['elapsed']:.1f}",
            f"{60 * one[side]['writes'] / jobs / one['elapsed']:.3f}",
        )
        for jobs, one in found["cluster"].items()
        for side in ("without", "with")
    ]
    if rows:
        head = ("jobs", "operator's CPU", "of the machine", "reads a second", "writes for a job in a minute")
        show("in a cluster, jobs of three replicas that give no sign of life", head, rows)


def broken_promises(found: Figures) -> Iterator[str]:
    cores = os.cpu_count() or 1
    for jobs, one in found["here"].items():
        share = (one["cpu"]["watch"] + one["cpu"]["ledger"]) / one["elapsed"] / cores
        if share > MAX_SHARE:
            yield f"{jobs} jobs: watch and ledger take {share:.1%} of the machine's CPU"
        if one["extra_writes"] / jobs / (one["elapsed"] / 60) > MAX_WRITES:
            yield f"{jobs} jobs: {one['extra_writes']} extra writes in {one['elapsed']:.0f} s"
    for jobs, one in found["cluster"].items():
        extra = (one["with"]["cpu"] - one["without"]["cpu"]) / one["elapsed"] / cores
        if extra > MAX_SHARE:
            yield f"{jobs} jobs in a cluster: the watch takes {extra:.1%} of the machine's CPU"
        if (one["with"]["writes"] - one["without"]["writes"]) / jobs / (one["elapsed"] / 60) > MAX_WRITES:
            yield f"{jobs} jobs in a cluster: {one['with']['writes']} writes in {one['elapsed']:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
