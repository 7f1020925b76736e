"""From nothing to a running job in a cluster with real nodes, ours and Kubeflow's operator by turns.

Run it as `make bench-install`. In each round each of the two is installed as its own page says, a job is created as soon
as the installation is ready, and the clock stops when the job is Running. Then everything is removed again. The images
are on the nodes: the time of a download depends on the network, and both need one.

- ours: `gangline install`, which returns when the operator is ready (two replicas), then `kubectl create`
- Kubeflow's: `kubectl apply --server-side -k manifests/overlays/standalone`, `kubectl wait` for its Deployment, then
  `kubectl create` until its webhook answers
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.measure import Figures, concluded, machine, median
from hack.images import oci
from hack.images.base import MACHINES
from hack.images.tree import file

from support.nodes.inside import NodeCluster
from support.nodes.jobs import shell_job
from support.nodes.layout import Layout

ROOT = Path(__file__).parents[1]
JOB = shell_job("first", "sleep 600", workers=2)
PEER_IMAGE = "gangline-test/kubeflow-operator"
PEER_NAMESPACE = "kubeflow"
RETRY_SECONDS = 0.2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5, help="how often each is installed (5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--inside", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside is not None:
        return measure(asked.inside, asked.rounds, asked.json)
    return with_cluster(
        ["--rounds", str(asked.rounds), *(["--json", str(asked.json.absolute())] if asked.json else [])]
    )


def with_cluster(words: list[str]) -> int:
    """Start a cluster, give it the images, and measure inside of it."""
    cluster = str(ROOT / "hack" / "cluster.sh")
    peer = Path(_output(str(ROOT / "hack" / "peer.sh")).splitlines()[0])
    ours = [line for line in _output(str(ROOT / "hack" / "image.sh")).splitlines() if line.endswith(".tar")]
    subprocess.run([cluster, "up"], check=True)
    try:
        with tempfile.TemporaryDirectory(prefix=".bench-", dir=ROOT) as folder:
            subprocess.run([cluster, "load", *ours, str(peer_image(Path(folder), peer))], check=True)
            (Path(folder) / "kustomization.yaml").write_text(peer_overlay(Path(folder), peer))
            inside = [sys.executable, __file__, "--inside", folder, *words]
            return subprocess.run([cluster, "exec", "--", *inside], check=False).returncode
    finally:
        subprocess.run([cluster, "down"], check=True)


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def peer_image(folder: Path, peer: Path) -> Path:
    """An image of Kubeflow's operator, with its program where its Deployment looks for it."""
    architecture = MACHINES[platform.machine()]
    layer = oci.write_layer(
        folder / "layer.tar", "the program", {"manager": file(peer / "training-operator", 0o755)}, 0
    )
    return oci.write_archive(folder, f"{PEER_IMAGE}:1", oci.Image(architecture, {}, [layer]), 0)


def peer_overlay(folder: Path, peer: Path) -> str:
    """Its own overlay, with the image that the nodes have."""
    base = os.path.relpath(peer / "manifests" / "overlays" / "standalone", folder)
    images = [{"name": "kubeflow/training-operator", "newName": PEER_IMAGE, "newTag": "1"}]
    return json.dumps({"resources": [base], "images": images})


def measure(folder: Path, rounds: int, target: Path | None) -> int:
    """Install both by turns in the cluster around this process, and print the times."""
    began = time.perf_counter()
    cluster = NodeCluster(Layout.read(Path(os.environ["GANGLINE_CLUSTER_DIR"])))
    found: Figures = {"machine": machine(), "rounds": rounds}
    print("Machine:", ", ".join(f"{name} {value}" for name, value in found["machine"].items()))
    times: dict[str, list[tuple[float, float]]] = {"gangline": [], "Kubeflow": []}
    for number in range(rounds):
        for name, install, remove in (
            ("gangline", install_ours, remove_ours),
            ("Kubeflow", lambda one: install_peer(one, folder), lambda one: remove_peer(one, folder)),
        ):
            ready, running = seconds_to_a_running_job(cluster, install, remove)
            print(f"round {number + 1}  {name:9} installed {ready:5.1f} s   job running {running:5.1f} s", flush=True)
            times[name].append((ready, running))
    for name, pairs in times.items():
        found[name] = {"installed": median([one for one, _ in pairs]), "running": median([one for _, one in pairs])}
        print(
            f"median   {name:9} installed {found[name]['installed']:5.1f} s   job running {found[name]['running']:5.1f} s"
        )
    print(f"gangline's job runs {found['Kubeflow']['running'] / found['gangline']['running']:.1f} times as soon")
    return concluded(found, began, target, [])


def seconds_to_a_running_job(
    cluster: NodeCluster, install: Callable[[NodeCluster], None], remove: Callable[[NodeCluster], None]
) -> tuple[float, float]:
    """Seconds until the installation was ready, and until the first job ran."""
    began = time.perf_counter()
    install(cluster)
    ready = time.perf_counter() - began
    while subprocess.run(
        ["kubectl", "create", "--filename=-"], input=json.dumps(JOB), capture_output=True, text=True, check=False
    ).returncode:
        time.sleep(RETRY_SECONDS)
    cluster.wait("tfjob/first", "Running")
    running = time.perf_counter() - began
    cluster.kubectl("delete", "tfjob", "first")
    cluster.kubectl("wait", "pods", "--all", "--for=delete", "--timeout=60s", "--namespace=default")
    remove(cluster)
    return ready, running


def install_ours(cluster: NodeCluster) -> None:
    done = cluster.gangline("install")
    assert done.code == 0, done


def remove_ours(cluster: NodeCluster) -> None:
    done = cluster.gangline("uninstall", "--delete-crds", "--yes")
    assert done.code == 0, done
    cluster.kubectl("wait", "--for=delete", "namespace/gangline", "--timeout=120s", check=False)


def install_peer(cluster: NodeCluster, folder: Path) -> None:
    cluster.kubectl("apply", "--server-side", "--kustomize", str(folder))
    cluster.wait("deployment/training-operator", "Available", PEER_NAMESPACE)


def remove_peer(cluster: NodeCluster, folder: Path) -> None:
    cluster.kubectl("delete", "--kustomize", str(folder), "--wait=true")
    cluster.kubectl("wait", "--for=delete", f"namespace/{PEER_NAMESPACE}", "--timeout=120s", check=False)


if __name__ == "__main__":
    sys.exit(main())
