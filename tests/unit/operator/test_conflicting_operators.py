"""What is detected as another operator, and what is not."""

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from gangline.api.codec.codec import decode, encode
from gangline.api.core import Lease, LeaseSpec, Pod
from gangline.api.kubeflow.kinds import MPIJOB, MPIJOB_V2, TRAINING_KINDS
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON, Key, ObjectMeta
from gangline.kube.client import Client
from gangline.kube.transport.api import Request, Response
from gangline.operator.conflicting_operators import (
    POLL_INTERVAL,
    ConflictCheck,
    Deployment,
    ManagedJob,
    OperatorConflict,
    OperatorIdentity,
    deployment_conflicts,
    find_conflicts,
    lease_conflicts,
    mpi_operator_conflicts,
    pod_conflicts,
    status_writer_conflicts,
)
from gangline.testing.builders import make_pod
from gangline.testing.clock import FakeClock
from support.servers.scripted import ScriptedTransport, json_response, refusal_response

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ALONE = OperatorIdentity(Key("ours", "gangline-operator-7f-x"), "gangline")
ELECTED = OperatorIdentity(ALONE.pod, "gangline", Key("ours", "lease"))


def lease(holder: str = "them_1", age: float = 1, name: str = "lease") -> Lease:
    return Lease(
        metadata=ObjectMeta(namespace="ours", name=name),
        spec=LeaseSpec(holder_identity=holder, lease_duration_seconds=15, renew_time=NOW - timedelta(seconds=age)),
    )


def test_who_renews_a_lease_is_there() -> None:
    (rival,) = lease_conflicts(lease(), ALONE, NOW)
    assert rival.description == "them_1 holds lease ours/lease"


@pytest.mark.parametrize("found", [lease(holder=""), lease(age=60)], ids=["released", "expired"])
def test_a_lease_that_nobody_keeps_says_nothing(found: Lease) -> None:
    assert not list(lease_conflicts(found, ALONE, NOW))


def test_who_competes_for_our_lease_acts_only_when_we_do_not() -> None:
    assert not list(lease_conflicts(lease(), ELECTED, NOW))
    assert list(lease_conflicts(lease(name="another"), ELECTED, NOW))


def deployment(image: str, *, label: str = "", replicas: int = 1, name: str = "training-operator") -> Deployment:
    template = {
        "metadata": {"labels": {"control-plane": label}},
        "spec": {"containers": [{"name": "manager", "image": image}]},
    }
    body: JSON = {
        "metadata": {"namespace": "ours", "name": name},
        "spec": {"replicas": replicas, "template": template},
    }
    return decode(encode(body), Deployment)


@pytest.mark.parametrize(
    "image",
    [
        "training-operator",
        "kubeflow/training-operator:v1",
        "mirror.example:5000/kubeflow/training-operator@sha256:0",
    ],
)
def test_the_kubeflow_operator_is_known_by_its_image(image: str) -> None:
    (rival,) = deployment_conflicts(deployment(image), ALONE)
    assert rival.description == f"deployment ours/training-operator with image {image}"
    assert rival.remedy == "kubectl -n ours scale deployment training-operator --replicas=0"


def test_the_kubeflow_operator_is_known_by_its_label() -> None:
    (rival,) = deployment_conflicts(deployment("mirror/operator:1", label="kubeflow-training-operator"), ALONE)
    assert rival.description == "deployment ours/training-operator"


@pytest.mark.parametrize(
    "found",
    [
        deployment("training-operator", replicas=0),
        deployment("my-training-operator:1"),
        deployment("training-operator-docs:1"),
        deployment("gangline:1", label="gangline-operator"),
        deployment("mirror/training-operator:ours", name="gangline-operator"),
    ],
    ids=["scaled to nothing", "another image", "a longer name", "gangline", "the one we run in"],
)
def test_other_deployments_are_left_alone(found: Deployment) -> None:
    assert not list(deployment_conflicts(found, ALONE))


def pod(label: str, *, name: str = "p", phase: str = "Running") -> Pod:
    return make_pod(name, namespace="ours", labels={"control-plane": label}, phase=phase)


@pytest.mark.parametrize("label", ["kubeflow-training-operator", "gangline-operator"])
def test_a_pod_of_an_operator_is_one(label: str) -> None:
    (rival,) = pod_conflicts(pod(label), ALONE)
    assert rival.description == "pod ours/p"


def test_pods_that_are_over_and_we_ourselves_are_none() -> None:
    assert not list(pod_conflicts(pod("kubeflow-training-operator", phase="Succeeded"), ALONE))
    assert not list(pod_conflicts(pod("gangline-operator", name=ALONE.pod.name), ALONE))


def test_with_an_election_our_own_kind_are_no_rivals() -> None:
    assert not list(pod_conflicts(pod("gangline-operator"), ELECTED))
    assert list(pod_conflicts(pod("kubeflow-training-operator"), ELECTED))


def written(manager: str, *, age: float = 20, subresource: str = "status", managed_by: str = "") -> ManagedJob:
    at = (NOW - timedelta(seconds=age)).isoformat().replace("+00:00", "Z")
    entry = {"manager": manager, "operation": "Update", "subresource": subresource, "time": at}
    body: JSON = {"metadata": {"namespace": "team", "name": "mnist", "managedFields": [entry]}}
    if managed_by:
        body["spec"] = {"runPolicy": {"managedBy": managed_by}}
    return decode(encode(body), ManagedJob)


@pytest.mark.parametrize("manager", ["training-operator", "manager", "anything"])
@pytest.mark.parametrize("managed_by", ["", "kubeflow.org/training-operator"])
def test_who_writes_statuses_is_an_operator(manager: str, managed_by: str) -> None:
    (rival,) = status_writer_conflicts(TRAINING_KINDS[0], written(manager, managed_by=managed_by), ALONE, NOW)
    assert rival.description == f"{manager} wrote the status of TFJob team/mnist 20 s ago"


@pytest.mark.parametrize(
    "found",
    [
        written("gangline"),
        written("kubectl-edit"),
        written("training-operator", age=600),
        written("kueue", subresource=""),
        # The job runs in another cluster, and its controller writes the status here.
        written("kueue", managed_by="kueue.x-k8s.io/multikueue"),
    ],
    ids=["ourselves", "a person", "long ago", "not the status", "not our job"],
)
def test_other_writes_are_nothing_to_fear(found: ManagedJob) -> None:
    assert not list(status_writer_conflicts(TRAINING_KINDS[0], found, ALONE, NOW))


def test_what_was_written_before_our_lease_was_acquired_is_past() -> None:
    """An operator that took over checked it, or was told; its replicas need not wait until the writes are old."""
    job = written("training-operator", age=20)
    assert not list(status_writer_conflicts(TRAINING_KINDS[0], job, ELECTED, NOW, NOW - timedelta(seconds=10)))
    assert list(status_writer_conflicts(TRAINING_KINDS[0], job, ELECTED, NOW, NOW - timedelta(seconds=30)))


@pytest.mark.parametrize(
    ("holder", "acquired", "refuses"), [("ours_1", 10, False), ("ours_1", 60, True), ("", 10, False), ("", None, True)]
)
async def test_the_holder_of_our_lease_is_asked_when_it_took_over(
    holder: str, acquired: float | None, refuses: bool
) -> None:
    acquire_time = NOW - timedelta(seconds=acquired) if acquired is not None else None
    spec = LeaseSpec(holder_identity=holder, acquire_time=acquire_time)
    job = msgspec.to_builtins(written("training-operator", age=20))

    def say(request: Request) -> Response:
        if request.path.endswith("/leases/lease"):
            return json_response(msgspec.to_builtins(Lease(spec=spec)))
        items = [job] if request.path.endswith("/tfjobs") else []
        return json_response({"items": items, "metadata": {"resourceVersion": "1"}})

    client = Client(ScriptedTransport(say))
    conflicts = await find_conflicts(client, TRAINING_KINDS, "", ELECTED, NOW)
    assert bool(conflicts) is refuses


@pytest.mark.parametrize(
    ("kind", "in_v2", "rival"), [(MPIJOB, True, 0), (MPIJOB_V2, True, 1), (MPIJOB, False, 1), (MPIJOB_V2, False, 0)]
)
def test_who_serves_the_other_api_of_mpijob_is_no_rival(kind: JobKind, in_v2: bool, rival: int) -> None:
    job = written("mpi-operator")
    spec = msgspec.structs.replace(job.spec, mpi_implementation="OpenMPI" if in_v2 else "")
    found = status_writer_conflicts(kind, msgspec.structs.replace(job, spec=spec), ALONE, NOW)
    assert len(list(found)) == rival


def test_mpi_operator_is_known_by_its_image() -> None:
    (rival,) = mpi_operator_conflicts(deployment("mpioperator/mpi-operator:0.8.0"), ALONE)
    assert "mpioperator/mpi-operator:0.8.0" in rival.description
    assert not list(mpi_operator_conflicts(deployment("mirror/mpi-operator-docs:1"), ALONE))
    assert not list(deployment_conflicts(deployment("mpioperator/mpi-operator:0.8.0"), ALONE))


# Missing rights


class Server:
    """A server with one Deployment, on which some resources may not be read."""

    def __init__(self, *forbidden: str) -> None:
        self.forbidden = set(forbidden)
        self.refused_namespaces: set[str] = set()
        self.client = Client(ScriptedTransport(self._say))

    def _say(self, request: Request) -> Response:
        resource = request.path.rpartition("/")[2]
        namespace = request.path.rpartition("/namespaces/")[2].partition("/")[0]
        if resource in self.forbidden or namespace in self.refused_namespaces:
            return refusal_response(403, f"{request.path} is forbidden", "Forbidden")
        found = [deployment("training-operator")] if resource == "deployments" else []
        items = [msgspec.to_builtins(each) for each in found]
        return json_response({"items": items, "metadata": {"resourceVersion": "1"}})


def conflict_check(server: Server, clock: FakeClock) -> ConflictCheck:
    return ConflictCheck(server.client, TRAINING_KINDS, ALONE, clock)


async def test_signs_that_may_not_be_read_are_passed_over() -> None:
    server = Server("leases", "deployments", "pods")
    assert await conflict_check(server, FakeClock()).wait_for_any([""]) == ()


async def test_who_may_not_read_jobs_yet_looks_again_when_it_may() -> None:
    """Else it would act beside another operator as soon as it has the right."""
    server, clock = Server("deployments", "jaxjobs"), FakeClock()

    async def refuses() -> None:
        with pytest.raises(OperatorConflict, match="deployment ours/training-operator"):
            await conflict_check(server, clock).wait_for_any([""])

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(refuses())
        await clock.advance(3 * POLL_INTERVAL)
        assert not waiting.done()
        server.forbidden.clear()
        await clock.advance(POLL_INTERVAL)


async def test_of_several_namespaces_those_that_may_be_read_are_checked_and_the_others_returned() -> None:
    server, clock = Server("deployments"), FakeClock()
    server.refused_namespaces = {"late", "later"}
    check = conflict_check(server, clock)
    assert await check.wait_for_any(["a", "late", "b", "later"]) == ("late", "later")
    server.refused_namespaces = {"later"}
    assert await check.wait_for_any(["late", "later"]) == ("later",)
    server.forbidden.clear()
    with pytest.raises(OperatorConflict, match="deployment ours/training-operator"):
        await check.wait_for_any(["later", "a"])
