"""`gangline handover` from the real Kubeflow operator to ours and back, with 50 running jobs, on a real API server.

What happened to pods is counted from the server's audit log. hack/peer.sh builds the Kubeflow operator.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from support.cluster.migration import (
    DEPLOYMENTS_PATH,
    OUR_USER,
    TEAM_NAMESPACE,
    MigratedJob,
    MigrationCluster,
    set_pods,
    set_pods_until,
)
from support.cluster.operator_pods import OperatorKubelet, OperatorStarter, own_environment
from support.cluster.operators import CRDS_PATH, KUBEFLOW, install_crds, peer_crds
from support.requirements import skip_or_fail
from support.servers.real import USERS, RealServer, find_assets
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("operator"), pytest.mark.timeout(600)]

TF, TORCH, XGB, MPI, PADDLE, JAX = TRAINING_KINDS
TEAMS = {
    TF.kind: {"Chief": 1, "Worker": 1},
    TORCH.kind: {"Master": 1, "Worker": 1},
    XGB.kind: {"Master": 1, "Worker": 1},
    MPI.kind: {"Launcher": 1, "Worker": 1},
    PADDLE.kind: {"Worker": 2},
    JAX.kind: {"Worker": 2},
}
JOBS = [MigratedJob(kind, f"{kind.plural}-{n}", TEAMS[kind.kind]) for n in range(9) for kind in TRAINING_KINDS][:50]
DEADLINE = 20  # seconds
# What the Kubeflow operator leaves undone: nothing happens to a job that is past its deadline.
OVERDUE = MigratedJob(PADDLE, "overdue", {"Worker": 1}, run_policy={"activeDeadlineSeconds": DEADLINE})
HOOK_PATH = (
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/validator.training-operator.kubeflow.org"
)
DEPLOYMENT_PATH = f"{DEPLOYMENTS_PATH}/kubeflow/deployments/training-operator"
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "verbs": ["create", "delete", "deletecollection"]}],
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[MigrationCluster]:
    """With the Kubeflow operator as a Deployment whose pods run beside the server, and an audit log."""
    assets = find_assets()
    if assets is None or not (assets / "kube-controller-manager").exists() or KUBEFLOW.missing():
        skip_or_fail("the Kubeflow operator or real Kubernetes is missing: run hack/kubernetes.sh and hack/peer.sh")
    (tmp_path / "policy.yaml").write_text(json.dumps(POLICY))
    flags = [f"--audit-policy-file={tmp_path / 'policy.yaml'}", f"--audit-log-path={tmp_path / 'audit.log'}"]
    users = {**USERS, OUR_USER: ()}
    with RealServer(directory=tmp_path / "server", users=users, flags=flags, controller_manager=True) as server:
        found = MigrationCluster(server, assets, tmp_path)
        for name in (TEAM_NAMESPACE, "kubeflow"):
            found.create("/api/v1/namespaces", {"metadata": {"name": name}})
        install_crds(server, peer_crds())
        labels = {"control-plane": "kubeflow-training-operator"}
        containers = [{"name": "training-operator", "image": "kubeflow/training-operator:v1-855e096"}]
        template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        found.create(
            f"{DEPLOYMENTS_PATH}/kubeflow/deployments", {"metadata": {"name": "training-operator"}, "spec": spec}
        )
        with OperatorKubelet(server, OperatorStarter(server, tmp_path)).running():
            wait_until_blocking(lambda: ready_replicas(found, DEPLOYMENT_PATH) == 1, "the Kubeflow operator")
            yield found


def ready_replicas(cluster: MigrationCluster, path: str) -> int:
    status = cluster.server.call("GET", path).body.get("status") or {}
    return int(status.get("readyReplicas") or 0)


def gangline(cluster: MigrationCluster, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "gangline", *words],
        env=own_environment(cluster.server),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def audited(folder: Path, verb: str, resource: str) -> Counter[str]:
    """How often objects of the team were created or deleted with success, by name, from the audit log."""
    counts: Counter[str] = Counter()
    for line in (folder / "audit.log").read_text().splitlines():
        event = json.loads(line)
        target = event.get("objectRef") or {}
        if (target.get("resource"), event["verb"], target.get("namespace")) != (resource, verb, TEAM_NAMESPACE):
            continue
        if event["responseStatus"]["code"] < 300 and not target.get("subresource"):
            counts[target.get("name", "")] += 1
    return counts


def test_fifty_running_jobs_move_there_and_back_and_no_pod_is_restarted(
    cluster: MigrationCluster, tmp_path: Path
) -> None:
    cluster.submit(OVERDUE)
    set_pods_until(cluster, OVERDUE, "Running", "Running")
    cluster.submit(*JOBS)
    for job in JOBS:
        set_pods(cluster, job, "Running")
    for job in JOBS:
        wait_until_blocking(partial(is_condition, cluster, job, "Running"), f"{job.name} does not run")
    wait_until_blocking(partial(is_past_deadline, cluster, OVERDUE), "its deadline does not pass")
    crds, hook = crd_specs(cluster), cluster.server.call("GET", HOOK_PATH).body
    before = cluster.owned_uids()

    rehearsed = gangline(cluster, "handover")
    assert "stop   deployment kubeflow/training-operator (1 replicas)" in rehearsed
    assert "remove validatingwebhookconfiguration/validator.training-operator.kubeflow.org" in rehearsed
    assert "jobs   51 with 101 pods; 50 go on as they are" in rehearsed
    assert "PaddleJob team/overdue becomes Failed: " in rehearsed
    assert "with rbac.mpiJobs=true, as these jobs need it" in rehearsed
    assert cluster.server.call("GET", "/api/v1/namespaces/gangline").status == 404
    assert ready_replicas(cluster, DEPLOYMENT_PATH) == 1

    moved = gangline(cluster, "handover", "--yes", "--set", "replicaCount=2")
    assert "gangline 0.1.0 serves 51 jobs" in moved
    assert cluster.server.call("GET", HOOK_PATH).status == 404
    assert cluster.server.call("GET", DEPLOYMENT_PATH).body["spec"]["replicas"] == 0
    assert "--take-over" not in cluster.operators.deployed_arguments()
    for job in JOBS:
        wait_until_blocking(partial(cluster.is_adopted, job), f"nobody looks after {job.name}")
    wait_until_blocking(partial(is_condition, cluster, OVERDUE, "Failed"), "the overdue job goes on")
    assert_same_objects(cluster, before)
    new = MigratedJob(JAX, "new-here", TEAMS[JAX.kind])
    cluster.submit(new)
    set_pods_until(cluster, new, "Running", "Running")

    gangline(cluster, "handover", "--back", "--yes")
    assert crd_specs(cluster) == crds
    assert cluster.server.call("GET", HOOK_PATH).body.get("webhooks") == hook.get("webhooks")
    assert ready_replicas(cluster, DEPLOYMENT_PATH) == 1
    later = MigratedJob(TORCH, "new-there", TEAMS[TORCH.kind])
    cluster.submit(later)
    assert_same_objects(cluster, before)
    for job in JOBS[:6]:
        set_pods_until(cluster, job, "Succeeded", "Succeeded")

    created, deleted = audited(tmp_path, "create", "pods"), audited(tmp_path, "delete", "pods")
    names = {f"pods/{name}" for name in created if name}
    assert {name for name in before if name.startswith("pods/")} <= names
    assert {name: count for name, count in created.items() if name and count > 1} == {}
    assert {name for name in deleted if not name.startswith("overdue-")} == set()
    for kind in TRAINING_KINDS:
        assert audited(tmp_path, "delete", kind.plural) == {}
    assert "nothing was changed" in gangline(cluster, "handover")
    assert "kept: 8 definitions (CRDs) and 53 jobs" in gangline(cluster, "uninstall")
    assert cluster.server.call("GET", DEPLOYMENT_PATH).body["spec"]["replicas"] == 1


def is_condition(cluster: MigrationCluster, job: MigratedJob, condition: str) -> bool:
    return cluster.conditions(job).get(condition) == "True"


def is_past_deadline(cluster: MigrationCluster, job: MigratedJob) -> bool:
    began = datetime.fromisoformat(cluster.status(job)["startTime"])
    return datetime.now(UTC) - began > timedelta(seconds=DEADLINE)


def crd_specs(cluster: MigrationCluster) -> dict[str, Any]:
    """What the CRDs of jobs say."""
    names = [f"{kind.plural}.kubeflow.org" for kind in TRAINING_KINDS]
    return {name: cluster.server.call("GET", f"{CRDS_PATH}/{name}").body["spec"] for name in names}


def assert_same_objects(cluster: MigrationCluster, before: dict[str, str]) -> None:
    found = cluster.owned_uids()
    kept = {name: uid for name, uid in before.items() if "overdue" not in name}
    assert {name: found.get(name) for name in kept} == kept
