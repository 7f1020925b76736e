"""From the Kubeflow operator to this one and back, on a real API server, with the commands of docs/handover.md.

The Kubeflow operator is the real one, 1.9: hack/peer.sh builds it.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from support.cluster.migration import (
    DEPLOYMENTS_PATH,
    OUR_USER,
    ROOT,
    TEAM_NAMESPACE,
    MigratedJob,
    MigrationCluster,
    set_pods,
    set_pods_until,
)
from support.cluster.operators import KUBEFLOW, install_crds, peer_crds, shipped_folder
from support.requirements import skip_or_fail
from support.servers.real import HOST, USERS, RealServer, find_assets
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("operator"), pytest.mark.timeout(300)]

PAGE = (ROOT / "docs" / "handover.md").read_text()
HOOK = "validator.training-operator.kubeflow.org"
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
TF, TORCH, XGB, MPI, PADDLE, JAX = TRAINING_KINDS
METRIC = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
ELASTIC = {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 3, "metrics": [METRIC]}}

# They run, and come to their end after the move.
SERVED = MigratedJob(TF, "served", {"PS": 1, "Worker": 1}, run_policy={"cleanPodPolicy": "Running"})
BRIEF = MigratedJob(
    TORCH,
    "brief",
    {"Master": 1, "Worker": 1},
    "OnFailure",
    {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 1},
)
FAILING = MigratedJob(XGB, "failing", {"Master": 1, "Worker": 1})
LAUNCHED = MigratedJob(MPI, "launched", {"Launcher": 1, "Worker": 2}, run_policy={"cleanPodPolicy": "Running"})
ENDING = (SERVED, BRIEF, FAILING, LAUNCHED)
# They run all the time.
HALF = MigratedJob(TF, "half", {"Chief": 1, "Worker": 2})
SCALED = MigratedJob(TORCH, "scaled", {"Worker": 2}, "OnFailure", spec=ELASTIC)
BOOSTED = MigratedJob(XGB, "boosted", {"Master": 1, "Worker": 1})
WORKED = MigratedJob(MPI, "worked", {"Launcher": 1, "Worker": 2})
AGAIN = MigratedJob(PADDLE, "again", {"Worker": 2}, "ExitCode", {"backoffLimit": 3})
CALM = MigratedJob(JAX, "calm", {"Worker": 2})
STAYING = (HALF, SCALED, BOOSTED, WORKED, AGAIN, CALM)
# They have nothing that runs, or nothing that anybody looks after.
RESTING = MigratedJob(TORCH, "resting", {"Master": 1}, run_policy={"suspend": True})
DONE = MigratedJob(TF, "done", {"PS": 1, "Worker": 1})
# What the Kubeflow operator leaves undone: D3, D4, D25, and a replica type that there is not.
OVERDUE = MigratedJob(PADDLE, "overdue", {"Worker": 1}, run_policy={"activeDeadlineSeconds": 20})
FORGOTTEN = MigratedJob(TORCH, "forgotten", {"Master": 1}, "ExitCode", {"ttlSecondsAfterFinished": 1})
OUTLIVED = MigratedJob(TORCH, "outlived", {"Worker": 1}, spec=ELASTIC)
STRANGE = MigratedJob(TF, "strange", {"Worker": 1, "Helper": 1})


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[MigrationCluster]:
    """With the definitions of the Kubeflow operator and its Deployment."""
    assets = find_assets()
    if assets is None or not (assets / "kubectl").exists() or KUBEFLOW.missing():
        skip_or_fail("the Kubeflow operator or real Kubernetes is missing: run hack/kubernetes.sh and hack/peer.sh")
    with RealServer(directory=tmp_path / "server", users={**USERS, OUR_USER: ()}) as server:
        found = MigrationCluster(server, assets, tmp_path)
        for name in (TEAM_NAMESPACE, "kubeflow"):
            found.create("/api/v1/namespaces", {"metadata": {"name": name}})
        install_crds(server, peer_crds())
        labels = {"control-plane": "kubeflow-training-operator"}
        containers = [{"name": "training-operator", "image": "kubeflow/training-operator:v1-855e096"}]
        template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        body = {"metadata": {"name": "training-operator"}, "spec": spec}
        found.create(f"{DEPLOYMENTS_PATH}/kubeflow/deployments", body)
        with found.recorder.recording():
            yield found


def commands(heading: str) -> list[str]:
    """What docs/handover.md says to type, below a heading."""
    section = re.split(r"^##+ ", PAGE.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(r"^\$ (.+)$", section, re.MULTILINE)


def test_there_and_back(cluster: MigrationCluster) -> None:
    with cluster.operators.run_kubeflow():
        begin(cluster)
        before, access = cluster.owned_uids(), cluster.launcher_access(WORKED)
        cluster.recorder.take_events()
        # Its rights alone do no harm.
        cluster.run_shell(
            "kubectl apply -f manifests/base/namespace.yaml -f manifests/base/serviceaccounts.yaml -f manifests/base/operator-rbac.yaml"
        )
        assert "deployment kubeflow/training-operator with image" in cluster.operators.refusal_line()
    move(cluster)
    with cluster.operators.run_gangline():
        for job in (*ENDING, *STAYING, DONE):
            wait_until_blocking(partial(cluster.is_adopted, job), f"nobody looks after {job.name}")
        tidied(cluster, before)
        carry_on(cluster)
        # Its launcher has a kubectl, and no agent.
        assert cluster.launcher_access(WORKED) == access
        assert "--take-over" in cluster.operators.deployed_arguments()
        cluster.run_shell("kubectl apply --server-side --force-conflicts -k manifests/overlays/mpi")
        assert "--take-over" not in cluster.operators.deployed_arguments()
        before, _ = cluster.owned_uids(), cluster.recorder.take_events()
    move_back(cluster)
    with cluster.operators.run_kubeflow():
        others = [job._replace(name=f"new-{job.kind.plural}", run_policy={}, spec={}) for job in STAYING]
        # One thread per kind: it has seen to the old jobs of a kind when a new one has its pods.
        cluster.submit(*others)
        after = {name: uid for name, uid in cluster.owned_uids().items() if "/new-" not in name}
        # It makes that one again, though the job is over (D25).
        assert after.pop("horizontalpodautoscalers/outlived", "")
        assert after == before
        assert {line for line in cluster.recorder.take_events() if " new-" not in line} == set()
        for job in STAYING:
            set_pods_until(cluster, job, "Succeeded", "Succeeded")


def begin(cluster: MigrationCluster) -> None:
    """Jobs of every kind are running, resting and done."""
    cluster.submit(OVERDUE, *ENDING, *STAYING, RESTING, DONE, FORGOTTEN, OUTLIVED, STRANGE)
    for job in (OVERDUE, *ENDING, *STAYING):
        set_pods_until(cluster, job, "Running", "Running")
    set_pods(cluster, AGAIN, {"restarts": 2}, "worker-0")
    set_pods_until(cluster, DONE, "Succeeded", "Succeeded", "worker-0")
    set_pods_until(cluster, OUTLIVED, "Succeeded", "Succeeded")
    set_pods_until(cluster, FORGOTTEN, {"exit": 1}, "Failed")
    set_pods_until(cluster, RESTING, "Running", "Suspended")


def move(cluster: MigrationCluster) -> None:
    stop, unhook, *others = commands("By hand")
    cluster.run_shell(stop)
    hang_up(cluster)
    assert cluster.server.call("POST", f"{CALM.collection_path}?dryRun=All", CALM.body).status >= 400
    cluster.run_shell(unhook)
    for command in others:
        if "--take-over" in command:
            line = cluster.operators.refusal_line()
            assert re.search(r"training-operator wrote the status of \w+ team/[\w-]+ \d+ s ago", line), line
            assert line.endswith("or start this one with --take-over")
        cluster.run_shell(command)


def hang_up(cluster: MigrationCluster) -> None:
    """Nobody answers the webhook any more, which here was never registered: nobody would have called it."""
    webhook = {
        "name": "validator.jaxjob.training-operator.kubeflow.org",
        "clientConfig": {"url": f"https://{HOST}:1/validate"},
        "rules": [
            {
                "apiGroups": ["kubeflow.org"],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": [JAX.plural],
            }
        ],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    path = f"{HOOKS}/{HOOK}"
    body = {"webhooks": [webhook]}
    assert cluster.server.call("PATCH", path, body, content_type="application/merge-patch+json").status == 200


def tidied(cluster: MigrationCluster, before: dict[str, str]) -> None:
    """What was left undone is done; all else is as it was."""
    wait_until_blocking(lambda: cluster.is_deleted(FORGOTTEN), "the job whose end was forgotten stays")
    wait_until_blocking(
        lambda: "longer than specified deadline" in cluster.condition_message(OVERDUE, "Failed"), "overdue"
    )
    wait_until_blocking(lambda: "Helper" in cluster.condition_message(STRANGE, "Failed"), "strange")
    over = ("overdue-", "outlived")
    kept = {name: uid for name, uid in before.items() if not name.partition("/")[2].startswith(over)}
    wait_until_blocking(lambda: not cluster.pods(OVERDUE), "pods stay")
    wait_until_blocking(lambda: "horizontalpodautoscalers/outlived" not in cluster.owned_uids(), "the autoscaler stays")
    found = cluster.owned_uids()
    assert {name: found.get(name) for name in kept} == kept
    assert found.keys() <= before.keys()
    assert [line for line in cluster.recorder.take_events() if not line.split(" ")[1].startswith(over)] == []
    assert cluster.conditions(RESTING) == {"Created": "True", "Suspended": "True"}
    assert "ps-0" in cluster.pods(DONE)


def carry_on(cluster: MigrationCluster) -> None:
    """Jobs come to their ends, policies apply, what fails is restarted, what rests is resumed."""
    set_pods_until(cluster, SERVED, "Succeeded", "Succeeded", "worker-0")
    wait_until_blocking(lambda: cluster.pods(SERVED).keys() == {"worker-0"}, "the parameter server stays")
    set_pods(cluster, BRIEF, "Succeeded", "master-0")
    wait_until_blocking(lambda: not cluster.pods(BRIEF) and cluster.is_deleted(BRIEF), "the job stays")
    set_pods_until(cluster, FAILING, {"exit": 1}, "Failed", "worker-0")
    assert cluster.pods(FAILING).keys() == {"master-0", "worker-0"}
    set_pods_until(cluster, LAUNCHED, "Succeeded", "Succeeded", "launcher")
    wait_until_blocking(lambda: cluster.pods(LAUNCHED).keys() == {"launcher"}, "workers stay")
    first = cluster.pods(AGAIN)
    set_pods(cluster, AGAIN, {"exit": 137}, "worker-1")
    wait_until_blocking(lambda: cluster.status(AGAIN).get("restarts") == 3, "two in place and this one")
    wait_until_blocking(lambda: _uid(cluster.pods(AGAIN), "worker-1") not in ("", _uid(first, "worker-1")), "no pod")
    assert _uid(cluster.pods(AGAIN), "worker-0") == _uid(first, "worker-0")
    set_pods_until(cluster, AGAIN, "Running", "Running", "worker-1")
    set_pods(cluster, HALF, "Succeeded", "worker-1")
    wait_until_blocking(
        lambda: cluster.status(HALF)["replicaStatuses"]["Worker"].get("succeeded") == 1, "it is not counted"
    )


def _uid(pods: Mapping[str, Any], name: str) -> str:
    return str(pods[name]["metadata"]["uid"]) if name in pods else ""


def move_back(cluster: MigrationCluster) -> None:
    stop, start = commands("Back by hand")
    cluster.run_shell(stop)
    # The overlay of their repository, of which there is nothing here but the definitions.
    theirs = re.sub(r'-k "[^"]+"', f"-f {shipped_folder() / 'crds'}", start)
    assert theirs != start
    cluster.run_shell(theirs)
