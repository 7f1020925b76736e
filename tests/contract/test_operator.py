"""`gangline operator` as a process beside a real kube-apiserver: no kubelet, so tests say what becomes of pods.

Plain blocking code: the operator is another process, and all that is awaited is polled for.
"""

import json
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from support.cluster.installation import installation, installed_rights
from support.cluster.operator_process import (
    APIS,
    TEAMS,
    OperatorProcess,
    apply_object,
    bring_job_to,
    create_object,
    get_page,
    job_conditions,
    job_pods,
    pod_uids,
    running_operator,
    set_phase,
    submit_job,
)
from support.cluster.operators import GANGLINE_OPERATOR, install_crds
from support.requirements import skip_or_fail
from support.servers.real import USERS, RealServer, find_assets
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("operator")]

CLUSTER = "system:serviceaccount:gangline:gangline-operator"
TEAM = "system:serviceaccount:team-a:gangline-operator"
LEASE = "1ca428e5.training-operator.kubeflow.org"
# In a pod its own namespace is the default.
ELECTION = ("--leader-elect", "--leader-election-namespace=gangline")
PATIENCE = 60.0
TFJOB = TRAINING_KINDS[0]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """With our definitions and rights, and the service accounts of the manifests as users."""
    if find_assets() is None:
        skip_or_fail("real Kubernetes not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")
    users = {**USERS, CLUSTER: (), TEAM: (), "gangline-edit": (), "gangline-view": ()}
    with RealServer(directory=tmp_path_factory.mktemp("server"), users=users) as running:
        install_crds(running, GANGLINE_OPERATOR.crds())
        for name in ("team-a", "team-b"):
            create_object(running, "/api/v1/namespaces", {"metadata": {"name": name}})
        for document in (
            *installed_rights({"namespace": {"create": True}, "rbac": {"mpiJobs": True}, "crds": {"byOperator": True}}),
            *installed_rights({"watchNamespaces": ["team-a", "team-b"], "rbac": {"mpiJobs": True}}, "team-a"),
        ):
            apply_object(running, document)
        yield running


@pytest.fixture
def namespace(server: RealServer) -> str:
    name = f"test-{uuid.uuid4().hex[:12]}"
    create_object(server, "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


def test_the_server_takes_the_deployment_as_it_is_written(server: RealServer) -> None:
    for document in installation({}):
        apply_object(server, document, "&dryRun=All")


# Every kind, with no more rights than the manifest gives


def test_with_the_rights_of_the_manifest_it_runs_every_kind(server: RealServer, namespace: str, tmp_path: Path) -> None:
    with running_operator(server, tmp_path, *ELECTION, context=CLUSTER) as operator:
        for kind in TRAINING_KINDS:
            submit_job(server, namespace, kind, kind.plural)
        for kind in TRAINING_KINDS:
            bring_job_to(server, namespace, kind, kind.plural, "Running")
        for kind in TRAINING_KINDS:
            bring_job_to(server, namespace, kind, kind.plural, "Succeeded")
        assert get_page(operator.probes, "/healthz") == (200, "ok")
        for kind in TRAINING_KINDS:
            framework = {"job_namespace": namespace, "framework": kind.container}
            operator.counts("training_operator_jobs_successful_total", 1, **framework)
            assert operator.counted("training_operator_jobs_created_total", **framework) == 1
            assert operator.counted("training_operator_jobs_failed_total", **framework) == 0
            assert operator.counted("training_operator_pods_created_total", **framework) == sum(
                TEAMS[kind.kind].values()
            )
        wait_until_blocking(
            lambda: server.call("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events").body["items"],
            "no event was written",
        )
        libraries = Path(f"/proc/{operator.process.pid}/maps").read_text()
        assert "aiohttp" in libraries
        assert "numpy" not in libraries, "only the scheduler counts with numpy; here it costs 30 MB of memory"
        assert operator.ended(signal.SIGTERM) == 0
        assert [line for line in operator.lines() if "forbidden" in json.dumps(line)] == []


def test_with_the_rights_of_the_manifest_jobs_also_scale_restart_and_go(
    server: RealServer, namespace: str, tmp_path: Path
) -> None:
    scalers = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    }
    elastic = {"minReplicas": 1, "maxReplicas": 3, "metrics": [metric]}
    with running_operator(server, tmp_path, context=CLUSTER) as operator:
        submit_job(server, namespace, TRAINING_KINDS[1], "elastic", spec={"elasticPolicy": elastic})
        wait_until_blocking(lambda: server.call("GET", scalers).body["items"], "no autoscaler")
        bring_job_to(server, namespace, TRAINING_KINDS[1], "elastic", "Succeeded")
        wait_until_blocking(lambda: not server.call("GET", scalers).body["items"], "the autoscaler stays")
        submit_job(server, namespace, TFJOB, "brief", cleanPodPolicy="All", ttlSecondsAfterFinished=0)
        bring_job_to(server, namespace, TFJOB, "brief", "Running")
        for pod in job_pods(server, namespace, "brief"):
            set_phase(server, pod, "Succeeded")
        path = f"{APIS}/namespaces/{namespace}/tfjobs/brief"
        wait_until_blocking(lambda: server.call("GET", path).status == 404, "the job stays")
        submit_job(server, namespace, TFJOB, "again", restart="ExitCode")
        bring_job_to(server, namespace, TFJOB, "again", "Running")
        first, _ = job_pods(server, namespace, "again")
        set_phase(server, first, "Failed", exit_code=137)
        wait_until_blocking(
            lambda: (
                first["metadata"]["uid"] not in pod_uids(server, namespace, "again")
                and len(pod_uids(server, namespace, "again")) == 2
            ),
            "no new pod",
        )
        bring_job_to(server, namespace, TFJOB, "again", "Succeeded")
        where = {"job_namespace": namespace, "framework": "tensorflow"}
        operator.counts("training_operator_jobs_deleted_total", 1, **where)
        operator.counts("training_operator_jobs_restarted_total", 1, **where)
        operator.counts("training_operator_pods_created_total", 5, **where)
        assert operator.ended(signal.SIGTERM) == 0
        assert [line for line in operator.lines() if "forbidden" in json.dumps(line)] == []


def test_a_new_round_waits_for_a_pod_that_takes_its_time_to_end(
    server: RealServer, namespace: str, tmp_path: Path
) -> None:
    job_path, pod_path = f"{APIS}/namespaces/{namespace}/tfjobs/team", f"/api/v1/namespaces/{namespace}/pods"
    with running_operator(server, tmp_path, context=CLUSTER):
        submit_job(server, namespace, TFJOB, "team", restart="ExitCode", restartScope="Job")
        wait_until_blocking(lambda: len(job_pods(server, namespace, "team")) == 2, "no pods")
        for pod in job_pods(server, namespace, "team"):
            # Only a pod with a node has a grace period.
            binding = {"target": {"kind": "Node", "name": "node-1"}, "metadata": {"name": pod["metadata"]["name"]}}
            create_object(server, f"{pod_path}/{pod['metadata']['name']}/binding", binding)
        bring_job_to(server, namespace, TFJOB, "team", "Running")
        killed, slow = job_pods(server, namespace, "team")
        set_phase(server, killed, "Failed", exit_code=137)

        def only_slow_is_left() -> bool:
            left = job_pods(server, namespace, "team")
            return [pod["metadata"]["uid"] for pod in left if "deletionTimestamp" in pod["metadata"]] == [
                slow["metadata"]["uid"]
            ]

        wait_until_blocking(only_slow_is_left, "the team is not deleted")
        edit = {"spec": {"runPolicy": {"backoffLimit": 9}}}
        answer = server.call("PATCH", job_path, edit, content_type="application/merge-patch+json")
        generation = answer.body["metadata"]["generation"]
        wait_until_blocking(
            lambda: server.call("GET", job_path).body["status"].get("observedGeneration") == generation,
            "the operator does not look at the job",
        )
        assert pod_uids(server, namespace, "team") == {slow["metadata"]["uid"]}
        name = slow["metadata"]["name"]
        assert server.call("DELETE", f"{pod_path}/{name}?gracePeriodSeconds=0").status == 200
        wait_until_blocking(lambda: len(job_pods(server, namespace, "team")) == 2, "no new round")
        annotations = [pod["metadata"]["annotations"] for pod in job_pods(server, namespace, "team")]
        assert [found["training.gangline.dev/round"] for found in annotations] == ["1", "1"]


def test_with_the_rights_of_the_manifest_gangs_have_their_groups(
    server: RealServer, namespace: str, tmp_path: Path
) -> None:
    groups = f"/apis/scheduling.gangline.dev/v1alpha1/namespaces/{namespace}/podgroups"
    kind = TRAINING_KINDS[1]
    with running_operator(server, tmp_path, "--gang-scheduler-name=gangline", context=CLUSTER) as operator:
        submit_job(server, namespace, kind, "job")
        wait_until_blocking(
            lambda: len(job_pods(server, namespace, "job")) == sum(TEAMS[kind.kind].values()), "no pods"
        )
        (group,) = server.call("GET", groups).body["items"]
        assert group["spec"]["minMember"] == sum(TEAMS[kind.kind].values())
        assert {pod["spec"]["schedulerName"] for pod in job_pods(server, namespace, "job")} == {"gangline"}
        bring_job_to(server, namespace, kind, "job", "Succeeded")
        wait_until_blocking(lambda: server.call("GET", groups).body["items"] == [], "the group stays")
        assert [line for line in operator.lines() if "forbidden" in json.dumps(line)] == []


@pytest.mark.parametrize("plural", [kind.plural for kind in TRAINING_KINDS])
def test_users_may_edit_or_only_view(server: RealServer, namespace: str, plural: str) -> None:
    for role in ("gangline-edit", "gangline-view"):
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": role}
        body = {"metadata": {"name": role}, "roleRef": reference, "subjects": [subject]}
        create_object(server, f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", body)
    path = f"{APIS}/namespaces/{namespace}/{plural}"

    def status(method: str, token: str) -> int:
        return server.call(method, path, {} if method == "POST" else None, token=f"{token}-token").status

    assert [status("GET", who) for who in ("nobody", "gangline-view", "gangline-edit")] == [403, 200, 200]
    assert status("POST", "gangline-view") == 403
    # Allowed; but nothing is no job.
    assert status("POST", "gangline-edit") in (400, 422)


def test_failures_and_deletions_are_counted_once(server: RealServer, namespace: str, tmp_path: Path) -> None:
    where = {"job_namespace": namespace, "framework": "tensorflow"}
    with running_operator(server, tmp_path, f"--namespace={namespace}") as operator:
        submit_job(server, namespace, TFJOB, "fails")
        bring_job_to(server, namespace, TFJOB, "fails", "Running")
        bring_job_to(server, namespace, TFJOB, "fails", "Failed")
        submit_job(server, namespace, TFJOB, "late", activeDeadlineSeconds=1)
        wait_until_blocking(
            lambda: job_conditions(server, namespace, TFJOB, "late").get("Failed") == "True", "no deadline"
        )
        server.call("DELETE", f"{APIS}/namespaces/{namespace}/tfjobs/fails")
        operator.counts("training_operator_jobs_deleted_total", 1, **where)
        operator.counts("training_operator_jobs_created_total", 2, **where)
        operator.counts("training_operator_jobs_failed_total", 2, **where)
        operator.process.kill()
    with running_operator(server, tmp_path, f"--namespace={namespace}") as operator:
        submit_job(server, namespace, TFJOB, "next")
        bring_job_to(server, namespace, TFJOB, "next", "Running")
        # Only the new one: "late" was counted in its life already.
        assert operator.counted("training_operator_jobs_created_total", **where) == 1
        assert operator.counted("training_operator_jobs_failed_total", **where) == 0


# Crashes and elections


def test_killed_in_the_middle_it_goes_on_where_it_was(server: RealServer, namespace: str, tmp_path: Path) -> None:
    with running_operator(server, tmp_path, f"--namespace={namespace}") as operator:
        submit_job(server, namespace, TFJOB, "job")
        bring_job_to(server, namespace, TFJOB, "job", "Running")
        before = pod_uids(server, namespace, "job")
        assert operator.ended(signal.SIGKILL) == -signal.SIGKILL
    for pod in job_pods(server, namespace, "job"):
        set_phase(server, pod, "Succeeded")
    assert "Succeeded" not in job_conditions(server, namespace, TFJOB, "job")
    with running_operator(server, tmp_path, f"--namespace={namespace}"):
        bring_job_to(server, namespace, TFJOB, "job", "Succeeded")
    assert pod_uids(server, namespace, "job") <= before


def test_of_two_with_an_election_one_acts_and_the_other_follows(
    server: RealServer, namespace: str, tmp_path: Path
) -> None:
    flags = (f"--namespace={namespace}", "--leader-elect=true", "--leader-election-id=ours")
    with running_operator(server, tmp_path, *flags) as one, running_operator(server, tmp_path, *flags) as other:

        def leads(operator: OperatorProcess) -> bool:
            return operator.counted("leader_election_master_status", name="ours") == 1

        wait_until_blocking(lambda: leads(one) or leads(other), "nobody leads")
        assert leads(one) != leads(other)
        first, second = (one, other) if leads(one) else (other, one)
        submit_job(server, namespace, TFJOB, "job")
        bring_job_to(server, namespace, TFJOB, "job", "Running")
        assert first.counted("training_operator_jobs_created_total") == 1
        assert second.counted("training_operator_jobs_created_total") == 0
        assert first.ended(signal.SIGTERM) == 0
        bring_job_to(server, namespace, TFJOB, "job", "Succeeded")
        second.counts("training_operator_jobs_successful_total", 1)
        assert second.counted("training_operator_jobs_created_total") == 0


# One namespace


def test_with_rights_in_one_namespace_it_serves_that_one_alone(
    server: RealServer, namespace: str, tmp_path: Path
) -> None:
    flags = ("--namespace=team-a", "--leader-elect")
    with running_operator(server, tmp_path, *flags, context=TEAM) as operator:
        submit_job(server, namespace, TFJOB, "elsewhere")
        for kind in TRAINING_KINDS:
            submit_job(server, "team-a", kind, kind.plural)
        for kind in TRAINING_KINDS:
            bring_job_to(server, "team-a", kind, kind.plural, "Running")
        assert job_conditions(server, namespace, TFJOB, "elsewhere") == {}
        assert operator.ended(signal.SIGTERM) == 0
        denied = [line for line in operator.lines() if "forbidden" in json.dumps(line)]
        assert denied == []


def test_only_the_kinds_asked_for_are_served(server: RealServer, namespace: str, tmp_path: Path) -> None:
    with running_operator(server, tmp_path, f"--namespace={namespace}", "-enable-scheme=xgboostjob"):
        submit_job(server, namespace, TFJOB, "not")
        submit_job(server, namespace, TRAINING_KINDS[2], "job")
        bring_job_to(server, namespace, TRAINING_KINDS[2], "job", "Running")
    assert job_conditions(server, namespace, TFJOB, "not") == {}


# Definitions

JAX = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/jaxjobs.kubeflow.org"


@pytest.fixture
def without_jax(server: RealServer) -> Iterator[None]:
    """The server does not know JAXJob, until the test says so or ends."""
    definition = server.call("GET", JAX).body
    assert server.call("DELETE", JAX).status == 200

    def served() -> bool:
        return any(found["name"] == "jaxjobs" for found in server.call("GET", APIS).body["resources"])

    wait_until_blocking(lambda: server.call("GET", JAX).status == 404 and not served(), "the definition does not go")
    yield
    if server.call("GET", JAX).status == 404:
        install_crds(server, [bare(definition)])


def bare(definition: Any) -> Any:
    """As somebody would write it."""
    names = ("apiVersion", "kind", "spec")
    return {
        **{name: definition[name] for name in names},
        "metadata": {"name": definition["metadata"]["name"]},
    }


@pytest.mark.usefixtures("without_jax")
def test_it_waits_for_definitions_alive_but_not_ready_and_says_what_to_type(
    server: RealServer, namespace: str, tmp_path: Path
) -> None:
    operator = OperatorProcess(server, tmp_path, f"--namespace={namespace}")
    try:
        wait_until_blocking(lambda: "served: jaxjobs" in get_page(operator.probes, "/readyz")[1], "it does not wait")
        assert get_page(operator.probes, "/healthz") == (200, "ok")
        (line,) = [line for line in operator.lines() if "missing" in line]
        assert line["missing"] == "jaxjobs.kubeflow.org"
        assert line["install"] == "gangline crds | kubectl apply -f -"
        flags = (f"--namespace={namespace}", "--install-crds")
        with running_operator(server, tmp_path, *flags, context=CLUSTER):
            submit_job(server, namespace, TRAINING_KINDS[5], "job")
            operator.process.wait_until(operator.ready)
        bring_job_to(server, namespace, TRAINING_KINDS[5], "job", "Running")
        assert operator.ended(signal.SIGTERM) == 0
    finally:
        operator.process.kill()


@pytest.mark.usefixtures("without_jax")
def test_asked_to_end_while_it_waits_it_ends(server: RealServer, namespace: str, tmp_path: Path) -> None:
    operator = OperatorProcess(server, tmp_path, f"--namespace={namespace}")
    try:
        wait_until_blocking(lambda: "served: jaxjobs" in get_page(operator.probes, "/readyz")[1], "it does not wait")
        assert operator.ended(signal.SIGTERM) == 0
    finally:
        operator.process.kill()


# Others


def lease(server: RealServer, namespace: str) -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "training-operator-abc_1", "leaseDurationSeconds": 3600, "renewTime": now}
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    create_object(server, path, {"metadata": {"name": LEASE}, "spec": spec})
    return f"{path}/{LEASE}"


def template(label: str, image: str) -> dict[str, Any]:
    labels = {"control-plane": label}
    return {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": image}]}}


def deployment(server: RealServer, namespace: str) -> str:
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": {"control-plane": "theirs"}},
        "template": template("theirs", "kubeflow/training-operator:v1-0123456"),
    }
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    create_object(server, path, {"metadata": {"name": "training-operator"}, "spec": spec})
    return f"{path}/training-operator"


def pod(server: RealServer, namespace: str) -> str:
    body = template("kubeflow-training-operator", "mirror/operator:1")
    body["metadata"]["name"] = "training-operator-abc"
    create_object(server, f"/api/v1/namespaces/{namespace}/pods", body)
    return f"/api/v1/namespaces/{namespace}/pods/training-operator-abc"


def brother(server: RealServer, namespace: str) -> str:
    body = template("gangline-operator", "gangline:1")
    body["metadata"]["name"] = "gangline-operator-abc"
    create_object(server, f"/api/v1/namespaces/{namespace}/pods", body)
    return f"/api/v1/namespaces/{namespace}/pods/gangline-operator-abc"


def status(server: RealServer, namespace: str) -> str:
    submit_job(server, namespace, TFJOB, "job")
    path = f"{APIS}/namespaces/{namespace}/tfjobs/job"
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Created", "status": "True", "lastTransitionTime": now, "lastUpdateTime": now}
    body = {"status": {"conditions": [{**condition, "reason": "TFJobCreated", "message": "created"}]}}
    said = f"{path}/status?fieldManager=manager"
    answer = server.call("PATCH", said, body, content_type="application/merge-patch+json")
    assert answer.status == 200, answer.body
    return path


Sign = Callable[[RealServer, str], str]
SIGNS: Mapping[Sign, str] = {
    lease: "training-operator-abc_1 holds lease NAMESPACE/" + LEASE,
    deployment: "deployment NAMESPACE/training-operator with image kubeflow/training-operator:v1-0123456",
    pod: "pod NAMESPACE/training-operator-abc",
    brother: "pod NAMESPACE/gangline-operator-abc",
    status: "manager wrote the status of TFJob NAMESPACE/job",
}


@pytest.fixture
def give(server: RealServer, namespace: str) -> Iterator[Callable[[Sign], None]]:
    """Makes signs of another operator, which are gone after the test."""
    paths: list[str] = []
    yield lambda sign: paths.append(sign(server, namespace))
    for path in paths:
        server.call("DELETE", path)


def refused(server: RealServer, *flags: str) -> str:
    """The one line with which it ends."""
    command = [sys.executable, "-m", "gangline", "operator", "--kubeconfig", str(server.kubeconfig)]
    command += ["--log-level=error", "--metrics-bind-address=0", "--health-probe-bind-address=0", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    return line


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("volcano", "podgroups.scheduling.volcano.sh, which volcano needs: install Volcano"),
        (
            "gangline,kubernetes",
            "workloads.scheduling.k8s.io, which kubernetes needs: it takes Kubernetes 1.36",
        ),
    ],
)
def test_a_gang_scheduler_that_is_not_there_is_refused_in_one_line(
    server: RealServer, namespace: str, name: str, needs: str
) -> None:
    line = refused(server, f"--namespace={namespace}", f"--gang-scheduler-name={name}")
    assert line.startswith(f"error: --gang-scheduler-name: the server has no {needs}")


@pytest.mark.parametrize("sign", SIGNS, ids=lambda sign: sign.__name__)
def test_beside_another_operator_it_refuses_in_one_line(
    server: RealServer, namespace: str, give: Callable[[Sign], None], sign: Sign
) -> None:
    give(sign)
    line = refused(server, f"--namespace={namespace}")
    assert SIGNS[sign].replace("NAMESPACE", namespace) in line
    assert line.endswith("or start this one with --take-over")


def test_told_to_take_over_it_does(
    server: RealServer, namespace: str, give: Callable[[Sign], None], tmp_path: Path
) -> None:
    for sign in SIGNS:
        give(sign)
    with running_operator(server, tmp_path, f"--namespace={namespace}", "--take-over"):
        bring_job_to(server, namespace, TFJOB, "job", "Running")


def test_an_operator_for_all_sees_another_in_any_namespace(
    server: RealServer, namespace: str, give: Callable[[Sign], None]
) -> None:
    give(deployment)
    assert f"deployment {namespace}/training-operator" in refused(server, "--context", CLUSTER)


def test_those_that_compete_for_one_lease_are_no_rivals(
    server: RealServer, namespace: str, give: Callable[[Sign], None], tmp_path: Path
) -> None:
    give(lease)
    give(brother)
    with running_operator(server, tmp_path, f"--namespace={namespace}", "--leader-elect") as operator:
        # The other one holds it.
        assert operator.counted("leader_election_master_status") == 0
