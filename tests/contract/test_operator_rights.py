"""The operator on the embedded server, with the rights of each combination of features: RBAC refuses it nothing, and the
audit log shows that it uses all of them."""

import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.apiserver.audit.rights import read_events, used_rights
from gangline.install.rules import (
    DIAGNOSIS_CLUSTER_RULES,
    RBAC_GROUP,
    Feature,
    lease_rules,
    notification_rules,
    operator_rules,
    rules_json,
)
from gangline.jobs.gangs.kubernetes import KNOWN_VERSIONS
from gangline.operator.settings import KUBEFLOW_LEASE, NOTIFICATIONS_SUFFIX
from support.cluster.accounts import GrantedRight, unused_rights
from support.cluster.operator_process import (
    APIS,
    TEAMS,
    OperatorProcess,
    apply_object,
    create_object,
    job_conditions,
    running_operator,
)
from support.cluster.operators import GANGLINE_OPERATOR, install_crds
from support.servers.embedded import EmbeddedServer, embedded_server
from support.servers.receiver import webhook_receiver
from support.waiting import wait_until_blocking

pytestmark = pytest.mark.xdist_group("operator-rights")  # for the server that they share
ACCOUNTS = [f"system:serviceaccount:gangline:operator-{number}" for number in range(32)]
# No image is pulled here.
NO_IMAGES = ("--mpi-kubectl-delivery-image=", "--pytorch-init-container-image=")
# Why roles grant what these jobs do not need.
NOT_USED_HERE: Mapping[str, Callable[[GrantedRight], bool]] = {
    "servers that check who may block a deletion": lambda right: right.resource.endswith("/finalizers"),
    "nobody may grant what they do not have": lambda right: right.resource == "pods/exec",
    "an object of that name exists, or an orphan is adopted": lambda right: right.verb == "get",
    "adoption, labels of an older version, a changed policy, repeated events": lambda right: right.verb == "patch",
}
MPI_CACHES = (
    "configmaps",
    "serviceaccounts",
    "roles.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
)


class GangCase(NamedTuple):
    """A gang scheduler, and where its groups are."""

    feature: Feature
    flag: str
    group: str
    version: str
    # Kinds that the embedded server does not have.
    kinds: tuple[tuple[str, str], ...] = (("PodGroup", "podgroups"),)


GANGS = (
    GangCase(Feature.GANGLINE, "gangline", "scheduling.gangline.dev", "v1alpha1", kinds=()),
    GangCase(Feature.VOLCANO, "volcano", "scheduling.volcano.sh", "v1beta1"),
    GangCase(Feature.SCHEDULER_PLUGINS, "plugins", "scheduling.x-k8s.io", "v1alpha1"),
    GangCase(
        Feature.KUBERNETES,
        "kubernetes",
        "scheduling.k8s.io",
        KNOWN_VERSIONS[0],
        kinds=(("PodGroup", "podgroups"), ("Workload", "workloads")),
    ),
)


def roles(*features: Feature) -> list[JSON]:
    """The roles of an operator with these features: one in the cluster, and one for its Lease."""
    cluster = {"metadata": {"name": "gangline-operator"}, "rules": rules_json(operator_rules(features))}
    lease = {
        "metadata": {"name": "gangline-operator-lease", "namespace": "default"},
        "rules": rules_json(lease_rules(KUBEFLOW_LEASE)),
    }
    return [{"kind": "ClusterRole", **cluster}, {"kind": "Role", **lease}]


def grant(server: EmbeddedServer, account: str, granted: Sequence[JSON]) -> None:
    version = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    for role in granted:
        apply_object(server, {**version, **role})
        reference = {"apiGroup": RBAC_GROUP, "kind": role["kind"], "name": role["metadata"]["name"]}
        subjects = [{"kind": "User", "apiGroup": RBAC_GROUP, "name": account}]
        kind = {"kind": f"{role['kind']}Binding"}
        apply_object(
            server, {**version, **kind, "metadata": role["metadata"], "roleRef": reference, "subjects": subjects}
        )


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with embedded_server(tmp_path_factory.mktemp("server"), ACCOUNTS) as running:
        install_crds(running, GANGLINE_OPERATOR.crds())
        yield running


@pytest.fixture
def server(shared_server: EmbeddedServer) -> Iterator[EmbeddedServer]:
    """A server without jobs; what an operator remembers goes, too."""
    yield shared_server
    kinds = [f"{APIS}/namespaces/default/{kind.plural}" for kind in TRAINING_KINDS]
    for path in (*kinds, MPI_V2, *(f"/api/v1/namespaces/default/{plural}" for plural in ("configmaps", "events"))):
        assert shared_server.call("DELETE", path).status == 200
    for path in (*kinds, MPI_V2, "/api/v1/namespaces/default/pods"):
        wait_until_blocking(partial(is_empty, shared_server, path), f"{path} is not empty")


@pytest.fixture(scope="module")
def free_accounts() -> Iterator[str]:
    return iter(ACCOUNTS)


@pytest.fixture
def account(free_accounts: Iterator[str]) -> str:
    """The operator's account, which no other test has: the audit log tells them apart."""
    return next(free_accounts)


def is_empty(server: EmbeddedServer, path: str) -> bool:
    return not server.call("GET", path).body["items"]


def refusals(operator: OperatorProcess) -> list[Mapping[str, Any]]:
    return [line for line in operator.lines() if "forbidden" in json.dumps(line)]


def unexplained(granted: Sequence[JSON], server: EmbeddedServer, account: str) -> list[GrantedRight]:
    unused = unused_rights(account, granted, server.audit_log)
    return [right for right in unused if not any(explains(right) for explains in NOT_USED_HERE.values())]


def test_the_operator_needs_the_rights_of_its_features(server: EmbeddedServer, account: str, tmp_path: Path) -> None:
    granted = roles(Feature.CORE, Feature.ELASTIC, Feature.MPI)
    grant(server, account, granted)
    with running_operator(server, tmp_path, "--leader-elect", *NO_IMAGES, context=account) as operator:
        run_every_kind(server, TRAINING_KINDS)
        scale_and_restart(server)
        assert operator.ended(signal.SIGTERM) == 0
        assert refusals(operator) == []
    assert unexplained(granted, server, account) == []
    unused = unused_rights(account, granted, server.audit_log)
    assert [why for why, explains in NOT_USED_HERE.items() if not any(map(explains, unused))] == []


def test_mpijobs_with_a_given_account_need_no_right_to_create_roles(
    server: EmbeddedServer, account: str, tmp_path: Path
) -> None:
    given_account = {
        "kind": "ClusterRole",
        "metadata": {"name": "given-account"},
        "rules": rules_json(operator_rules([Feature.MPI_ACCOUNT])),
    }
    grant(server, account, [*roles(Feature.CORE), given_account])
    flags = ("--enable-scheme=MPIJob", "--mpi-launcher-service-account=default", *NO_IMAGES)
    with running_operator(server, tmp_path, *flags, context=account) as operator:
        run_every_kind(server, [kind for kind in TRAINING_KINDS if kind.kind == "MPIJob"])
        assert operator.ended(signal.SIGTERM) == 0
        assert refusals(operator) == []
    assert unexplained([given_account], server, account) == []


def test_without_the_rights_for_mpi_the_other_kinds_are_served_and_mpi_as_soon_as_they_are_there(
    server: EmbeddedServer, account: str, tmp_path: Path
) -> None:
    grant(server, account, roles(Feature.CORE, Feature.ELASTIC))
    mpijob = next(kind for kind in TRAINING_KINDS if kind.kind == "MPIJob")
    with running_operator(server, tmp_path, "--leader-elect", *NO_IMAGES, context=account) as operator:
        submit(server, mpijob, "waiting", "true")
        run_every_kind(server, [kind for kind in TRAINING_KINDS if kind is not mpijob])
        assert job_conditions(server, "default", mpijob, "waiting") == {}
        assert {line["resource"] for line in refusals(operator)} == set(MPI_CACHES)
        grant(server, account, roles(Feature.CORE, Feature.ELASTIC, Feature.MPI))
        wait_for(server, mpijob, "waiting", "Succeeded")
        assert operator.ended(signal.SIGTERM) == 0


@pytest.mark.parametrize("kind", TRAINING_KINDS, ids=lambda kind: kind.kind)
def test_each_kind_alone_needs_nothing_of_the_other_features(
    server: EmbeddedServer, account: str, tmp_path: Path, kind: JobKind
) -> None:
    needs = {"MPIJob": (Feature.MPI,), "PyTorchJob": (Feature.ELASTIC,)}.get(kind.kind, ())
    grant(server, account, roles(Feature.CORE, *needs))
    flags = ("--leader-elect", f"--enable-scheme={kind.kind}", *NO_IMAGES)
    with running_operator(server, tmp_path, *flags, context=account) as operator:
        run_every_kind(server, [kind])
        assert operator.ended(signal.SIGTERM) == 0
        assert refusals(operator) == []


@pytest.mark.parametrize("case", GANGS, ids=lambda case: case.flag)
def test_gangs_need_the_rights_for_their_scheduler_and_no_other(
    server: EmbeddedServer, account: str, tmp_path: Path, case: GangCase
) -> None:
    install_crds(server, [group_crd(case, kind, plural) for kind, plural in case.kinds])
    gang_role = {
        "kind": "ClusterRole",
        "metadata": {"name": "gangs"},
        "rules": rules_json(operator_rules([case.feature])),
    }
    grant(server, account, [*roles(Feature.CORE, Feature.ELASTIC), gang_role])
    flags = (f"--gang-scheduler-name={case.flag}", "--enable-scheme=PyTorchJob", *NO_IMAGES)
    with running_operator(server, tmp_path, *flags, context=account) as operator:
        run_a_gang(server, f"/apis/{case.group}/{case.version}/namespaces/default/podgroups")
        assert operator.ended(signal.SIGTERM) == 0
        assert refusals(operator) == []
    assert unexplained([gang_role], server, account) == []


def notification_role() -> JSON:
    return {
        "kind": "Role",
        "metadata": {"name": "notifications", "namespace": "default"},
        "rules": rules_json(notification_rules(KUBEFLOW_LEASE + NOTIFICATIONS_SUFFIX)),
    }


def test_without_the_right_to_remember_nothing_is_notified_and_jobs_are_served_all_the_same(
    server: EmbeddedServer, account: str, tmp_path: Path
) -> None:
    grant(server, account, roles(Feature.CORE))
    file, tfjob = tmp_path / "routes.yaml", TRAINING_KINDS[0]
    with webhook_receiver() as receiver:
        file.write_text(json.dumps({"routes": [{"name": "all", "url": f"{receiver.url}/"}]}))
        flags = ("--leader-elect", "--enable-scheme=TFJob", f"--notifications-file={file}", *NO_IMAGES)
        with running_operator(server, tmp_path, *flags, context=account) as operator:
            submit(server, tfjob, "first", "true")
            wait_for(server, tfjob, "first", "Succeeded")
            problem = "notifications wait: what was delivered cannot be read"
            wait_until_blocking(lambda: [line for line in operator.lines() if line["msg"] == problem])
            assert receiver.requests == []
            grant(server, account, [notification_role()])
            journal = f"/api/v1/namespaces/default/configmaps/{KUBEFLOW_LEASE}{NOTIFICATIONS_SUFFIX}"
            wait_until_blocking(lambda: server.call("GET", journal).status == 200)
            submit(server, tfjob, "second", "true")
            receiver.wait_for("second succeeded")
            assert operator.ended(signal.SIGTERM) == 0


def test_notifications_need_one_configmap_and_no_other_right(
    server: EmbeddedServer, account: str, tmp_path: Path
) -> None:
    name, notifying = KUBEFLOW_LEASE + NOTIFICATIONS_SUFFIX, notification_role()
    grant(server, account, [*roles(Feature.CORE), notifying])
    file = tmp_path / "routes.yaml"
    with webhook_receiver() as receiver:
        file.write_text(json.dumps({"routes": [{"name": "all", "url": f"{receiver.url}/"}]}))
        flags = ("--leader-elect", "--enable-scheme=TFJob", f"--notifications-file={file}", *NO_IMAGES)
        with running_operator(server, tmp_path, *flags, context=account) as operator:
            submit(server, TRAINING_KINDS[0], "job", "true")
            receiver.wait_for("job succeeded")
            assert operator.ended(signal.SIGTERM) == 0
            assert refusals(operator) == []
    assert unused_rights(account, [notifying], server.audit_log) == []
    maps = [right for right in used_by_operator(server, account) if right.resource == "configmaps"]
    assert {right.resource_name for right in maps if right.verb != "create"} == {name}


def group_crd(case: GangCase, kind: str, plural: str) -> JSON:
    """A definition of a scheduler's kind that takes everything."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": case.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    # Without it a server refuses definitions in the groups of Kubernetes.
    approved = {"api-approved.kubernetes.io": "unapproved, for a test"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{case.group}", "annotations": approved},
        "spec": {"group": case.group, "names": names, "scope": "Namespaced", "versions": [version]},
    }


def run_every_kind(server: EmbeddedServer, kinds: Sequence[JobKind]) -> None:
    for kind in kinds:
        submit(server, kind, kind.plural, "true", cleanPodPolicy="All", ttlSecondsAfterFinished=0)
    for kind in kinds:
        wait_until_blocking(partial(is_gone, server, job_path(kind, kind.plural)), f"{kind.plural} stays")


def scale_and_restart(server: EmbeddedServer) -> None:
    tfjob, pytorchjob = TRAINING_KINDS[:2]
    resource = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    elastic = {"minReplicas": 1, "maxReplicas": 3, "metrics": [{"type": "Resource", "resource": resource}]}
    submit(server, pytorchjob, "elastic", "true", spec={"elasticPolicy": elastic})
    wait_for(server, pytorchjob, "elastic", "Succeeded")
    submit(
        server, tfjob, "again", "test -e again-$HOSTNAME || { touch again-$HOSTNAME; exit 137; }", restart="ExitCode"
    )
    wait_for(server, tfjob, "again", "Succeeded")
    submit(server, tfjob, "broken", "echo what is wrong; exit 1")
    wait_for(server, tfjob, "broken", "Failed")


def run_a_gang(server: EmbeddedServer, groups: str) -> None:
    kind = TRAINING_KINDS[1]
    submit(server, kind, "gang", "true")
    wait_until_blocking(lambda: server.call("GET", groups).body["items"], "no group")
    suspension = {"spec": {"runPolicy": {"suspend": True}}}
    server.call("PATCH", job_path(kind, "gang"), suspension, content_type="application/merge-patch+json")
    wait_until_blocking(lambda: server.call("GET", groups).body["items"] == [], "the group stays")


def submit(
    server: EmbeddedServer,
    kind: JobKind,
    name: str,
    script: str,
    *,
    restart: str = "Never",
    spec: Any = None,
    **policy: Any,
) -> None:
    container = {"name": kind.container, "image": "local", "command": ["sh", "-c", script]}
    template = {"spec": {"containers": [container]}}
    replicas = {
        replica: {"replicas": count, "restartPolicy": restart, "template": template}
        for replica, count in TEAMS[kind.kind].items()
    }
    body: JSON = {"metadata": {"name": name}, "spec": {kind.replicas: replicas, "runPolicy": policy, **(spec or {})}}
    body |= {"apiVersion": "kubeflow.org/v1", "kind": kind.kind}
    create_object(server, f"{APIS}/namespaces/default/{kind.plural}", body)


def job_path(kind: JobKind, name: str) -> str:
    return f"{APIS}/namespaces/default/{kind.plural}/{name}"


def is_gone(server: EmbeddedServer, path: str) -> bool:
    return server.call("GET", path).status == 404


def wait_for(server: EmbeddedServer, kind: JobKind, name: str, condition: str) -> None:
    def has_condition() -> bool:
        return job_conditions(server, "default", kind, name).get(condition) == "True"

    wait_until_blocking(has_condition, f"{kind.kind} {name} did not become {condition}")


# It gives signs of life, then waits for a writer that never comes.
HANGS = "for n in 1 2 3; do echo $n; sleep 1; done; mkfifo pipe-$HOSTNAME; read line < pipe-$HOSTNAME"


@pytest.mark.faults
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_watch_for_hangs_needs_the_rights_of_its_features(
    server: EmbeddedServer, account: str, tmp_path: Path
) -> None:
    grant(server, account, roles(Feature.CORE, Feature.HANG_WATCH, Feature.HANG_STACKS))
    flags = ("--leader-elect", "--enable-scheme=tfjob", "--hang-stacks", "--hung-after=3")
    with running_operator(server, tmp_path, *flags, context=account) as operator:
        submit(server, TRAINING_KINDS[0], "hangs", HANGS)
        wait_for(server, TRAINING_KINDS[0], "hangs", "Stalled")
        assert operator.ended(signal.SIGTERM) == 0
        assert refusals(operator) == []
    used = {(right.verb, right.group, right.resource, right.subresource) for right in used_by_operator(server, account)}
    assert ("list", "metrics.k8s.io", "pods", "") in used
    assert ("get", "", "pods", "exec") in used or ("create", "", "pods", "exec") in used


def test_recovery_reads_events_and_nodes_with_the_rights_of_its_diagnosis(
    server: EmbeddedServer, account: str, tmp_path: Path
) -> None:
    nodes = {
        "kind": "ClusterRole",
        "metadata": {"name": "gangline-operator-diagnosis-nodes"},
        "rules": rules_json(DIAGNOSIS_CLUSTER_RULES),
    }
    grant(server, account, [*roles(Feature.CORE, Feature.DIAGNOSIS), nodes])
    with running_operator(server, tmp_path, "--leader-elect", "--enable-scheme=tfjob", context=account) as operator:
        submit(server, TRAINING_KINDS[0], "bug", "echo what is wrong; exit 1", recovery="auto")
        wait_for(server, TRAINING_KINDS[0], "bug", "Failed")
        assert operator.ended(signal.SIGTERM) == 0
        assert refusals(operator) == []
    used = {(right.verb, right.group, right.resource) for right in used_by_operator(server, account)}
    assert {("list", "events.k8s.io", "events"), ("get", "", "nodes")} <= used


MPI_V2 = "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs"
LAUNCHER = "/apis/batch/v1/namespaces/default/jobs/ssh-launcher"
MERGE_PATCH = "application/merge-patch+json"


def test_mpijobs_of_v2beta1_need_the_rights_of_their_own_manifest_and_no_secret_is_read(
    server: EmbeddedServer, account: str, tmp_path: Path
) -> None:
    granted = roles(Feature.CORE, Feature.MPI_V2)
    grant(server, account, granted)
    flags = ("--leader-elect", "--enable-scheme=mpijob.v2beta1")
    with running_operator(server, tmp_path, *flags, context=account) as operator:
        suspend_and_resume_elsewhere(server)
        assert operator.ended(signal.SIGTERM) == 0
        assert refusals(operator) == []
    unused = {(right.verb, right.resource) for right in unused_rights(account, granted, server.audit_log)}
    assert not {("patch", "jobs"), ("patch", "jobs/status"), ("create", "jobs"), ("create", "secrets")} & unused
    assert {right.verb for right in used_by_operator(server, account) if right.resource == "secrets"} == {"create"}


def used_by_operator(server: EmbeddedServer, account: str) -> Iterator[Any]:
    return (right for right in used_rights(read_events(server.audit_log)) if right.user == account)


def suspend_and_resume_elsewhere(server: EmbeddedServer) -> None:
    template = {"spec": {"containers": [{"name": "mpi", "image": "local", "command": ["true"]}]}}
    replicas = {kind: {"replicas": 1, "template": template} for kind in ("Launcher", "Worker")}
    body = {"metadata": {"name": "ssh"}, "spec": {"mpiReplicaSpecs": replicas}}
    create_object(server, MPI_V2, {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", **body})
    wait_until_blocking(partial(launcher_is, server, suspended=False), "no launcher")
    # Nothing here runs Jobs, so this is Kubernetes' part.
    server.call(
        "PATCH", f"{LAUNCHER}/status", {"status": {"startTime": "2026-01-01T00:00:00Z"}}, content_type=MERGE_PATCH
    )
    server.call("PATCH", f"{MPI_V2}/ssh", {"spec": {"runPolicy": {"suspend": True}}}, content_type=MERGE_PATCH)
    wait_until_blocking(partial(launcher_is, server, suspended=True), "not suspended")
    elsewhere = {"Launcher": {"template": {"spec": {"nodeSelector": {"pool": "a"}}}}}
    resumption = {"spec": {"runPolicy": {"suspend": False}, "mpiReplicaSpecs": elsewhere}}
    server.call("PATCH", f"{MPI_V2}/ssh", resumption, content_type=MERGE_PATCH)
    wait_until_blocking(partial(launcher_is, server, suspended=False), "not resumed")
    assert server.call("GET", LAUNCHER).body["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "a"}


def launcher_is(server: EmbeddedServer, *, suspended: bool) -> bool:
    answer = server.call("GET", LAUNCHER)
    return answer.status == 200 and bool(answer.body["spec"].get("suspend")) is suspended
