"""Our API server beside kube-apiserver and etcd, on the same machine, in the same run. Run it as `make bench-local`.

Figures of a shared machine are noise; ratios of what ran side by side are not: rounds alternate. Both sides sync every
write to the disk before they answer it. Exits with 1 when a promised ratio is missed: 1.5 times their creates, a
quarter of their memory, a quarter of their time until ready.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import pods
from bench.load import WATCHED
from bench.measure import Figures, concluded, machine, median, rate, seconds, show, size, times
from bench.servers import Gangline, Kubernetes, Server, call, load, memory

from support.servers.real import KUBERNETES_VERSION, find_assets

OURS, THEIRS = "gangline", "kube-apiserver + etcd"
SIDES: Mapping[str, type[Gangline] | type[Kubernetes]] = {OURS: Gangline, THEIRS: Kubernetes}
IN_FLIGHT, WATCHERS, PACE = 32, 50, 20
MORE_CREATES, LESS_MEMORY, LESS_TIME = 1.5, 4.0, 4.0
FULL = 5_000


def main() -> int:
    asked = _arguments()
    if find_assets() is None:
        print("real API server: not found; run hack/kubernetes.sh to build one", file=sys.stderr)
        return 2
    began = time.perf_counter()
    found: Figures = {"machine": machine(), "pods": asked.pods, "kubernetes": KUBERNETES_VERSION}
    print("Machine:", ", ".join(f"{name} {value}" for name, value in found["machine"].items()))
    # Beside the sources and not in the folder for temporary files, which may be in memory: there, syncing costs nothing.
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path(__file__).parents[1]) as folder:
        # An installed program has its bytecode; here each start may have to compile its sources.
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(folder) / "bytecode")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        found |= measure(Path(folder), asked)
    return concluded(found, began, asked.json, broken_promises(found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--pods", type=int, help="how many pods (5,000; with --quick 1,000)")
    parser.add_argument("--rounds", type=int, help="in how many rounds (5; with --quick 2)")
    parser.add_argument("--quick", action="store_true", help="a smaller run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    asked = parser.parse_args()
    asked.pods = asked.pods or (1_000 if asked.quick else FULL)
    asked.rounds = asked.rounds or (2 if asked.quick else 5)
    return asked


def measure(folder: Path, asked: argparse.Namespace) -> Figures:
    """Everything, each part reported as it is done."""
    found: Figures = {"ready": ready(folder, min(asked.rounds, 3))}
    report_ready(found["ready"])
    with ExitStack() as stack:
        servers: dict[str, Server] = {}
        for name, side in SIDES.items():
            servers[name] = server = side(folder)
            stack.callback(server.stop)
            server.start()
            for namespace in (pods.NAMESPACE, WATCHED):
                call(server, "POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        empty = {name: memory(server) for name, server in servers.items()}
        found["create"] = create(servers, asked.pods, asked.rounds)
        report_create(found["create"], asked.pods)
        found["memory"] = {"empty": empty, "full": {name: memory(one) for name, one in servers.items()}}
        report_memory(found["memory"], asked.pods)
        found["list"] = {name: load(server, "list", asked.rounds) for name, server in servers.items()}
        report_list(found["list"])
        events = min(asked.pods // 10, 200)
        found["watch"] = {
            name: load(server, "watch", 0, events * 2, WATCHERS, PACE, IN_FLIGHT) for name, server in servers.items()
        }
        report_watch(found["watch"], events)
    return found


def ready(folder: Path, rounds: int) -> Figures:
    """Start on an empty folder, until it answers: the median of a few, after one that does not count."""
    taken: dict[str, list[float]] = {name: [] for name in SIDES}
    for _ in range(rounds + 1):
        for name, side in SIDES.items():
            server = side(folder)
            try:
                server.start()
                taken[name].append(server.startup_seconds)
            finally:
                server.stop()
    return {name: median(many[1:]) for name, many in taken.items()}


def create(servers: Mapping[str, Server], total: int, rounds: int) -> Figures:
    """All pods, in rounds that alternate between the servers."""
    found: dict[str, list[Figures]] = {name: [] for name in servers}
    for turn in range(rounds):
        first, last = total * turn // rounds, total * (turn + 1) // rounds
        for name, server in servers.items():
            found[name].append(load(server, "create", first, last, IN_FLIGHT))
    return {name: _middle(many) | {"rounds": many} for name, many in found.items()}


def _middle(rounds: list[Figures]) -> Figures:
    return {name: median(one[name] for one in rounds) for name in rounds[0]}


# Reports


def report_ready(found: Figures) -> None:
    ratio = found[THEIRS] / found[OURS]
    rows = [(name, seconds(value), times(ratio) if name == OURS else "") for name, value in found.items()]
    show("From nothing to ready (TLS, an empty store)", ("", "time", "less"), rows)


def report_create(found: Figures, total: int) -> None:
    rows = [
        (
            name,
            rate(one["per_second"]),
            seconds(one["p50"]),
            seconds(one["p99"]),
            _cores(one, "server_cpu"),
            _cores(one, "generator_cpu"),
            times(one["per_second"] / found[THEIRS]["per_second"]) if name == OURS else "",
        )
        for name, one in found.items()
    ]
    show(
        f"{total:,} pods created, {IN_FLIGHT} in flight, every one synced to the disk",
        ("", "rate", "p50", "p99", "server's cores", "load's cores", "ratio"),
        rows,
    )


def _cores(one: Figures, what: str) -> str:
    return f"{one[what] / one['seconds']:.2f}"


def report_memory(found: Figures, total: int) -> None:
    rows = [
        (process, size(found["empty"][name][process]), size(value), "")
        for name, full in found["full"].items()
        for process, value in full.items()
    ]
    rows.append(("ours to theirs together", "", "", times(_smaller(found))))
    show(f"Memory (RSS), empty and with {total:,} pods", ("", "empty", "full", "less"), rows)


def _smaller(found: Figures) -> float:
    theirs, ours = (sum(found["full"][name].values()) for name in (THEIRS, OURS))
    return float(theirs / ours)


def report_list(found: Figures) -> None:
    head = ("", "one answer", "pages of 500", "server's CPU each", "bytes", "ratio")
    rows = [
        (
            name,
            seconds(median(one["seconds"])),
            seconds(median(one["paged"])),
            seconds(one["server_cpu"] / len(one["seconds"]) / 2),
            size(one["bytes"]),
            times(median(found[THEIRS]["seconds"]) / median(one["seconds"])) if name == OURS else "",
        )
        for name, one in found.items()
    ]
    show(f"List of {found[OURS]['pods']:,} pods", head, rows)


def report_watch(found: Figures, events: int) -> None:
    rows = [
        (
            name,
            seconds(one["paced"]["request_p50"]),
            seconds(one["paced"]["request_p99"]),
            seconds(one["paced"]["answer_p99"]),
            rate(one["burst"]["creates_per_second"]),
            rate(one["burst"]["events_per_second"]),
            _cores(one["burst"], "generator_cpu"),
            str(one["given_up"]),
        )
        for name, one in found.items()
    ]
    show(
        f"{events:,} pods to {WATCHERS} watchers: {PACE} a second, until the last of them knows; "
        f"then {events:,} with {IN_FLIGHT} in flight",
        ("", "p50", "p99", "p99 after the answer", "creates", "events", "load's cores", "dropped"),
        rows,
    )


def broken_promises(found: Figures) -> list[str]:
    """One line for each ratio that is worse than promised."""
    created = found["create"][OURS]["per_second"] / found["create"][THEIRS]["per_second"]
    checks = [
        ("times their creates", created, MORE_CREATES),
        ("times less memory", _smaller(found["memory"]), LESS_MEMORY),
        ("times less time until ready", found["ready"][THEIRS] / found["ready"][OURS], LESS_TIME),
    ]
    return [f"{value:.1f} {what}, promised {least}" for what, value, least in checks if value < least]


if __name__ == "__main__":
    sys.exit(main())
