"""Our blocking SDK beside Kubeflow's: creating jobs, taking turns on the same servers; and what importing ours costs.

Exits with 1 when ours is slower, or when `import gangline` takes 50 ms or more over bare Python. Figures of a shared
machine are noise; ratios of what ran in turns are not. `hack/clients.sh` brings the other SDK.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.measure import machine

from support.cluster.clients import DetachedPlane, find_kubeflow_python, pythonpath_with_gangline
from support.cluster.operators import GANGLINE_OPERATOR, install_crds
from support.servers.real import RealServer, find_assets

SDKS = {"Kubeflow": "kubeflow.training", "gangline": "gangline"}
MOST = 1.1  # as fast, and a tenth for noise
MOST_IMPORT = 0.050
USER = Path(__file__).with_name("sdk_user.py")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=100)
    asked = parser.parse_args()
    print("Machine:", ", ".join(f"{name} {value}" for name, value in machine().items()))
    with tempfile.TemporaryDirectory(prefix="gangline-bench-") as folder:
        python = str(find_kubeflow_python())
        environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            # An installed package has its bytecode.
            "PYTHONPYCACHEPREFIX": str(Path(folder) / "bytecode"),
            "PYTHONPATH": pythonpath_with_gangline(),
            "HOME": folder,
        }
        slower = [
            ratio > MOST
            for server, kubeconfig in servers(Path(folder))
            for ratio in created(
                server, python, {**environment, "KUBECONFIG": str(kubeconfig)}, asked.jobs, asked.rounds
            )
        ]
        cost = imports(python, environment, 3 * asked.rounds)
    return 1 if any(slower) or cost >= MOST_IMPORT else 0


def servers(folder: Path) -> Iterator[tuple[str, Path]]:
    """Each with the kinds and a namespace `bench`, until the next is asked for."""
    with plane(folder / "plane") as found:
        yield "embedded plane", found.kubeconfig
    if find_assets() is None:
        print("real API server: not found; run hack/kubernetes.sh to build it", file=sys.stderr)
        return
    with RealServer(durable=True) as server:
        install_crds(server, GANGLINE_OPERATOR.crds())
        yield "kube-apiserver", server.kubeconfig


@contextmanager
def plane(folder: Path) -> Iterator[DetachedPlane]:
    found = DetachedPlane(folder)
    found.up()
    try:
        yield found
    finally:
        found.down()


def created(server: str, python: str, environment: Mapping[str, str], count: int, rounds: int) -> Iterator[float]:
    """Prints the medians, and gives the ratio of the times, ours to theirs. The first round does not count."""
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in SDKS}
    for number in range(rounds + 1):
        # Who goes first changes: the server has more to keep with every job.
        for name in list(SDKS)[:: 1 if number % 2 else -1]:
            command = [python, str(USER), SDKS[name], "default", str(count), f"{name.lower()}-{number}"]
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            said = json.loads(done.stdout)
            took[name].append((said["wall"], said["cpu"]))
    medians = {name: [statistics.median(each) for each in zip(*runs[1:], strict=True)] for name, runs in took.items()}
    for name, (wall, cpu) in medians.items():
        print(
            f"{server:15} {name:10} {count} jobs {wall * 1000:6.0f} ms   processor of the client {cpu * 1000:4.0f} ms"
        )
    ratio = medians["gangline"][0] / medians["Kubeflow"][0]
    print(f"{server:15} ratio of gangline to Kubeflow: {ratio:.2f}")
    yield ratio


def imports(python: str, environment: Mapping[str, str], rounds: int) -> float:
    """Prints what imports take over bare Python, and gives that of gangline, in seconds."""
    lines = {
        "bare": "pass",
        "import gangline": "import gangline",
        "from gangline import TrainingClient": "from gangline import TrainingClient",
        "from kubeflow.training import TrainingClient": "from kubeflow.training import TrainingClient",
    }
    took: dict[str, list[float]] = {name: [] for name in lines}
    for _ in range(rounds + 1):
        for name, line in lines.items():
            began = time.perf_counter()
            subprocess.run([python, "-c", line], check=True, env=environment)
            took[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(runs[1:]) for name, runs in took.items()}
    for name in list(lines)[1:]:
        print(f"{name:45} {(medians[name] - medians['bare']) * 1000:5.1f} ms over bare Python")
    return medians["import gangline"] - medians["bare"]


if __name__ == "__main__":
    sys.exit(main())
