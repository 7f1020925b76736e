"""Twenty faults on real nodes: each is recorded from the cluster, and its bundle plays here as it was there."""

import base64
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from gangline.api.drill import FaultKind
from support.cases.replay_faults import CLUSTER_CASES, SECRET_NAME, SECRETS, ReplayCase
from support.nodes.inside import NodeCluster
from support.nodes.jobs import IMAGE, pods_of, shell_job
from support.nodes.node import BUSYBOX
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1800)]

SHIPPED = """
step=0
while [ $step -lt 1000 ]; do
  step=$((step + 1))
  echo '{"progress": {"step": '$step'}}'
  [ $step != 8 ] || [ "$RANK" != 1 ] || { echo 'the weights are broken' >&2; exit 7; }
  sleep 0.1
done
"""
NEEDED = 18
AT_ONCE = 3


class Played(NamedTuple):
    """What was recorded, and what the replay printed."""

    file: Path
    recorded: str
    replayed: str

    @property
    def is_same(self) -> bool:
        return any(line.startswith("replayed:") and line.endswith("the same") for line in self.replayed.splitlines())


def job_body(case: ReplayCase) -> Any:
    body = msgspec.json.decode(msgspec.json.encode(case.body(["python", "-c", case.program])))
    for spec in body["spec"]["pytorchReplicaSpecs"].values():
        pod = spec["template"]["spec"]
        pod["terminationGracePeriodSeconds"] = 1
        for container in pod["containers"]:
            container |= {"image": IMAGE, "imagePullPolicy": "Never"}
    return body


def play(cluster: NodeCluster, namespace: str, case: ReplayCase, folder: Path) -> Played:
    """Create the job, make its fault, record it, and play the bundle."""
    cluster.apply(job_body(case), namespace=namespace)
    if case.fault is FaultKind.KILL:
        cluster.wait(f"pytorchjob/{case.name}", "Running", namespace)
        wait_until_blocking(lambda: all_run(cluster, namespace, case.name), seconds=120)
        flags = ["--kill", case.replica, "--yes", "--namespace", namespace, "--context", "nodes"]
        flags += ["--debug-image", BUSYBOX]
        cluster.gangline("drill", case.name, *flags)
    cluster.wait(f"pytorchjob/{case.name}", "Failed", namespace)
    file = folder / f"{case.name}.bundle"
    words = ["record", case.name, "--context", "nodes", "--namespace", namespace, "--output", str(file)]
    recorded = cluster.gangline(*words)
    assert recorded.code == 0, recorded
    played = cluster.gangline("run", str(file), "--timeout", "120s", "--no-dashboard", folder=folder)
    return Played(file, recorded.output, played.output + played.errors)


def all_run(cluster: NodeCluster, namespace: str, name: str, *, count: int = 3) -> bool:
    pods = pods_of(cluster, namespace, name).values()
    return len(pods) == count and all(pod["status"].get("phase") == "Running" for pod in pods)


def test_twenty_faults_of_a_cluster_play_here_as_they_were(
    installed: NodeCluster, namespace: str, tmp_path: Path
) -> None:
    secret = {"metadata": {"name": SECRET_NAME}, "data": {"key": base64.b64encode(SECRETS["secret"].encode()).decode()}}
    installed.apply({"apiVersion": "v1", "kind": "Secret", **secret}, namespace=namespace)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        played = list(pool.map(lambda case: play(installed, namespace, case, tmp_path), CLUSTER_CASES))
    assert len(played) == 20
    for one in played:
        with zipfile.ZipFile(one.file) as archive:
            content = b"".join(archive.read(name) for name in archive.namelist())
        for value in SECRETS.values():
            assert value.encode() not in content
            assert base64.b64encode(value.encode()) not in content
    wrong = [
        case.name for case, one in zip(CLUSTER_CASES, played, strict=True) if f"{case.first} (rank" not in one.recorded
    ]
    assert not wrong
    others = [f"{one.recorded}\n{one.replayed[-2000:]}" for one in played if not one.is_same]
    assert len(played) - len(others) >= NEEDED, "\n\n".join(others)


def test_a_drill_in_a_cluster_is_shown_first_and_done_with_yes(installed: NodeCluster, namespace: str) -> None:
    case = next(case for case in CLUSTER_CASES if case.name == "killed-silent")
    body = job_body(case)
    for spec in body["spec"]["pytorchReplicaSpecs"].values():
        spec["restartPolicy"] = "OnFailure"
        spec["template"]["spec"]["containers"][0].pop("env")
    installed.apply(body, namespace=namespace)
    wait_until_blocking(lambda: all_run(installed, namespace, case.name), seconds=120)
    flags = ["--namespace", namespace, "--context", "nodes"]
    shown = installed.gangline("drill", case.name, "--kill", "worker-1", *flags)
    assert shown.code == 0, shown
    assert "would send SIGKILL" in shown.errors
    assert f"needs: create pods in namespace {namespace}" in shown.errors
    assert all_run(installed, namespace, case.name)
    done = installed.gangline("drill", case.name, "--kill", "worker-1", "--yes", *flags, "--debug-image", BUSYBOX)
    assert done.code == 0, done
    assert "worker-1 killed (" in done.output
    assert "training survived" in done.output
    evicted = installed.gangline("drill", case.name, "--evict", "worker-0", "--yes", *flags)
    assert evicted.code == 0, evicted
    refused = installed.gangline("drill", case.name, "--bad-node", *flags)
    assert refused.code == 1
    assert "--bad-node: would fail pods of everybody" in refused.errors


def test_code_that_was_shipped_is_in_the_bundle_and_runs_here(
    installed: NodeCluster, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.sh").write_text(SHIPPED)
    flags = ["--context", "nodes", "--namespace", namespace]
    words = ["--image", BUSYBOX, "--nproc", "3", "--", "sh", "train.sh"]
    done = installed.gangline("run", *flags, *words, folder=tmp_path / "code")
    assert done.code == 100, done
    recorded = installed.gangline("record", "train", *flags, "--output", "train.bundle", folder=tmp_path)
    assert recorded.code == 0, recorded
    assert "1 files of code" in recorded.output
    with zipfile.ZipFile(tmp_path / "train.bundle") as archive:
        assert archive.read("code/train.sh").decode() == SHIPPED
    played = installed.gangline("run", "train.bundle", "--timeout", "120s", "--no-dashboard", folder=tmp_path)
    assert "stand-in" not in played.errors
    assert "did not fail by itself" not in played.output
    assert "fault:    worker-0: exit 7 at step 8" in recorded.output
    assert "replayed: worker-0 (rank 1) first, why: exit-code, job Failed · the same" in played.output, played


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (("--hang", "worker-1", "--for", "4s"), "worker-1 stood still (for 4 s)"),
        (("--slow", "500ms", "--replica", "worker-1", "--for", "4s"), "worker-1 slowed down (for 4 s)"),
        (("--node-lost", "worker-1", "--for", "4s"), "worker-1 lost with its node"),
        (("--oom", "worker-1"), ""),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_each_fault_of_a_drill_in_a_cluster(
    installed: NodeCluster, namespace: str, fault: tuple[str, ...], words: str
) -> None:
    script = "i=0; while :; do i=$((i + 1)); echo $i; sleep 0.2; done"
    job = shell_job("drilled", script, workers=2, resources={"limits": {"memory": "64Mi"}})
    job["spec"]["tfReplicaSpecs"]["Worker"]["restartPolicy"] = "OnFailure"
    installed.apply(job, namespace=namespace)
    wait_until_blocking(lambda: all_run(installed, namespace, "drilled", count=2), seconds=120)
    flags = ["--namespace", namespace, "--context", "nodes", "--yes", "--hold", "2s", "--timeout", "60s"]
    done = installed.gangline("drill", "drilled", *fault, *flags)
    # With cgroup v1 the kernel may end the command that takes the memory, and then nothing happens to the training.
    assert done.code in ((0, 101) if "--oom" in fault else (0,)), done
    assert words in done.output
    nodes = installed.objects("nodes", "")
    assert not any(node["spec"].get("unschedulable") for node in nodes)
    left = [pod["metadata"]["name"] for pod in installed.objects("pods", namespace)]
    wait_until_blocking(lambda: not drill_pods(installed, namespace), f"left: {left}", seconds=60)


def drill_pods(cluster: NodeCluster, namespace: str) -> list[str]:
    pods = cluster.objects("pods", namespace)
    return [name for pod in pods if (name := pod["metadata"]["name"]).startswith("drill-")]
