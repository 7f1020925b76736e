"""The operator under a load that lasts, on a real API server. Run it as `make bench-load`.

1. Live: 1,000 jobs with 3 pods each, all running.
2. Churn: for minutes, jobs succeed, are cleaned up, expire and are replaced by new ones. The operator's memory at the end
   is compared with that after the first fifth.
3. Restart: how long a new process takes until it is idle, and what it asks the server for. Nothing needs a change, so it
   should write nothing but its Lease.
4. Finished: 10,000 jobs that ended long ago are added, and a new process starts. Its memory is what they cost.

The operator runs as it is installed: with leader election and metrics. Exits with 1 when a promise is missed.
"""

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.joblife import METADATA, Namespace, Workload, job, namespace, post_all, session_of
from bench.measure import Figures, concluded, machine, median, seconds, show, size
from bench.operator_bench import READS, WRITES, all_active, as_operator, measured_server, requests, settled

from gangline.jobs.goodput import LEDGER_INTERVAL
from support.cluster.operators import GANGLINE_OPERATOR, run_operator
from support.servers.real import KUBERNETES_VERSION, LoggedProcess, RealServer, find_assets

KIND, PODS_PER_JOB = "TFJob", 3
FLAGS = ("--leader-elect", "--leader-election-namespace=default", "--take-over")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
TTL_SECONDS = 5
SAMPLE_SECONDS = 1.0
MOST_GROWTH, MOST_FINISHED_BYTES, MOST_RESTART_SECONDS = 0.05, 150e6, 30.0
SUCCEEDED = {
    "phase": "Succeeded",
    "containerStatuses": [
        {
            "name": "tensorflow",
            "image": "train:1",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": "2030-01-01T01:00:00Z"}},
        }
    ],
}


def main() -> int:
    asked = _arguments()
    if find_assets() is None:
        print("real API server: not found; run hack/kubernetes.sh to build one", file=sys.stderr)
        return 2
    began = time.perf_counter()
    found: Figures = {"machine": machine(), "kubernetes": KUBERNETES_VERSION, "jobs": asked.jobs}
    print("Machine:", ", ".join(f"{name} {value}" for name, value in found["machine"].items()))
    with (
        tempfile.TemporaryDirectory(prefix=".bench-", dir=Path(__file__).parents[1]) as folder,
        measured_server(Path(folder)) as server,
    ):
        found |= asyncio.run(LoadRun(Path(folder), server, asked).measure())
    report(found)
    return concluded(found, began, asked.json, broken_promises(found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=1000, help="how many live at once (1,000)")
    parser.add_argument("--minutes", type=float, default=30, help="how long they are replaced (30)")
    parser.add_argument("--rate", type=float, default=2, help="jobs that are replaced in a second (2)")
    parser.add_argument("--finished", type=int, default=10_000, help="how many ended long ago (10,000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    return parser.parse_args()


class LoadRun:
    """One server and the operators that run on it one after the other."""

    def __init__(self, folder: Path, server: RealServer, asked: argparse.Namespace) -> None:
        self._folder, self._server, self._asked = folder, server, asked
        self._starts = 0

    async def measure(self) -> Figures:
        found: Figures = {}
        async with session_of(self._server, self._server.token) as session:
            with self._operator() as process:
                async with namespace(session, "live", KIND) as place:
                    found["live"] = await self._fill(place, process)
                    found["churn"] = await self._churn(session, place, process)
                    # What the newest jobs did last is written a while later, which is no matter of a restart.
                    await asyncio.sleep(1.1 * LEDGER_INTERVAL.total_seconds())
                    await settled(self._server)
            found["restart"] = await self._restart()
            await add_finished(session, self._asked.finished)
            # The first process that sees them adds what only gangline has in a status.
            found["adoption"] = await self._restart()
            found["finished"] = await self._restart()
        return found

    @contextmanager
    def _operator(self) -> Iterator[LoggedProcess]:
        self._starts += 1
        folder = self._folder / f"operator-{self._starts}"
        kubeconfig = as_operator(self._server)
        with run_operator(GANGLINE_OPERATOR, self._server, folder, kubeconfig=kubeconfig, extra=FLAGS) as process:
            while not self._has_leader():
                time.sleep(0.02)
            yield process
            process.signal(signal.SIGTERM)
            while process.is_running:
                time.sleep(0.02)

    def _has_leader(self) -> bool:
        """An operator that ends in good order leaves the Lease without a holder."""
        leases = self._server.call("GET", LEASES).body.get("items") or []
        return any(lease["spec"].get("holderIdentity") for lease in leases)

    async def _fill(self, place: Namespace, process: LoggedProcess) -> Figures:
        began = time.perf_counter()
        await submit(place, self._asked.jobs, 0)
        work = Workload(self._asked.jobs, PODS_PER_JOB)
        reached = await place.wait_for(lambda: all_active(place, work), 600)
        assert reached, "not all jobs run"
        return {"seconds": time.perf_counter() - began, "memory": memory_of(process)}

    async def _churn(self, session: Any, place: Namespace, process: LoggedProcess) -> Figures:
        """Replace the oldest job again and again; the operator's memory from second to second."""
        began, replaced, samples = time.perf_counter(), 0, []
        live = deque(range(self._asked.jobs))
        ends = began + 60 * self._asked.minutes
        async with asyncio.TaskGroup() as group:
            while (now := time.perf_counter()) < ends:
                while replaced < (now - began) * self._asked.rate:
                    group.create_task(finish(session, live.popleft()))
                    new = self._asked.jobs + replaced
                    group.create_task(submit(place, 1, new))
                    live.append(new)
                    replaced += 1
                samples.append(memory_of(process))
                await asyncio.sleep(SAMPLE_SECONDS)
        fifth = max(len(samples) // 5, 1)
        early, late = median(samples[fifth : 2 * fifth] or samples), median(samples[-fifth:])
        print(f"  churn: {replaced} jobs replaced, {size(early)} early, {size(late)} late", flush=True)
        return {"replaced": replaced, "early": early, "late": late, "growth": late / early - 1, "samples": samples}

    async def _restart(self) -> Figures:
        """Start a new process, which becomes the leader, and wait until it asks for nothing more."""
        since, began = time.time(), time.perf_counter()
        with self._operator() as process:
            ready = time.perf_counter() - began
            await settled(self._server)
            asked = requests(self._server, since)
            return {"ready": ready, "memory": memory_of(process), "requests": asked}


def load_job(number: int) -> Any:
    """A job that is cleaned up and expires soon after it has succeeded."""
    one = job(KIND, f"job-{number:06d}", PODS_PER_JOB)
    one["spec"]["runPolicy"] = {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": TTL_SECONDS}
    # No kubelet will confirm that a container has ended.
    one["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0
    return one


async def submit(place: Namespace, count: int, first: int) -> None:
    await place.submit_bodies([load_job(number) for number in range(first, first + count)])


async def finish(session: Any, number: int) -> None:
    """All pods of the job succeed."""
    headers = {"Content-Type": "application/merge-patch+json", **METADATA}
    body = json.dumps({"status": SUCCEEDED}).encode()
    for index in range(PODS_PER_JOB):
        path = f"/api/v1/namespaces/live/pods/job-{number:06d}-worker-{index}/status"
        async with session.patch(path, data=body, headers=headers) as response:
            await response.read()


async def add_finished(session: Any, count: int) -> None:
    """Jobs that succeeded yesterday, as an operator left them: no pods, no time to live."""
    await post_all(session, [("/api/v1/namespaces", json.dumps({"metadata": {"name": "finished"}}).encode())])
    jobs = "/apis/kubeflow.org/v1/namespaces/finished/tfjobs"
    names = [f"done-{number:06d}" for number in range(count)]
    await post_all(session, [(jobs, json.dumps(job(KIND, name, PODS_PER_JOB)).encode()) for name in names])
    body = json.dumps({"status": finished_status()}).encode()
    todo = iter(names)

    async def some() -> None:
        headers = {"Content-Type": "application/merge-patch+json", **METADATA}
        for name in todo:
            async with session.patch(f"{jobs}/{name}/status", data=body, headers=headers) as response:
                assert response.status == 200, await response.text()
                await response.read()

    async with asyncio.TaskGroup() as group:
        for _ in range(16):
            group.create_task(some())


def finished_status() -> Any:
    then = "2026-01-01T00:00:00Z"
    reasons = {"Created": "TFJobCreated", "Running": "TFJobRunning", "Succeeded": "TFJobSucceeded"}
    conditions = [
        {
            "type": name,
            "status": "False" if name == "Running" else "True",
            "reason": reason,
            "message": "TFJob is successfully completed.",
            "lastUpdateTime": then,
            "lastTransitionTime": then,
        }
        for name, reason in reasons.items()
    ]
    counts = {"Worker": {"succeeded": PODS_PER_JOB}}
    return {"conditions": conditions, "replicaStatuses": counts, "startTime": then, "completionTime": then}


def memory_of(process: LoggedProcess) -> int:
    """Bytes that the operator has in memory now."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


# Reports


def count(asked: Figures, verbs: Sequence[str]) -> int:
    """Requests with one of these verbs; those of the election do not count."""
    return sum(number for name, number in asked.items() if name.split()[0] in verbs and not name.endswith("leases"))


def report(found: Figures) -> None:
    live, churn = found["live"], found["churn"]
    rows = [
        (f"{found['jobs']} jobs to all active", seconds(live["seconds"]), size(live["memory"]), ""),
        (f"churn, {churn['replaced']} jobs", "", size(churn["late"]), f"{100 * churn['growth']:+.1f} %"),
    ]
    for name in ("restart", "finished"):
        one = found[name]
        text = f"{count(one['requests'], READS)} reads, {count(one['requests'], WRITES)} writes"
        rows.append((f"{name}: ready after", seconds(one["ready"]), size(one["memory"]), text))
    show("One operator", ("", "time", "memory", ""), rows)
    for name in ("restart", "finished"):
        asked = ", ".join(f"{what} {number}" for what, number in found[name]["requests"].items())
        print(f"  requests after {name}: {asked}")


def broken_promises(found: Figures) -> list[str]:
    """One line for each figure that is worse than promised."""
    missed = []
    if found["churn"]["growth"] > MOST_GROWTH:
        missed.append(f"memory grew by {100 * found['churn']['growth']:.1f} %, promised {100 * MOST_GROWTH:.0f}")
    for name in ("restart", "finished"):
        writes = count(found[name]["requests"], WRITES)
        if writes:
            missed.append(f"{name}: {writes} writes, though nothing needs a change")
        if found[name]["ready"] > MOST_RESTART_SECONDS:
            missed.append(f"{name}: ready after {found[name]['ready']:.0f} s, promised {MOST_RESTART_SECONDS:.0f}")
    added = found["finished"]["memory"] - found["restart"]["memory"]
    if added > MOST_FINISHED_BYTES:
        missed.append(f"finished jobs cost {size(added)}, promised {size(MOST_FINISHED_BYTES)}")
    return missed


if __name__ == "__main__":
    sys.exit(main())
