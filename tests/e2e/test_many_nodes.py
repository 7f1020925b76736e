"""kwok, fake kubelets for 1,000 nodes, unmodified, on a plane that `gangline up` started. hack/kwok.sh builds it."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.cluster.clients import DetachedPlane
from support.requirements import skip_or_fail
from support.servers.real import LoggedProcess, cache_dir
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("clients"), pytest.mark.timeout(1200)]

KWOK_VERSION = "0.8.0"  # as in hack/kwok.sh
NODES, PODS = 1_000, 2_000
WAIT_SECONDS = 600.0  # kwok sends few requests a second
NODES_PATH, PODS_PATH = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
LEASES_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DetachedPlane]:
    plane = DetachedPlane(tmp_path_factory.mktemp("kwok") / "plane")
    plane.up("--conformance", "--no-dashboard", "--no-history")
    yield plane
    plane.down()


@pytest.fixture(scope="module")
def kwok(plane: DetachedPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoggedProcess]:
    folder = cache_dir().parents[1] / f"kwok-{KWOK_VERSION}"
    if not os.access(folder / "kwok", os.X_OK):
        skip_or_fail("kwok not found: run hack/kwok.sh")
    home: Path = tmp_path_factory.mktemp("kwok-home")
    command = [str(folder / "kwok"), f"--kubeconfig={plane.kubeconfig}", "--manage-all-nodes=true"]
    command += ["--node-lease-duration-seconds=40", *(f"--config={file}" for file in sorted(folder.glob("stages/*")))]
    process = LoggedProcess(command, home / "log", {"HOME": str(home)})
    try:
        yield process
    finally:
        process.kill()


def create_all(plane: DetachedPlane, path: str, bodies: list[Any]) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda body: plane.call("POST", path, body), bodies))
    refused = [answer for answer in answers if answer.status != 201]
    assert not refused, refused[0]


def items(plane: DetachedPlane, path: str) -> list[Any]:
    answer = plane.call("GET", path)
    assert answer.status == 200, answer
    found: list[Any] = answer.body["items"]
    return found


def condition(item: Any, kind: str) -> str:
    return next((str(one["status"]) for one in item["status"].get("conditions", ()) if one["type"] == kind), "")


def usage(pid: int) -> dict[str, float]:
    """Seconds of CPU and megabytes of memory of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    memory = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    ticks = os.sysconf("SC_CLK_TCK")
    return {"cpu_seconds": (int(fields[11]) + int(fields[12])) / ticks, "memory_mb": int(memory.split()[1]) / 1000}


def test_a_thousand_nodes_become_ready_and_run_pods(
    plane: DetachedPlane, kwok: LoggedProcess, record_property: Any
) -> None:
    create_all(plane, NODES_PATH, [{"metadata": {"name": f"node-{number:04d}"}} for number in range(NODES)])
    wait_until_blocking(
        lambda: sum(condition(node, "Ready") == "True" for node in items(plane, NODES_PATH)) == NODES,
        kwok.log_tail(),
        seconds=WAIT_SECONDS,
    )
    renewed = {lease["metadata"]["name"]: lease["spec"]["renewTime"] for lease in items(plane, LEASES_PATH)}
    assert len(renewed) == NODES
    containers = [{"name": "main", "image": "none"}]
    pods = [
        {
            "metadata": {"name": f"pod-{number:04d}"},
            "spec": {"nodeName": f"node-{number % NODES:04d}", "containers": containers},
        }
        for number in range(PODS)
    ]
    create_all(plane, PODS_PATH, pods)
    wait_until_blocking(
        lambda: sum(condition(pod, "Ready") == "True" for pod in items(plane, PODS_PATH)) == PODS,
        kwok.log_tail(),
        seconds=WAIT_SECONDS,
    )
    wait_until_blocking(
        lambda: all(
            lease["spec"]["renewTime"] != renewed[lease["metadata"]["name"]] for lease in items(plane, LEASES_PATH)
        ),
        "not all leases are renewed",
        seconds=WAIT_SECONDS,
    )
    record_property("server", json.dumps(usage(plane.pid)))
    print(f"server with {NODES} nodes and {PODS} pods: {usage(plane.pid)}")
    answer = plane.call("DELETE", PODS_PATH, timeout=WAIT_SECONDS)
    assert answer.status == 200, answer
    wait_until_blocking(lambda: not items(plane, PODS_PATH), kwok.log_tail(), seconds=WAIT_SECONDS)
