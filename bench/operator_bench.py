"""How fast and how cheap `gangline operator` is, side by side with the Kubeflow training operator. `make bench-operator`.

Every run has a real kube-apiserver of its own, whose etcd syncs every write to the disk, a fresh operator, and pods that
run as soon as they are there. The sides: gangline; gangline with one service for a whole job; the peer as it is shipped;
the peer with the rate limit of its clients lifted and 10 threads; a raw client that POSTs the same pods and
services, 32 in flight; and, if it is asked for, the floor: beside the jobs that all sides get, the same requests as ours,
known beforehand, so that nothing has to be read or decided. Their order alternates from round to round. Exits with 1 when a promised ratio is missed.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import neighbours
from bench.joblife import KINDS, Namespace, Workload, marks, namespace, post_all, session_of
from bench.measure import Figures, concluded, cpu_seconds, machine, median, seconds, show, size, times
from bench.servers import cpu

from support.cluster.operators import (
    GANGLINE_OPERATOR,
    GANGLINE_PER_JOB_SERVICES,
    KUBEFLOW,
    KUBEFLOW_LIFTED,
    OperatorProgram,
    install_crds,
    run_operator,
)
from support.servers.real import HOST, KUBERNETES_VERSION, LoggedProcess, RealServer, find_assets, free_ports

RAW = "raw client, 32 in flight"
FLOOR = "our requests, known beforehand"
SIDES: Mapping[str, OperatorProgram] = {
    one.name: one for one in (GANGLINE_OPERATOR, GANGLINE_PER_JOB_SERVICES, KUBEFLOW_LIFTED, KUBEFLOW)
}
OURS = (GANGLINE_OPERATOR, GANGLINE_PER_JOB_SERVICES)
SHORT = {
    "gangline": GANGLINE_OPERATOR.name,
    "few-services": GANGLINE_PER_JOB_SERVICES.name,
    "lifted": KUBEFLOW_LIFTED.name,
    "peer": KUBEFLOW.name,
    "raw": RAW,
    "floor": FLOOR,
}
WORKLOADS = ("1x500", "100x2", "500x2")
NEIGHBOURS = "neighbours"
OPERATOR = "operator"  # the user that is counted
RAW_STATUSES = 12  # in flight, as our operator has them
SETTLES, LONGEST = 1.5, 60.0  # seconds without a request; events trickle long after the last job is active
READS, WRITES = ("get", "list", "watch"), ("create", "update", "patch", "delete", "deletecollection")
Bodies = list[tuple[str, bytes]]
Statuses = dict[str, bytes]  # by the path of the job


def main() -> int:
    asked = _arguments()
    missing = _missing(asked.operators)
    if missing:
        print(missing, file=sys.stderr)
        return 2
    began = time.perf_counter()
    found: Figures = {"machine": machine(), "kubernetes": KUBERNETES_VERSION, "rounds": asked.rounds}
    print("Machine:", ", ".join(f"{name} {value}" for name, value in found["machine"].items()))
    # Beside the sources and not in the folder for temporary files, which may be in memory: there, syncing costs nothing.
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path(__file__).parents[1]) as folder:
        for text in asked.workloads:
            if text == NEIGHBOURS:
                sides = [
                    SIDES[name] for name in asked.operators if name in SIDES and name != GANGLINE_PER_JOB_SERVICES.name
                ]
                found[text] = neighbours.measure(Path(folder), sides, asked.rounds, asked.patience)
                neighbours.report(found[text])
            else:
                found[text] = Rounds(Path(folder), workload(text, asked.kind), asked).measure()
                report(found[text], text, asked.kind)
    return concluded(found, began, asked.json, broken_promises(found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--workloads",
        nargs="+",
        default=[*WORKLOADS, NEIGHBOURS],
        metavar="JOBSxPODS",
        help=f"what to submit, or {NEIGHBOURS}: one slow or broken job beside small ones "
        f"(all: {' '.join((*WORKLOADS, NEIGHBOURS))})",
    )
    parser.add_argument(
        "--operators",
        nargs="+",
        choices=SHORT,
        default=[name for name in SHORT if name != "floor"],
        help="the sides (all but floor)",
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (3)")
    parser.add_argument("--kind", choices=("TFJob", "PyTorchJob"), default="TFJob", help="of the jobs (TFJob)")
    parser.add_argument("--patience", type=float, default=240, help="seconds for one run at most (240)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    asked = parser.parse_args()
    asked.operators = [SHORT[name] for name in asked.operators]
    return asked


def _missing(names: Sequence[str]) -> str | None:
    if find_assets() is None:
        return "real API server: not found; run hack/kubernetes.sh to build one"
    return next((why for name in names if name in SIDES and (why := SIDES[name].missing())), None)


def as_installed() -> tuple[str, ...]:
    """The flags of an installed operator: it is elected, and serves metrics."""
    (port,) = free_ports(1)
    return ("--leader-elect", "--leader-election-namespace=default", f"--metrics-bind-address={HOST}:{port}")


def workload(text: str, kind: str) -> Workload:
    jobs, _, pods = text.partition("x")
    return Workload(int(jobs), int(pods), kind)


class Rounds:
    """One workload, given to every side a few times."""

    def __init__(self, folder: Path, work: Workload, asked: argparse.Namespace) -> None:
        self._folder, self._work, self._asked = folder, work, asked
        self._bodies: Bodies = []
        self._statuses: Statuses = {}

    def measure(self) -> Figures:
        found: dict[str, list[Figures]] = {name: [] for name in self._asked.operators}
        for turn in range(self._asked.rounds):
            for name in _order(self._asked.operators, turn):
                place = Path(tempfile.mkdtemp(prefix="run-", dir=self._folder))
                run = self._raw(place) if name == RAW else self._floor(place) if name == FLOOR else None
                found[name].append(run or self._run(SIDES[name], place))
                print(f"  {self._work}, round {turn + 1}, {name}: {_in_short(found[name][-1])}", flush=True)
        return {name: middle(many) | {"runs": many} for name, many in found.items()}

    def _run(self, operator: OperatorProgram, folder: Path) -> Figures:
        with measured_server(folder) as server:
            flags = as_installed() if operator in OURS else ()
            with run_operator(operator, server, folder, kubeconfig=as_operator(server), extra=flags) as process:
                found, bodies, statuses = asyncio.run(self._submit(server, process))
            if operator in OURS or not self._bodies:
                self._bodies, self._statuses = bodies, statuses
            return found

    async def _submit(self, server: RealServer, process: LoggedProcess) -> tuple[Figures, Bodies, Statuses]:
        work = self._work
        async with session_of(server, server.token) as session:
            await warm_up(session, work.kind)
            async with namespace(session, "bench", work.kind) as place:
                used, around = Usage(process.pid), Around(server)
                since, began = time.time(), time.perf_counter()
                await place.submit(job_names(work), work.pods)
                submitted = time.perf_counter() - began
                reached = await place.wait_for(lambda: all_active(place, work), self._asked.patience)
                active = time.perf_counter() if reached else None
                await settled(server)
                found = marks(place, work, began, active) | used.figures() | around.figures()
                found |= {"submitted": submitted, "requests": requests(server, since)}
            return found, await same_bodies(session, "bench"), await same_statuses(session, "bench", work.kind)

    def _raw(self, folder: Path) -> Figures:
        """The same objects, as fast as the server takes them. Nothing here owns them: there is no job."""
        with measured_server(folder) as server:
            install_crds(server, GANGLINE_OPERATOR.crds())  # so that jobs can be watched, though there are none
            return asyncio.run(self._post(server))

    async def _post(self, server: RealServer) -> Figures:
        work = self._work
        async with (
            session_of(server, server.token) as session,
            session_of(server, f"{OPERATOR}-token") as raw,
            namespace(session, "bench", work.kind) as place,
        ):
            around = Around(server)
            since, began = time.time(), time.perf_counter()
            await post_all(raw, self._bodies)
            total = work.jobs * work.pods
            reached = await place.wait_for(lambda: len(place.running) >= total, self._asked.patience)
            active = time.perf_counter() if reached else None
            found = marks(place, work, began, active) | around.figures()
            return found | {"requests": requests(server, since)}

    def _floor(self, folder: Path) -> Figures:
        """The jobs, and what our operator wrote for them, by a client that has nothing to read and nothing to decide."""
        with measured_server(folder) as server:
            install_crds(server, GANGLINE_OPERATOR.crds())
            return asyncio.run(self._write_all(server))

    async def _write_all(self, server: RealServer) -> Figures:
        work = self._work
        async with (
            session_of(server, server.token) as session,
            session_of(server, f"{OPERATOR}-token") as raw,
            namespace(session, "bench", work.kind) as place,
        ):
            around = Around(server)
            since, began = time.time(), time.perf_counter()
            async with asyncio.TaskGroup() as group:
                group.create_task(place.submit(job_names(work), work.pods))
                group.create_task(post_all(raw, sorted(self._bodies, key=_job_of)))
                group.create_task(write_statuses(raw, place, work, self._statuses))
                reached = await place.wait_for(lambda: all_active(place, work), self._asked.patience)
                active = time.perf_counter() if reached else None
            found = marks(place, work, began, active) | around.figures()
            return found | {"requests": requests(server, since)}


def _order(names: Sequence[str], turn: int) -> list[str]:
    """To and fro; what sends what others made comes last in the first round."""
    if turn == 0:
        return sorted(names, key=lambda name: name in (RAW, FLOOR))
    return list(reversed(names)) if turn % 2 else list(names)


def all_active(place: Namespace, work: Workload) -> bool:
    return len(place.active) == work.jobs and all(count >= work.pods for count in place.active.values())


async def warm_up(session: Any, kind: str) -> None:
    """One small job: what a server does at its first requests is not the operator's."""
    async with namespace(session, "warm", kind) as place:
        await place.submit(["warm"], 2)
        await place.wait_for(lambda: all_active(place, Workload(1, 2)), 60)


async def same_bodies(session: Any, name: str) -> Bodies:
    """The objects an operator made, as they could be sent again."""
    bodies: Bodies = []
    for resource in ("services", "pods"):
        path = f"/api/v1/namespaces/{name}/{resource}"
        async with session.get(path) as response:
            items = (await response.json())["items"]
        for item in items:
            kept = ("name", "labels", "annotations")
            meta = {key: item["metadata"][key] for key in kept if key in item["metadata"]}
            bodies.append((path, json.dumps({"metadata": meta, "spec": item["spec"]}).encode()))
    return bodies


async def same_statuses(session: Any, name: str, kind: str) -> Statuses:
    """The statuses of all jobs, as they could be written again."""
    path = f"/apis/kubeflow.org/v1/namespaces/{name}/{KINDS[kind][0]}"
    async with session.get(path) as response:
        items = (await response.json())["items"]
    return {
        f"{path}/{item['metadata']['name']}/status": json.dumps({"status": item["status"]}).encode() for item in items
    }


def _job_of(post: tuple[str, bytes]) -> str:
    """What sorts requests by job, as an operator makes them."""
    return str(json.loads(post[1])["metadata"]["name"])


async def write_statuses(session: Any, place: Namespace, work: Workload, statuses: Statuses) -> None:
    """The status of each job, as soon as its pods run."""
    waiting, slots = dict(statuses), asyncio.Semaphore(RAW_STATUSES)
    headers = {"Content-Type": "application/merge-patch+json"}

    async def write(path: str, body: bytes) -> None:
        async with slots, session.patch(path, data=body, headers=headers) as response:
            if response.status != 200:
                raise RuntimeError(f"PATCH {path}: {response.status} {(await response.text())[:300]}")
            await response.read()

    async with asyncio.TaskGroup() as group:
        while waiting:
            for path in list(waiting):
                if _runs(place, path.split("/")[-2], work):
                    group.create_task(write(path, waiting.pop(path)))
            await asyncio.sleep(0.01)


def _runs(place: Namespace, job: str, work: Workload) -> bool:
    return all(f"{job}-worker-{number}" in place.running for number in range(work.pods))


def job_names(work: Workload) -> list[str]:
    return [f"job-{number:04d}" for number in range(work.jobs)]


# The server and what is read of it


def measured_server(folder: Path) -> RealServer:
    """One that writes down who asked for what."""
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": [OPERATOR]}, {"level": "None"}],
    }
    file = folder / "policy.json"
    file.write_text(json.dumps(policy))
    flags = (f"--audit-policy-file={file}", f"--audit-log-path={folder / 'audit.log'}")
    users = {"admin": ("system:masters",), OPERATOR: ("system:masters",)}
    return RealServer(directory=folder / "server", flags=flags, users=users, durable=True)


def as_operator(server: RealServer) -> Path:
    """A kubeconfig of the user that is counted."""
    content = json.loads(server.kubeconfig.read_text()) | {"current-context": OPERATOR}
    file = server.directory / "operator-kubeconfig"
    file.write_text(json.dumps(content))
    return file


def requests(server: RealServer, since: float) -> dict[str, int]:
    """What the operator asked for since then, by verb and resource."""
    counted: Counter[str] = Counter()
    for line in (server.directory.parent / "audit.log").read_text().splitlines():
        event = json.loads(line)
        ended = "ResponseStarted" if event["verb"] == "watch" else "ResponseComplete"
        if event["stage"] != ended or event["requestReceivedTimestamp"] < _stamp(since):
            continue
        target = event.get("objectRef") or {}
        names = [target.get("resource", "?"), target.get("subresource")]
        counted[f"{event['verb']} {'/'.join(filter(None, names))}"] += 1
    return dict(counted.most_common())


async def settled(server: RealServer) -> None:
    """Until the operator asks for nothing more: what it is late with belongs to the work.

    The watch over hangs reads signs of life for as long as jobs run, a few a second, and its Lease is renewed. They do not
    count here.
    """
    file, ends = server.directory.parent / "audit.log", time.perf_counter() + LONGEST
    since = time.perf_counter()
    with file.open() as log:
        rest = ""
        while time.perf_counter() < min(since + SETTLES, ends):
            # The last line may be written only in part.
            *lines, rest = (rest + log.read()).split("\n")
            if not all(map(_goes_on_for_ever, lines)):
                since = time.perf_counter()
            await asyncio.sleep(0.1)


def _goes_on_for_ever(line: str) -> bool:
    """Whether it is a sign of life that was read, or the operator's Lease."""
    return any(word in line for word in ('"subresource":"log"', '"apiGroup":"metrics.k8s.io"', '"resource":"leases"'))


def _stamp(moment: float) -> str:
    """As the audit log writes it, so that texts compare as times do."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Around:
    """CPU since now of all but the operator: on a small machine they are who it waits for."""

    def __init__(self, server: RealServer) -> None:
        self._server = server
        self._before = cpu(server), cpu_seconds()

    def figures(self) -> Figures:
        return {
            "server_cpu": cpu(self._server) - self._before[0],
            "driver_cpu": cpu_seconds() - self._before[1],
        }


class Usage:
    """CPU since now and the most memory ever, of one process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = self._cpu()

    def figures(self) -> Figures:
        return {"cpu": self._cpu() - self._before, "memory": self._peak()}

    def _cpu(self) -> float:
        # In nanoseconds, of all threads: what /proc/PID/stat counts in ticks is too coarse for a small workload.
        return (
            sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{self._pid}/task").iterdir())
            / 1e9
        )

    def _peak(self) -> int:
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


# Reports


def middle(runs: Sequence[Figures]) -> Figures:
    """The median of every figure; None where a run did not get there."""
    found: Figures = {}
    for name in ("created", "running", "active", "submitted", "cpu", "memory", "server_cpu", "driver_cpu"):
        values = [run.get(name) for run in runs]
        found[name] = None if None in values else median(value for value in values if value is not None)
    names = sorted({name for run in runs for name in run["requests"]})
    found["requests"] = {name: median(run["requests"].get(name, 0) for run in runs) for name in names}
    return found


def writes(one: Figures) -> float:
    return float(sum(count for name, count in one["requests"].items() if name.split()[0] in WRITES))


def reads(one: Figures) -> float:
    return float(sum(count for name, count in one["requests"].items() if name.split()[0] in READS))


def _in_short(one: Figures) -> str:
    shown = [f"{name} {_or_dash(one.get(name), seconds)}" for name in ("created", "running", "active")]
    return ", ".join([*shown, f"CPU {_or_dash(one.get('cpu'), seconds)}", f"writes {writes(one):.0f}"])


def _or_dash(value: float | None, form: Callable[[float], str]) -> str:
    return "-" if value is None else form(value)


def report(found: Figures, text: str, kind: str) -> None:
    jobs = workload(text, kind).jobs
    head = (
        "",
        "pods created",
        "jobs running",
        "all active",
        "CPU",
        "peak RSS",
        "writes/job",
        "reads/job",
        "server",
        "driver",
    )
    rows = [
        (
            name,
            *(_or_dash(one[key], seconds) for key in ("created", "running", "active", "cpu")),
            _or_dash(one["memory"], size),
            f"{writes(one) / jobs:.1f}",
            f"{reads(one) / jobs:.1f}",
            *(_or_dash(one[key], seconds) for key in ("server_cpu", "driver_cpu")),
        )
        for name, one in found.items()
    ]
    ours = found.get(GANGLINE_OPERATOR.name)
    if ours:
        for name, one in found.items():
            if one is not ours:
                keys = ("created", "running", "active", "cpu", "memory")
                ratios = [_or_dash(ratio(one[key], ours[key]), times) for key in keys]
                rows.append((f"{name} / gangline", *ratios, times(writes(one) / max(writes(ours), 1)), "", "", ""))
    show(f"{text} {kind}: medians, and how many times ours the others take", head, rows)
    for name, one in found.items():
        asked = ", ".join(f"{what} {count:g}" for what, count in one["requests"].items() if count)
        print(f"  requests of {name}: {asked}")


def ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def broken_promises(found: Figures) -> list[str]:
    """One line for each ratio that is worse than promised."""
    checks: list[tuple[str, float | None, float]] = []
    big, small = found.get("1x500", {}), found.get("100x2", {})
    for key in ("created", "active"):
        checks.append((f"1x500 {key}: times faster than the lifted peer", _than(big, KUBEFLOW_LIFTED.name, key), 3.0))
        checks.append((f"1x500 {key}: of the raw client's speed", _than(big, RAW, key), 0.5))
    checks.append(
        ("100x2 active: times faster than the lifted peer", _than(small, KUBEFLOW_LIFTED.name, "active"), 1.3)
    )
    checks.append(("100x2 active: times faster than the shipped peer", _than(small, KUBEFLOW.name, "active"), 6.0))
    for text in WORKLOADS:
        for key in ("cpu", "memory"):
            share = _than(found.get(text, {}), KUBEFLOW_LIFTED.name, key)
            checks.append((f"{text} {key}: the lifted peer's to ours", share, 1.0))
        if GANGLINE_OPERATOR.name in found.get(text, {}) and KUBEFLOW_LIFTED.name in found[text]:
            share = writes(found[text][KUBEFLOW_LIFTED.name]) / writes(found[text][GANGLINE_OPERATOR.name])
            checks.append((f"{text} writes: the lifted peer's to ours", share, 1.0))
    missed = [(what, value, least) for what, value, least in checks if value is not None and value < least]
    return [f"{what}: {value:.2f}, promised {least}" for what, value, least in missed]


def _than(found: Mapping[str, Figures], name: str, key: str) -> float | None:
    if name not in found or GANGLINE_OPERATOR.name not in found:
        return None
    return ratio(found[name][key], found[GANGLINE_OPERATOR.name][key])


if __name__ == "__main__":
    sys.exit(main())
