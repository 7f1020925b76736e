"""Real programs that hang in containers on real nodes: the installed operator finds them by itself, and who holds them up.

The operator reads stacks by a command in the pods. py-spy is mounted into them, where an image of one's own would have it.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import pytest

from gangline.stacks.pyspy import find_py_spy
from support.nodes.inside import NodeCluster
from support.nodes.jobs import pods_of, replica_specs, spread
from support.requirements import skip_or_fail

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

TORCH, OPEN_MPI = "gangline-test/python-torch:1", "gangline-test/openmpi:1"
LIMIT_SECONDS = 120
"""From the last log line on."""
TEAM = """\
import hashlib, os, threading, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
for number in range(5):
    dist.all_reduce(torch.ones(1))
    print(f"step {number}", flush=True)
"""


class ClusterHang(NamedTuple):
    """A program that hangs in a cluster, and what must be said of it."""

    program: str
    # Of the condition's message: who stands where.
    message: str
    image: str = TORCH


HANGS = {
    "gloo": ClusterHang(
        TEAM
        + """\
if rank == 1:
    threading.Event().wait()
dist.all_reduce(torch.ones(1))
""",
        r"master-0 \(rank 0\) waits in all_reduce \(train\.py:11\); worker-0 \(rank 1\) waits for a lock \(train\.py:10\)",
    ),
    "deadlock": ClusterHang(
        TEAM
        + """\
one, two = threading.Lock(), threading.Lock()
def backwards():
    with two:
        time.sleep(0.2)
        one.acquire()
if rank == 1:
    threading.Thread(target=backwards, daemon=True).start()
    with one:
        time.sleep(0.4)
        two.acquire()
dist.barrier()
""",
        r"master-0 \(rank 0\) waits in barrier \(train\.py:19\); worker-0 \(rank 1\) waits for a lock \(train\.py:18\)",
    ),
    "loader": ClusterHang(
        TEAM
        + """\
from torch.utils.data import DataLoader, Dataset
class Stuck(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        if rank == 1 and index > 3:
            os.read(os.pipe()[0], 1)
        return torch.ones(1)
for batch in DataLoader(Stuck(), batch_size=1, num_workers=1):
    dist.all_reduce(batch)
    print("batch", flush=True)
""",
        r"master-0 \(rank 0\) waits in all_reduce \(train\.py:18\); worker-0 \(rank 1\) reads data \(train\.py:15\)",
    ),
    "spinning": ClusterHang(
        """\
import threading
from mpi4py import MPI
world = MPI.COMM_WORLD
for number in range(5):
    world.Barrier()
    print(f"step {number}", flush=True)
if world.rank == 1:
    threading.Event().wait()
world.Barrier()
""",
        r"worker-0 \(rank 0\) waits in Barrier \(train\.py:9\); worker-1 \(rank 1\) waits for a lock \(train\.py:8\)",
        OPEN_MPI,
    ),
}
# Longer than it takes to find a hang: one rank computes without a word, and the other one waits for it.
QUIET = (
    TEAM
    + """\
end = time.monotonic() + 240
while rank == 0 and time.monotonic() < end:
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 300_000)
dist.barrier()
"""
)


def job(name: str, image: str) -> Any:
    """Two ranks of a program in the ConfigMap of that name, on two nodes, with py-spy in their containers."""
    files = [{"name": "scripts", "mountPath": "/scripts"}, {"name": "py-spy", "mountPath": "/usr/local/bin/py-spy"}]
    volumes = [
        {"name": "scripts", "configMap": {"name": name}},
        {"name": "py-spy", "hostPath": {"path": find_py_spy(), "type": "File"}},
    ]
    kind = "mpi" if image == OPEN_MPI else "pytorch"
    container = {"name": kind, "image": image, "workingDir": "/scripts", "volumeMounts": files}
    if kind == "pytorch":
        container["command"] = ["python", "train.py"]
    template = {"spec": {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 1}}
    mpirun = ["mpirun", "--allow-run-as-root", "-np", "2", "python3", "train.py"]
    launching = {"spec": {**template["spec"], "containers": [{**container, "command": mpirun}]}}
    replicas = (
        {"Launcher": (1, launching), "Worker": (2, template)}
        if kind == "mpi"
        else {"Master": (1, template), "Worker": (1, template)}
    )
    specs = {
        name: {"replicas": count, "restartPolicy": "Never", "template": body}
        for name, (count, body) in replicas.items()
    }
    body = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob" if kind == "mpi" else "PyTorchJob",
        "metadata": {"name": name},
        "spec": {f"{kind}ReplicaSpecs": specs},
    }
    assert replica_specs(body) is specs
    return spread(body)


def submit(cluster: NodeCluster, namespace: str, name: str, program: str, image: str) -> None:
    files = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"train.py": program}}
    cluster.apply(files, job(name, image), namespace=namespace)


def stalls(cluster: NodeCluster, namespace: str) -> dict[str, Mapping[str, str]]:
    """The condition Stalled of the jobs that have it, by job."""
    return {
        one["metadata"]["name"]: condition
        for one in cluster.objects("pytorchjobs,mpijobs", namespace)
        for condition in one.get("status", {}).get("conditions", ())
        if condition["type"] == "Stalled"
    }


def test_four_hangs_are_found_with_their_ranks_and_a_quiet_job_is_left_alone(
    installed: NodeCluster, namespace: str
) -> None:
    if not find_py_spy():
        skip_or_fail("py-spy not found: pip install 'gangline[stacks]'", required="GANGLINE_REQUIRE_CLUSTER")
    submit(installed, namespace, "quiet", QUIET, TORCH)
    for name, hang in HANGS.items():
        submit(installed, namespace, name, hang.program, hang.image)
    for name, hang in HANGS.items():
        kind = "mpijob" if hang.image == OPEN_MPI else "pytorchjob"
        try:
            installed.wait(f"{kind}/{name}", "Stalled", namespace, seconds=400)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{operator_log(installed)}") from None
    found = stalls(installed, namespace)
    delays = {name: delay(installed, namespace, name, found[name]) for name in HANGS}
    print(f"seconds from the last log line to condition Stalled: {delays}")
    for name, condition in found.items():
        assert re.fullmatch(rf"no progress for \d+ s: {HANGS[name].message}", condition["message"]), condition
        assert (condition["status"], condition["reason"]) == ("True", "RankStands"), condition
    assert max(delays.values()) <= LIMIT_SECONDS, delays
    zombies = "grep -l '^State:.Z' /proc/[0-9]*/status || true"
    left = installed.kubectl("exec", "gloo-worker-0", "--namespace", namespace, "--", "sh", "-c", zombies)
    assert left == "", "reading stacks left processes behind"
    installed.wait("pytorchjob/quiet", "Succeeded", namespace, seconds=400)
    assert "quiet" not in stalls(installed, namespace)


def delay(cluster: NodeCluster, namespace: str, job: str, condition: Mapping[str, str]) -> float:
    """The seconds from the last log line of a job's pods to its condition Stalled."""
    lines = [
        cluster.kubectl("logs", pod, "--namespace", namespace, "--timestamps", "--tail=1").partition(" ")[0]
        for pod in pods_of(cluster, namespace, job)
    ]
    # Nanoseconds are more than Python reads.
    last = max(datetime.fromisoformat(f"{time[:19]}+00:00") for time in lines if time)
    return (datetime.fromisoformat(condition["lastTransitionTime"]) - last).total_seconds()


def operator_log(cluster: NodeCluster) -> str:
    """The ends of the logs of the operator's replicas: what the watch could not read is there."""
    selector = "app.kubernetes.io/component=operator"
    return cluster.kubectl("logs", "--namespace=gangline", f"--selector={selector}", "--tail=20", check=False)
