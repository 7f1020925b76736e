"""`gangline operator` as a process beside a real kube-apiserver: no kubelet, so tests say what becomes of pods.

Plain blocking code: the operator is another process, and all that is awaited is polled for.
"""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import JobKind
from support.cluster.operators import GANGLINE_OPERATOR, install_crds
from support.requirements import skip_or_fail
from support.servers.real import HOST, USERS, LoggedProcess, RealServer, find_assets, free_ports
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("operator")]

MANIFESTS = Path(__file__).parents[2] / "manifests"
CLUSTER = "system:serviceaccount:gangline:gangline-operator"
TEAM = "system:serviceaccount:team-a:gangline-operator"
APIS = "/apis/kubeflow.org/v1"
LEASE = "1ca428e5.training-operator.kubeflow.org"
PATIENCE = 60.0
TEAMS = {
    "TFJob": {"Worker": 2},
    "PyTorchJob": {"Master": 1, "Worker": 1},
    "XGBoostJob": {"Master": 1, "Worker": 1},
    "MPIJob": {"Launcher": 1, "Worker": 2},
    "PaddleJob": {"Worker": 2},
    "JAXJob": {"Worker": 2},
}
TFJOB = TRAINING_KINDS[0]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """With our definitions and rights, and the service accounts of the manifests as users."""
    if find_assets() is None:
        skip_or_fail("real Kubernetes not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")
    users = {**USERS, CLUSTER: (), TEAM: (), "gangline-edit": (), "gangline-view": ()}
    with RealServer(directory=tmp_path_factory.mktemp("server"), users=users) as running:
        install_crds(running, GANGLINE_OPERATOR.crds())
        made(running, "/api/v1/namespaces", {"metadata": {"name": "team-a"}})
        for name in ("rbac.yaml", "rbac-namespaced.yaml", "rbac-install-crds.yaml"):
            for document in yaml.safe_load_all((MANIFESTS / name).read_text()):
                apply(running, document)
        yield running


@pytest.fixture
def namespace(server: RealServer) -> str:
    name = f"test-{uuid.uuid4().hex[:12]}"
    made(server, "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


class Operator:
    """One process."""

    def __init__(self, server: RealServer, folder: Path, *flags: str, context: str = "admin") -> None:
        self.server = server
        self.probes, self.metrics = free_ports(2)
        self.log = folder / f"operator-{uuid.uuid4().hex[:6]}.log"
        command = [sys.executable, "-m", "gangline", "operator", "--kubeconfig", str(server.kubeconfig)]
        command += ["--context", context, "--log-format=json"]
        command += [f"--health-probe-bind-address={HOST}:{self.probes}"]
        command += [f"--metrics-bind-address={HOST}:{self.metrics}", *flags]
        self.process = LoggedProcess(command, self.log)

    def ready(self) -> bool:
        return get(self.probes, "/readyz")[0] == 200

    def counted(self, name: str, /, **labels: str) -> float:
        """The sum of a metric over all series with these labels."""
        text = get(self.metrics, "/metrics")[1]
        series = [line for line in text.splitlines() if line.partition("{")[0].partition(" ")[0] == name]
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(float(line.rpartition(" ")[2]) for line in series if all(want in line for want in wanted))

    def counts(self, name: str, value: float, /, **labels: str) -> None:
        """Wait for a metric: what is written is seen by others before it is counted."""
        wait_until_blocking(lambda: self.counted(name, **labels) == value, f"{name} did not become {value}")

    def lines(self) -> list[Mapping[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def ended(self, number: signal.Signals) -> int:
        """Send a signal and give the exit code."""
        self.process.signal(number)
        return self.code()

    def code(self) -> int:
        wait_until_blocking(lambda: not self.process.is_running, "it does not end")
        return self.process.exit_code


@contextmanager
def running(server: RealServer, folder: Path, *flags: str, context: str = "admin") -> Iterator[Operator]:
    """One that is ready."""
    operator = Operator(server, folder, *flags, context=context)
    try:
        operator.process.wait_until(operator.ready)
        yield operator
    finally:
        operator.process.kill()


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def made(server: RealServer, path: str, body: object) -> Any:
    answer = server.call("POST", path, body)
    assert answer.status == 201, answer.body
    return answer.body


def apply(server: RealServer, document: Any, how: str = "") -> None:
    plurals = {"ServiceAccount": "serviceaccounts", "Namespace": "namespaces"}
    group = document["apiVersion"]
    plural = plurals.get(document["kind"], f"{document['kind'].lower()}s")
    within = document["metadata"].get("namespace")
    root = f"/apis/{group}" if "/" in group else f"/api/{group}"
    path = f"{root}/namespaces/{within}/{plural}" if within else f"{root}/{plural}"
    path += f"/{document['metadata']['name']}?fieldManager=tests&force=true&fieldValidation=Strict{how}"
    answer = server.call("PATCH", path, document, content_type="application/apply-patch+yaml")
    assert answer.status in (200, 201), answer.body


# Jobs and their pods


def submit(
    server: RealServer,
    namespace: str,
    kind: JobKind,
    name: str,
    *,
    restart: str = "Never",
    spec: Mapping[str, Any] | None = None,
    **policy: Any,
) -> None:
    template = {"spec": {"containers": [{"name": kind.container, "image": "none"}]}}
    replicas = {
        replica: {"replicas": count, "restartPolicy": restart, "template": template}
        for replica, count in TEAMS[kind.kind].items()
    }
    whole = {kind.replicas: replicas, "runPolicy": policy, **(spec or {})}
    body = {"apiVersion": "kubeflow.org/v1", "kind": kind.kind, "metadata": {"name": name}, "spec": whole}
    made(server, f"{APIS}/namespaces/{namespace}/{kind.plural}", body)


def conditions(server: RealServer, namespace: str, kind: JobKind, name: str) -> dict[str, str]:
    job = server.call("GET", f"{APIS}/namespaces/{namespace}/{kind.plural}/{name}").body
    found = (job.get("status") or {}).get("conditions") or []
    return {one["type"]: one["status"] for one in found}


def pods(server: RealServer, namespace: str, name: str) -> list[Any]:
    selector = f"labelSelector=training.kubeflow.org%2Fjob-name%3D{name}"
    return list(server.call("GET", f"/api/v1/namespaces/{namespace}/pods?{selector}").body["items"])


def uids(server: RealServer, namespace: str, name: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods(server, namespace, name)}


def become(server: RealServer, pod: Any, phase: str, exit_code: int | None = None) -> None:
    """Say what a kubelet would."""
    code = exit_code if exit_code is not None else int(phase == "Failed")
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ended = {"terminated": {"exitCode": code, "startedAt": now, "finishedAt": now}}
    container = {
        "name": pod["spec"]["containers"][0]["name"],
        "image": "none",
        "imageID": "",
        "ready": phase == "Running",
        "restartCount": 0,
        "state": {"running": {"startedAt": now}} if phase == "Running" else ended,
    }
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
    body = {
        "metadata": {"uid": metadata["uid"]},
        "status": {"phase": phase, "containerStatuses": [container]},
    }
    answer = server.call("PATCH", path, body, content_type="application/merge-patch+json")
    assert answer.status in (200, 404, 409), answer.body


def bring_to(server: RealServer, namespace: str, kind: JobKind, name: str, condition: str) -> None:
    """Let all pods of a job run, or succeed, until the job has the condition."""
    phase = "Failed" if condition == "Failed" else "Running" if condition == "Running" else "Succeeded"

    def there() -> bool:
        for pod in pods(server, namespace, name):
            if pod["status"].get("phase") != phase:
                become(server, pod, phase)
        return conditions(server, namespace, kind, name).get(condition) == "True"

    wait_until_blocking(there, f"{kind.kind} {name} did not become {condition}")


def test_the_server_takes_the_deployment_as_it_is_written(server: RealServer) -> None:
    for document in yaml.safe_load_all((MANIFESTS / "operator.yaml").read_text()):
        apply(server, document, "&dryRun=All")


# Every kind, with no more rights than the manifest gives


def test_with_the_rights_of_the_manifest_it_runs_every_kind(server: RealServer, namespace: str, tmp_path: Path) -> None:
    with running(server, tmp_path, "--leader-elect", context=CLUSTER) as operator:
        for kind in TRAINING_KINDS:
            submit(server, namespace, kind, kind.plural)
        for kind in TRAINING_KINDS:
            bring_to(server, namespace, kind, kind.plural, "Running")
        for kind in TRAINING_KINDS:
            bring_to(server, namespace, kind, kind.plural, "Succeeded")
        assert get(operator.probes, "/healthz") == (200, "ok")
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
    with running(server, tmp_path, context=CLUSTER) as operator:
        submit(server, namespace, TRAINING_KINDS[1], "elastic", spec={"elasticPolicy": elastic})
        wait_until_blocking(lambda: server.call("GET", scalers).body["items"], "no autoscaler")
        bring_to(server, namespace, TRAINING_KINDS[1], "elastic", "Succeeded")
        wait_until_blocking(lambda: not server.call("GET", scalers).body["items"], "the autoscaler stays")
        submit(server, namespace, TFJOB, "brief", cleanPodPolicy="All", ttlSecondsAfterFinished=0)
        bring_to(server, namespace, TFJOB, "brief", "Running")
        for pod in pods(server, namespace, "brief"):
            become(server, pod, "Succeeded")
        path = f"{APIS}/namespaces/{namespace}/tfjobs/brief"
        wait_until_blocking(lambda: server.call("GET", path).status == 404, "the job stays")
        submit(server, namespace, TFJOB, "again", restart="ExitCode")
        bring_to(server, namespace, TFJOB, "again", "Running")
        first, _ = pods(server, namespace, "again")
        become(server, first, "Failed", exit_code=137)
        wait_until_blocking(
            lambda: (
                first["metadata"]["uid"] not in uids(server, namespace, "again")
                and len(uids(server, namespace, "again")) == 2
            ),
            "no new pod",
        )
        bring_to(server, namespace, TFJOB, "again", "Succeeded")
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
    with running(server, tmp_path, context=CLUSTER):
        submit(server, namespace, TFJOB, "team", restart="ExitCode", restartScope="Job")
        wait_until_blocking(lambda: len(pods(server, namespace, "team")) == 2, "no pods")
        for pod in pods(server, namespace, "team"):
            # Only a pod with a node has a grace period.
            binding = {"target": {"kind": "Node", "name": "node-1"}, "metadata": {"name": pod["metadata"]["name"]}}
            made(server, f"{pod_path}/{pod['metadata']['name']}/binding", binding)
        bring_to(server, namespace, TFJOB, "team", "Running")
        killed, slow = pods(server, namespace, "team")
        become(server, killed, "Failed", exit_code=137)

        def only_slow_is_left() -> bool:
            left = pods(server, namespace, "team")
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
        assert uids(server, namespace, "team") == {slow["metadata"]["uid"]}
        name = slow["metadata"]["name"]
        assert server.call("DELETE", f"{pod_path}/{name}?gracePeriodSeconds=0").status == 200
        wait_until_blocking(lambda: len(pods(server, namespace, "team")) == 2, "no new round")
        annotations = [pod["metadata"]["annotations"] for pod in pods(server, namespace, "team")]
        assert [found["training.gangline.dev/round"] for found in annotations] == ["1", "1"]


def test_with_the_rights_of_the_manifest_gangs_have_their_groups(
    server: RealServer, namespace: str, tmp_path: Path
) -> None:
    groups = f"/apis/scheduling.gangline.dev/v1alpha1/namespaces/{namespace}/podgroups"
    kind = TRAINING_KINDS[1]
    with running(server, tmp_path, "--gang-scheduler-name=gangline", context=CLUSTER) as operator:
        submit(server, namespace, kind, "job")
        wait_until_blocking(lambda: len(pods(server, namespace, "job")) == sum(TEAMS[kind.kind].values()), "no pods")
        (group,) = server.call("GET", groups).body["items"]
        assert group["spec"]["minMember"] == sum(TEAMS[kind.kind].values())
        assert {pod["spec"]["schedulerName"] for pod in pods(server, namespace, "job")} == {"gangline"}
        bring_to(server, namespace, kind, "job", "Succeeded")
        wait_until_blocking(lambda: server.call("GET", groups).body["items"] == [], "the group stays")
        assert [line for line in operator.lines() if "forbidden" in json.dumps(line)] == []


@pytest.mark.parametrize("plural", [kind.plural for kind in TRAINING_KINDS])
def test_users_may_edit_or_only_view(server: RealServer, namespace: str, plural: str) -> None:
    for role in ("gangline-edit", "gangline-view"):
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": role}
        body = {"metadata": {"name": role}, "roleRef": reference, "subjects": [subject]}
        made(server, f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", body)
    path = f"{APIS}/namespaces/{namespace}/{plural}"

    def status(method: str, token: str) -> int:
        return server.call(method, path, {} if method == "POST" else None, token=f"{token}-token").status

    assert [status("GET", who) for who in ("nobody", "gangline-view", "gangline-edit")] == [403, 200, 200]
    assert status("POST", "gangline-view") == 403
    # Allowed; but nothing is no job.
    assert status("POST", "gangline-edit") in (400, 422)


def test_failures_and_deletions_are_counted_once(server: RealServer, namespace: str, tmp_path: Path) -> None:
    where = {"job_namespace": namespace, "framework": "tensorflow"}
    with running(server, tmp_path, f"--namespace={namespace}") as operator:
        submit(server, namespace, TFJOB, "fails")
        bring_to(server, namespace, TFJOB, "fails", "Running")
        bring_to(server, namespace, TFJOB, "fails", "Failed")
        submit(server, namespace, TFJOB, "late", activeDeadlineSeconds=1)
        wait_until_blocking(lambda: conditions(server, namespace, TFJOB, "late").get("Failed") == "True", "no deadline")
        server.call("DELETE", f"{APIS}/namespaces/{namespace}/tfjobs/fails")
        operator.counts("training_operator_jobs_deleted_total", 1, **where)
        operator.counts("training_operator_jobs_created_total", 2, **where)
        operator.counts("training_operator_jobs_failed_total", 2, **where)
        operator.process.kill()
    with running(server, tmp_path, f"--namespace={namespace}") as operator:
        submit(server, namespace, TFJOB, "next")
        bring_to(server, namespace, TFJOB, "next", "Running")
        # Only the new one: "late" was counted in its life already.
        assert operator.counted("training_operator_jobs_created_total", **where) == 1
        assert operator.counted("training_operator_jobs_failed_total", **where) == 0


# Crashes and elections


def test_killed_in_the_middle_it_goes_on_where_it_was(server: RealServer, namespace: str, tmp_path: Path) -> None:
    with running(server, tmp_path, f"--namespace={namespace}") as operator:
        submit(server, namespace, TFJOB, "job")
        bring_to(server, namespace, TFJOB, "job", "Running")
        before = uids(server, namespace, "job")
        assert operator.ended(signal.SIGKILL) == -signal.SIGKILL
    for pod in pods(server, namespace, "job"):
        become(server, pod, "Succeeded")
    assert "Succeeded" not in conditions(server, namespace, TFJOB, "job")
    with running(server, tmp_path, f"--namespace={namespace}"):
        bring_to(server, namespace, TFJOB, "job", "Succeeded")
    assert uids(server, namespace, "job") <= before


def test_of_two_with_an_election_one_acts_and_the_other_follows(
    server: RealServer, namespace: str, tmp_path: Path
) -> None:
    flags = (f"--namespace={namespace}", "--leader-elect=true", "--leader-election-id=ours")
    with running(server, tmp_path, *flags) as one, running(server, tmp_path, *flags) as other:

        def leads(operator: Operator) -> bool:
            return operator.counted("leader_election_master_status", name="ours") == 1

        wait_until_blocking(lambda: leads(one) or leads(other), "nobody leads")
        assert leads(one) != leads(other)
        first, second = (one, other) if leads(one) else (other, one)
        submit(server, namespace, TFJOB, "job")
        bring_to(server, namespace, TFJOB, "job", "Running")
        assert first.counted("training_operator_jobs_created_total") == 1
        assert second.counted("training_operator_jobs_created_total") == 0
        assert first.ended(signal.SIGTERM) == 0
        bring_to(server, namespace, TFJOB, "job", "Succeeded")
        second.counts("training_operator_jobs_successful_total", 1)
        assert second.counted("training_operator_jobs_created_total") == 0


# One namespace


def test_with_rights_in_one_namespace_it_serves_that_one_alone(
    server: RealServer, namespace: str, tmp_path: Path
) -> None:
    flags = ("--namespace=team-a", "--leader-elect")
    with running(server, tmp_path, *flags, context=TEAM) as operator:
        submit(server, namespace, TFJOB, "elsewhere")
        for kind in TRAINING_KINDS:
            submit(server, "team-a", kind, kind.plural)
        for kind in TRAINING_KINDS:
            bring_to(server, "team-a", kind, kind.plural, "Running")
        assert conditions(server, namespace, TFJOB, "elsewhere") == {}
        assert operator.ended(signal.SIGTERM) == 0
        denied = [line for line in operator.lines() if "forbidden" in json.dumps(line)]
        assert denied == []


def test_only_the_kinds_asked_for_are_served(server: RealServer, namespace: str, tmp_path: Path) -> None:
    with running(server, tmp_path, f"--namespace={namespace}", "-enable-scheme=xgboostjob"):
        submit(server, namespace, TFJOB, "not")
        submit(server, namespace, TRAINING_KINDS[2], "job")
        bring_to(server, namespace, TRAINING_KINDS[2], "job", "Running")
    assert conditions(server, namespace, TFJOB, "not") == {}


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
    operator = Operator(server, tmp_path, f"--namespace={namespace}")
    try:
        wait_until_blocking(lambda: "served: jaxjobs" in get(operator.probes, "/readyz")[1], "it does not wait")
        assert get(operator.probes, "/healthz") == (200, "ok")
        (line,) = [line for line in operator.lines() if "missing" in line]
        assert line["missing"] == "jaxjobs.kubeflow.org"
        assert line["install"] == "gangline crds | kubectl apply -f -"
        flags = (f"--namespace={namespace}", "--install-crds")
        with running(server, tmp_path, *flags, context=CLUSTER):
            submit(server, namespace, TRAINING_KINDS[5], "job")
            operator.process.wait_until(operator.ready)
        bring_to(server, namespace, TRAINING_KINDS[5], "job", "Running")
        assert operator.ended(signal.SIGTERM) == 0
    finally:
        operator.process.kill()


@pytest.mark.usefixtures("without_jax")
def test_asked_to_end_while_it_waits_it_ends(server: RealServer, namespace: str, tmp_path: Path) -> None:
    operator = Operator(server, tmp_path, f"--namespace={namespace}")
    try:
        wait_until_blocking(lambda: "served: jaxjobs" in get(operator.probes, "/readyz")[1], "it does not wait")
        assert operator.ended(signal.SIGTERM) == 0
    finally:
        operator.process.kill()


# Others


def lease(server: RealServer, namespace: str) -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "training-operator-abc_1", "leaseDurationSeconds": 3600, "renewTime": now}
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    made(server, path, {"metadata": {"name": LEASE}, "spec": spec})
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
    made(server, path, {"metadata": {"name": "training-operator"}, "spec": spec})
    return f"{path}/training-operator"


def pod(server: RealServer, namespace: str) -> str:
    body = template("kubeflow-training-operator", "mirror/operator:1")
    body["metadata"]["name"] = "training-operator-abc"
    made(server, f"/api/v1/namespaces/{namespace}/pods", body)
    return f"/api/v1/namespaces/{namespace}/pods/training-operator-abc"


def brother(server: RealServer, namespace: str) -> str:
    body = template("gangline-operator", "gangline:1")
    body["metadata"]["name"] = "gangline-operator-abc"
    made(server, f"/api/v1/namespaces/{namespace}/pods", body)
    return f"/api/v1/namespaces/{namespace}/pods/gangline-operator-abc"


def status(server: RealServer, namespace: str) -> str:
    submit(server, namespace, TFJOB, "job")
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
    with running(server, tmp_path, f"--namespace={namespace}", "--take-over"):
        bring_to(server, namespace, TFJOB, "job", "Running")


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
    with running(server, tmp_path, f"--namespace={namespace}", "--leader-elect") as operator:
        # The other one holds it.
        assert operator.counted("leader_election_master_status") == 0
