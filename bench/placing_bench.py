"""How fast whole gangs are placed: one of 1,000 pods, 100 of 100, some that cannot fit; with rules between pods; and memory.

Decisions only: no server, no watch, no binding. `scheduler_bench.py` measures the whole.
"""

import argparse
import copy
import gc
import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import msgspec
from bench.measure import Figures, machine, median, resident

from gangline.api.meta import Key
from gangline.api.scheduler_views import Node, Pod
from gangline.api.scheduling import GangTopology
from gangline.scheduler.cache.nodes import NodeCache
from gangline.scheduler.cycle.cycle import schedule
from gangline.scheduler.pods.decode import ShapeCache, bound_pod_of, shape_of
from gangline.scheduler.types.cycle import GangRequest, Pending, Placement, PodSet, SchedulerPolicy
from gangline.scheduler.types.shape import PodShape

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--residents", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=7, help="every figure is the median of so many")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    asked = parser.parse_args()
    found: Figures = {"machine": machine()}
    print("Machine:", ", ".join(f"{name} {value}" for name, value in found["machine"].items()))
    found["memory"], cluster = memory(asked.nodes, asked.residents)
    found["decisions"] = decisions(cluster, asked.rounds)
    report(found, asked.nodes, asked.residents)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")


def memory(nodes: int, residents: int) -> tuple[Figures, NodeCache]:
    """What a filled cluster takes, and how fast it fills; the pods themselves are not kept."""
    gc.collect()
    before = resident()
    began = time.process_time()
    cluster = filled(nodes)
    nodes_in = time.process_time()
    shapes = ShapeCache()
    for number in range(residents):
        pod = running_pod(number, nodes)
        found = bound_pod_of(pod, shapes.shape_for(pod))
        if found is not None:
            cluster.put_pod(found)
    done = time.process_time()
    gc.collect()
    return {
        "cluster_mb": (resident() - before) / 1e6,
        "process_mb": resident() / 1e6,
        "node_us": (nodes_in - began) / nodes * 1e6,
        "pod_us": (done - nodes_in) / max(residents, 1) * 1e6,
    }, cluster


def decisions(cluster: NodeCache, rounds: int) -> Figures:
    """Milliseconds of CPU for each of the questions, the snapshot included."""
    plain = gang_shape()
    shy = gang_shape(affinity={"podAntiAffinity": {REQUIRED: [_term(HOST)]}})
    close = gang_shape(affinity={"podAffinity": {REQUIRED: [_term(RACK)]}})
    even = gang_shape(topologySpreadConstraints=[{**_term(RACK), "maxSkew": 1}])
    rack = GangTopology(key=RACK, required=True)
    size = len(cluster)
    # Small clusters get small gangs.
    many, some = min(1000, size), min(100, size)
    line = _line(plain, 20 * many)
    cases: dict[str, Callable[[], None]] = {
        "a snapshot": lambda: _place(cluster),
        "a gang of 1,000": lambda: _place(cluster, _ask((plain, many))),
        "100 gangs of 100": lambda: _place(cluster, *(_ask((plain, some)) for _ in range(min(100, size // 20)))),
        "1,000 gangs of 4": lambda: _place(cluster, *(_ask((plain, 4)) for _ in range(many))),
        "a gang that cannot fit": lambda: _place(cluster, _ask((plain, 10 * size)), fits=False),
        "20,000 gangs that wait, a round": lambda: _round(cluster, line),
        "a gang of 1,000 in three roles": lambda: _place(
            cluster, _ask((gang_shape(cpu="1"), 10), (plain, many - 20), (gang_shape(cpu="2"), 10))
        ),
        "a gang of 100 in one rack": lambda: _place(cluster, _ask((plain, some), topology=rack)),
        "a gang of 1,000, a node each": lambda: _place(cluster, _ask((shy, many))),
        "a gang of 100 with affinity": lambda: _place(cluster, _ask((close, some))),
        "a gang of 1,000 spread evenly": lambda: _place(cluster, _ask((even, many))),
    }
    return {name: _median_ms(case, rounds) for name, case in cases.items()}


def filled(nodes: int) -> NodeCache:
    cluster = NodeCache()
    for number in range(nodes):
        name = f"node-{number:05}"
        body = {
            "metadata": {"name": name, "labels": {HOST: name, RACK: f"rack-{number // 40:03}"}},
            "status": {
                "allocatable": {"cpu": "128", "memory": "1Ti", "pods": "250", "nvidia.com/gpu": "8"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        cluster.put_node(msgspec.convert(body, Node))
    return cluster


_BODY: dict[str, Any] = json.loads((Path(__file__).parent / "pod.json").read_text())


def running_pod(number: int, nodes: int) -> Pod:
    """A pod of a job of eight, on some node; like those that a server sends."""
    body = copy.copy(_BODY)
    body["metadata"] = _BODY["metadata"] | {
        "name": f"job-{number // 8:05}-worker-{number % 8}",
        "uid": f"{number:08x}-19fa-52d3-9cd7-16dd1a3698ad",
        "labels": _BODY["metadata"]["labels"]
        | {
            "training.kubeflow.org/job-name": f"job-{number // 8:05}",
            "training.kubeflow.org/replica-index": str(number % 8),
        },
    }
    requests = {"cpu": "500m", "memory": "1Gi"}
    body["spec"] = {
        "nodeName": f"node-{number % nodes:05}",
        "containers": [{"resources": {"requests": requests}}],
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=Pod)


def gang_shape(cpu: str = "4", **spec: Any) -> PodShape:
    requests = {"cpu": cpu, "memory": "8Gi", "nvidia.com/gpu": "1"}
    body = {
        "metadata": {"name": "w", "namespace": "team", "labels": {"job": "gang"}},
        "spec": {"containers": [{"resources": {"requests": requests}}], **spec},
    }
    return shape_of(msgspec.convert(body, Pod))


def _term(key: str) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"job": "gang"}}}


def _ask(*needs: tuple[PodShape, int], topology: GangTopology | None = None) -> GangRequest:
    found = tuple(PodSet(f"role-{number}", shape, count) for number, (shape, count) in enumerate(needs))
    return GangRequest(
        key=Key("team", "gang"),
        uid="gang",
        queue="default",
        priority=0,
        created=NOON,
        waiting_since=NOON,
        recovering=False,
        pod_sets=found,
        min_members=sum(need.count for need in found),
        topology=topology,
    )


def _place(cluster: NodeCache, *asks: GangRequest, fits: bool = True) -> None:
    trial = cluster.what_if()
    for ask in asks:
        found = trial.place(ask)
        if isinstance(found, Placement) is not fits:
            raise SystemExit(f"unexpected: {found}")
        if isinstance(found, Placement):
            trial.assume(ask, found)


def _line(shape: PodShape, length: int) -> list[GangRequest]:
    """Gangs of eight sizes, all of them too large."""
    return [
        msgspec.structs.replace(
            _ask((shape, 1_000_000 + number % 8)),
            uid=f"gang-{number:05}",
            created=NOON + timedelta(seconds=number),
            waiting_since=NOON + timedelta(seconds=number),
        )
        for number in range(length)
    ]


def _round(cluster: NodeCache, asks: list[GangRequest]) -> None:
    found = schedule(cluster.what_if(), asks, (), {}, SchedulerPolicy(), NOON + timedelta(hours=3))
    if not all(isinstance(each, Pending) for each in found.decisions):
        raise SystemExit("unexpected: one of them fits")


def _median_ms(case: Callable[[], None], rounds: int) -> float:
    case()
    took = []
    for _ in range(rounds):
        # Of this process alone: neighbours on the machine do not count.
        began = time.process_time()
        case()
        took.append((time.process_time() - began) * 1000)
    return median(took)


def report(found: Figures, nodes: int, residents: int) -> None:
    print(f"\n{nodes:,} nodes, {residents:,} residents")
    for name, took in found["decisions"].items():
        print(f"  {name:34} {took:9.2f} ms")
    memory = found["memory"]
    print(f"  memory of the cluster {memory['cluster_mb']:.0f} MB, of the process {memory['process_mb']:.0f} MB")
    print(f"  taking in a node {memory['node_us']:.0f} us, a pod {memory['pod_us']:.0f} us (decoding included)")


if __name__ == "__main__":
    main()
