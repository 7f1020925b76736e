"""How fast and how cheap `gangline scheduler` is, side by side with kube-scheduler. `make bench-scheduler`.

On a real kube-apiserver with fake nodes: gangs of one-GPU pods are created while the scheduler is held, then it is let
go, and the clock runs until the last pod is seen bound. The sides: gangline, all of each gang or none; kube-scheduler
with its client's rate limit out of the way, the same pods without gangs; and a raw client that posts the same bindings
with no decision at all, which is what the server can take. Their order alternates from round to round. Then, without a
server: what 5,000 nodes with 50,000 pods take in memory. Exits with 1 when a promise is missed.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.measure import Figures, concluded, machine, median, rate, seconds, show, size
from bench.schedulers import GANGLINE, GPUS, LIMIT, Load, Side, Stage, idle, kube_scheduler, stage

from support.cluster.operators import GANGLINE_OPERATOR as OPERATOR
from support.cluster.operators import install_crds
from support.servers.real import KUBERNETES_VERSION, RealServer, find_assets

LOADS = ("10x100", "1x1000", "200x4")
NODES = (500, 2000)
BIG = Path(__file__).with_name("bigcluster.py")
SHARE, CPU_MS, FIRST, IDLE, MEMORY = 0.8, 1.2, 0.5, 0.02, 400e6
"""What is promised: of the raw rate, CPU per pod, until the first of a thousand, share of a core when idle, bytes."""


def main() -> int:
    asked = _arguments()
    assets = find_assets()
    if assets is None or not (assets / "kube-scheduler").exists():
        print(
            "kube-scheduler or its server: not found; run hack/kubernetes.sh, and with kube-scheduler",
            file=sys.stderr,
        )
        return 2
    sides = {
        "gangline": GANGLINE,
        "kube-scheduler": Side("kube-scheduler", "default-scheduler", kube_scheduler(assets)),
        "raw": LIMIT,
    }
    began = time.perf_counter()
    found: Figures = {"machine": machine(), "kubernetes": KUBERNETES_VERSION, "rounds": asked.rounds}
    print("Machine:", ", ".join(f"{name} {value}" for name, value in found["machine"].items()))
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path(__file__).parents[1]) as folder:
        wanted = [sides[name] for name in asked.sides]
        for nodes in asked.nodes:
            found[str(nodes)] = Bench(Path(folder), nodes, wanted, asked).measure()
            report(found[str(nodes)], nodes)
    if not asked.small:
        found["big"] = json.loads(subprocess.run([sys.executable, str(BIG)], check=True, capture_output=True).stdout)
        print(f"\n5,000 nodes, 50,000 pods: {size(found['big']['memory'])}, read in {found['big']['seconds']:.1f} s")
    return concluded(found, began, asked.json, broken_promises(found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--loads", nargs="+", default=LOADS, metavar="GANGSxPODS", help=f"({' '.join(LOADS)})")
    parser.add_argument("--nodes", nargs="+", type=int, default=NODES, help="fake nodes (500 2000)")
    parser.add_argument(
        "--sides",
        nargs="+",
        choices=("gangline", "kube-scheduler", "raw"),
        default=["gangline", "kube-scheduler", "raw"],
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (3)")
    parser.add_argument("--patience", type=float, default=120, help="seconds for one run at most (120)")
    parser.add_argument("--small", action="store_true", help="leave out memory and idleness")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    return parser.parse_args()


class Bench:
    """One server with so many nodes, and every load on every side a few times."""

    def __init__(self, folder: Path, nodes: int, sides: Sequence[Side], asked: argparse.Namespace) -> None:
        self._folder, self._nodes, self._sides, self._asked = folder, nodes, sides, asked

    def measure(self) -> Figures:
        place = Path(tempfile.mkdtemp(prefix="server-", dir=self._folder))
        with RealServer(directory=place / "server") as server:
            gangs = [one for one in OPERATOR.crds() if one["spec"]["group"] == "scheduling.gangline.dev"]
            install_crds(server, gangs)
            return asyncio.run(self._on(server, place))

    async def _on(self, server: RealServer, place: Path) -> Figures:
        found: Figures = {load: {side.name: [] for side in self._sides} for load in self._asked.loads}
        found["idle"] = {}
        async with stage(server) as scene:
            await scene.furnish(self._nodes)
            for turn in range(self._asked.rounds):
                for load in self._asked.loads:
                    # One right after the other: what else the machine does then matters to all alike.
                    for side in self._sides if turn % 2 == 0 else tuple(reversed(self._sides)):
                        await self._turn(scene, server, side, place, load, found)
        medians = {
            load: {name: _middle(runs) | {"runs": runs} for name, runs in found[load].items()}
            for load in self._asked.loads
        }
        return medians | {"idle": found["idle"]}

    async def _turn(self, scene: Stage, server: RealServer, side: Side, place: Path, load: str, found: Figures) -> None:
        """One load on one side, by a fresh process."""
        process = await asyncio.to_thread(side.start, server, place) if side.start is not None else None
        try:
            run = await scene.play(side, Load.parse(load), process, self._asked.patience)
            await scene.clear()
            found[load][side.name].append(run)
            print(f"  {self._nodes} nodes, {load}, {side.name}: {_in_short(run)}", flush=True)
            if process is not None and not self._asked.small and load == self._asked.loads[-1]:
                share = await asyncio.to_thread(idle, process, 10.0)
                found["idle"].setdefault(side.name, []).append(share)
        finally:
            if process is not None:
                process.kill()


def _middle(runs: Sequence[Figures]) -> Figures:
    names = {name for run in runs for name, value in run.items() if isinstance(value, int | float)}
    return {name: median(run[name] for run in runs if run.get(name) is not None) for name in names}


def _in_short(run: Figures) -> str:
    text = f"{rate(run['rate'])}, {run['nodes_used']} nodes used"
    return text + (f", {run['cpu'] / max(run['bound'], 1) * 1000:.2f} ms CPU a pod" if "cpu" in run else "")


def _share(ours: Figures, limit: Figures) -> float:
    """Of the raw rate: the middle of all rounds, in each of which both had the same machine."""
    return median(run["rate"] / raw["rate"] for run, raw in zip(ours["runs"], limit["runs"], strict=True))


def report(found: Figures, nodes: int) -> None:
    for load, sides in found.items():
        if load == "idle":
            continue
        rows = [
            [
                name,
                rate(run["rate"]),
                f"{run['cpu'] / run['bound'] * 1000:.2f} ms" if "cpu" in run else "",
                seconds(run["first"]) if run.get("first") is not None else "",
                f"{run['nodes_used']:.0f}",
                size(run["memory"]) if "memory" in run else "",
            ]
            for name, run in sides.items()
        ]
        head = ["side", "pods bound", "CPU a pod", "first pod", "nodes used", "memory"]
        show(f"{nodes} nodes, {load} pods (medians)", head, rows)
        if GANGLINE.name in sides and LIMIT.name in sides:
            share = _share(sides[GANGLINE.name], sides[LIMIT.name])
            print(f"  {share:.2f} of the raw rate, in the middle of {len(sides[LIMIT.name]['runs'])} rounds")
    for name, shares in found.get("idle", {}).items():
        print(f"  idle, {name}: {median(shares):.1%} of a core")


def broken_promises(found: Figures) -> Iterator[str]:
    for nodes, loads in found.items():
        if not nodes.isdecimal():
            continue
        for load, sides in loads.items():
            if load == "idle":
                continue
            yield from _missed(f"{nodes} nodes, {load}", Load.parse(load), sides)
        share = loads.get("idle", {}).get(GANGLINE.name)
        if share and median(share) > IDLE:
            yield f"{nodes} nodes: {median(share):.1%} of a core when idle, promised is {IDLE:.0%}"
    if "big" in found and found["big"]["memory"] > MEMORY:
        yield f"{size(found['big']['memory'])} with 50,000 pods, promised is {size(MEMORY)}"


def _missed(where: str, load: Load, sides: Figures) -> Iterator[str]:
    ours, limit = sides.get(GANGLINE.name), sides.get(LIMIT.name)
    if ours is None:
        return
    share = _share(ours, limit) if limit is not None else SHARE
    if share < SHARE:
        yield f"{where}: {share:.2f} of the raw rate, promised is {SHARE}"
    cost = ours["cpu"] / ours["bound"] * 1000
    if cost > CPU_MS:
        yield f"{where}: {cost:.2f} ms CPU a pod, promised is {CPU_MS}"
    if ours["first"] > FIRST:
        yield f"{where}: first pod after {ours['first']:.2f} s, promised is {FIRST}"
    if ours["nodes_used"] > -(-load.pods // GPUS):
        yield f"{where}: {ours['nodes_used']:.0f} nodes used, {-(-load.pods // GPUS)} are enough"


if __name__ == "__main__":
    sys.exit(main())
