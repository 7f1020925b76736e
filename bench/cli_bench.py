"""`gangline get` beside `kubectl get`, on a real API server, taking turns. Exits with 1 when it takes 1.2 times as long.

Figures of a shared machine are noise; ratios of what ran in turns are not.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.measure import installed_environment, machine

from support.servers.real import RealServer, find_assets

MOST = 1.2


class Took(NamedTuple):
    """Seconds of one run: on the clock, and of processors."""

    wall: float
    cpu: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    assets = find_assets()
    if assets is None or not (assets / "kubectl").exists():
        print("real API server and kubectl: not found; run hack/kubernetes.sh to build them", file=sys.stderr)
        return 2
    print("Machine:", ", ".join(f"{name} {value}" for name, value in machine().items()))
    with tempfile.TemporaryDirectory(prefix="gangline-bench-") as folder, RealServer() as server:
        environment = {
            **installed_environment(Path(folder)),
            "KUBECONFIG": str(server.kubeconfig),
            "HOME": folder,
        }
        kubectl, ours = str(assets / "kubectl"), str(Path(sys.executable).with_name("gangline"))
        crds = subprocess.run([ours, "crds"], check=True, capture_output=True, env=environment).stdout
        subprocess.run([kubectl, "apply", "-f", "-"], input=crds, check=True, capture_output=True, env=environment)
        commands = {
            "kubectl get pods": [kubectl, "get", "pods", "-A"],
            "gangline get pods": [ours, "get", "pods", "-A"],
            "kubectl get tfjobs": [kubectl, "get", "tfjobs", "-A"],
            "gangline get tfjobs": [ours, "get", "tfjobs", "-A"],
            "gangline get jobs (six kinds)": [ours, "get", "jobs", "-A"],
        }
        found = measured(commands, environment, rounds)
    for name, (wall, cpu) in found.items():
        print(f"{name:30} {wall * 1000:6.0f} ms   processor {cpu * 1000:4.0f} ms")
    ratio = found["gangline get pods"].wall / found["kubectl get pods"].wall
    print(f"ratio of gangline to kubectl: {ratio:.2f}")
    return 1 if ratio > MOST else 0


def measured(commands: Mapping[str, Sequence[str]], environment: Mapping[str, str], rounds: int) -> dict[str, Took]:
    """The median of each, one round of all after the other; the first, which fills caches, does not count."""
    runs: dict[str, list[Took]] = {name: [] for name in commands}
    for _ in range(rounds + 1):
        for name, command in commands.items():
            runs[name].append(once(command, environment))
    return {
        name: Took(
            statistics.median(took.wall for took in these[1:]),
            statistics.median(took.cpu for took in these[1:]),
        )
        for name, these in runs.items()
    }


def once(command: Sequence[str], environment: Mapping[str, str]) -> Took:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=environment)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


if __name__ == "__main__":
    sys.exit(main())
