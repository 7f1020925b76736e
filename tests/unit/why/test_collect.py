"""What is read, and what is made of a server that refuses."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from gangline.api.quantity import parse_resources
from gangline.base.errors import InputError
from gangline.cli.jobs.why import report_text
from gangline.kube.client import Client
from gangline.kube.errors import Forbidden, Status, Unreachable, error_from_status
from gangline.kube.transport.api import Request, Response, ResponseStream, WebSocket
from gangline.testing.clock import FakeClock
from gangline.why.collect import JobNotFound, collect
from gangline.why.diagnosis.case import DiagnosisTimeouts
from gangline.why.diagnosis.diagnose import diagnose

JOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "TFJob",
    "metadata": {"name": "x", "namespace": "ml", "uid": "u", "creationTimestamp": "2025-12-31T00:00:00Z"},
    "spec": {"tfReplicaSpecs": {"Worker": {"replicas": 1, "template": {"spec": {}}}}},
    "status": {"conditions": [{"type": "Running", "status": "True"}]},
}


class Server:
    """A transport that has some objects at some paths, and refuses all others. Only GET is known to it."""

    def __init__(self, objects: dict[str, Any], otherwise: int = 404) -> None:
        self.objects, self.otherwise = objects, otherwise
        self.asked: list[str] = []

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        assert request.method == "GET", "why reads only"
        self.asked.append(request.path)
        found = self.objects.get(request.path)
        if found is None:
            reason = {403: "Forbidden", 404: "NotFound"}[self.otherwise]
            status = {"code": self.otherwise, "reason": reason, "message": f"{request.path} is refused"}
            return Response(self.otherwise, json.dumps(status).encode())
        return Response(200, json.dumps(found).encode())

    @asynccontextmanager
    async def stream(
        self, request: Request, *, timeout: timedelta | None = None, idle: timedelta | None = None
    ) -> AsyncIterator[ResponseStream]:
        if self.otherwise:
            raise error_from_status(Status(code=self.otherwise, message="no logs"))
        yield cast(ResponseStream, None)

    @asynccontextmanager
    async def frames(self, request: Request, protocols: tuple[str, ...]) -> AsyncIterator[WebSocket]:
        assert not self.otherwise, "why runs nothing"
        yield cast(WebSocket, None)


def tfjob(name: str = "x", kind: str = "tfjobs") -> str:
    return f"/apis/kubeflow.org/v1/namespaces/ml/{kind}/{name}"


async def test_every_refused_read_is_noted_and_none_is_fatal() -> None:
    server = Server({tfjob(): JOB}, otherwise=403)
    found = await collect(Client(server), "tfjob/x", "ml", FakeClock())
    assert {line.partition(":")[0] for line in found.unreadable} >= {"pods", "events"}
    report = diagnose(found)
    assert report.unread == found.unreadable
    assert report.summary == "TFJob ml/x is Running."
    assert "not everything could be read" in report_text(report)


async def test_name_without_a_kind_is_looked_for_in_all_kinds() -> None:
    server = Server({tfjob(): JOB})
    found = await collect(Client(server), "x", "ml", FakeClock())
    assert (found.job.kind, found.job.state) == ("TFJob", "Running")


@pytest.mark.parametrize("version", ["v1", "v2beta1"])
async def test_the_launcher_of_an_mpijob_of_v2beta1_is_found_through_its_job(version: str) -> None:
    def owned(name: str, owner: str, **labels: str) -> Any:
        names = {f"training.kubeflow.org/{label.replace('_', '-')}": value for label, value in labels.items()}
        metadata = {"name": name, "namespace": "ml", "uid": f"uid-{name}", "labels": names}
        return {
            "metadata": {**metadata, "ownerReferences": [{"uid": owner, "controller": True}]},
            "status": {},
            "spec": {},
        }

    job = {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "MPIJob",
        "metadata": {"name": "x", "namespace": "ml", "uid": "u"},
        "spec": {"mpiImplementation": "OpenMPI", "mpiReplicaSpecs": {}},
    }
    pods = [
        owned("x-launcher-abcde", "uid-x-launcher", job_name="x", replica_type="launcher"),
        owned("x-worker-0", "u", job_name="x", replica_type="worker", replica_index="0"),
    ]
    server = Server(
        {
            f"/apis/kubeflow.org/{version}/namespaces/ml/mpijobs/x": job,
            "/apis/batch/v1/namespaces/ml/jobs": {"metadata": {}, "items": [owned("x-launcher", "u")]},
            "/api/v1/namespaces/ml/pods": {"metadata": {}, "items": pods},
        }
    )
    found = await collect(Client(server), "mpijob/x", "ml", FakeClock())
    assert sorted(one.pod.metadata.name for one in found.replicas) == ["x-launcher-abcde", "x-worker-0"]


async def test_name_that_two_kinds_have_is_a_question() -> None:
    other = {**JOB, "kind": "PyTorchJob", "metadata": {**JOB["metadata"], "uid": "v"}}  # type: ignore[dict-item]
    server = Server({tfjob(): JOB, tfjob(kind="pytorchjobs"): other})
    with pytest.raises(InputError, match="write one of pytorchjob/x, tfjob/x"):
        await collect(Client(server), "x", "ml", FakeClock())


async def test_job_that_another_job_owns_is_not_meant() -> None:
    child = {
        "kind": "Job",
        "metadata": {"name": "x", "namespace": "ml", "uid": "c", "ownerReferences": [{"uid": "u"}]},
    }
    server = Server({tfjob(): JOB, "/apis/batch/v1/namespaces/ml/jobs/x": child})
    assert (await collect(Client(server), "x", "ml", FakeClock())).job.kind == "TFJob"


async def test_no_such_job_is_told() -> None:
    with pytest.raises(JobNotFound, match="no job x of any kind in namespace ml"):
        await collect(Client(Server({})), "x", "ml", FakeClock())


async def test_job_that_may_not_be_read_is_an_error() -> None:
    with pytest.raises(Forbidden):
        await collect(Client(Server({}, otherwise=403)), "tfjob/x", "ml", FakeClock())


async def test_missing_rights_on_nodes_are_told_and_do_not_spoil_the_verdict() -> None:
    pod = {
        "metadata": {"name": "x-worker-0", "labels": {}},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running"},
    }
    empty: Any = {"items": []}
    server = Server(
        {
            tfjob(): JOB,
            "/api/v1/namespaces/ml/pods": {"items": [pod]},
            "/apis/events.k8s.io/v1/namespaces/ml/events": empty,
        },
        otherwise=403,
    )
    report = diagnose(await collect(Client(server), "tfjob/x", "ml", FakeClock()))
    assert [line.partition(":")[0] for line in report.unread] == ["nodes"]
    assert "Nothing is wrong." in report_text(report)


class Away(Server):
    """A server that does not answer."""

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        raise Unreachable("connection refused")


async def test_server_that_does_not_answer_is_one_error_and_not_ten() -> None:
    with pytest.raises(Unreachable):
        await collect(Client(Away({})), "x", "ml", FakeClock())


async def test_pods_of_a_trainjob_are_found_through_jobset_and_job() -> None:
    def owned(name: str, uid: str, by: str, **labels: str) -> Any:
        return {
            "metadata": {
                "name": name,
                "namespace": "ml",
                "uid": uid,
                "labels": labels,
                "ownerReferences": [{"uid": by, "controller": True}],
            }
        }

    named = {"jobset.sigs.k8s.io/jobset-name": "x", "jobset.sigs.k8s.io/replicatedjob-name": "node"}
    root = {
        "kind": "TrainJob",
        "metadata": {"name": "x", "namespace": "ml", "uid": "t"},
        "spec": {},
        "status": {},
    }
    pod = owned("x-node-0-0-abcde", "p", "j", **named) | {"status": {"phase": "Failed", "reason": "Evicted"}}
    server = Server(
        {
            "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ml/trainjobs/x": root,
            "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ml/jobsets": {"items": [owned("x", "s", "t")]},
            "/apis/batch/v1/namespaces/ml/jobs": {"items": [owned("x-node-0", "j", "s"), owned("y", "k", "z")]},
            "/api/v1/namespaces/ml/pods": {"items": [pod, owned("stranger", "q", "k")]},
        }
    )
    found = await collect(Client(server), "trainjob/x", "ml", FakeClock())
    assert [one.name for one in found.replicas] == ["x-node-0-0-abcde"]
    assert [cause.rule for cause in diagnose(found).causes] == ["evicted"]


def young_gang(queue: str) -> Server:
    """A job that was made a second ago, and its PodGroup of ours; the operator has got no further."""
    born = {**JOB["metadata"], "creationTimestamp": "2025-12-31T23:59:59Z"}  # type: ignore[dict-item]
    group = {
        "apiVersion": "scheduling.gangline.dev/v1alpha1",
        "metadata": {"name": "x", "namespace": "ml"},
        "spec": {"minMember": 1, "queue": queue},
    }
    container = {"name": "tensorflow", "image": "example.org/mnist:1"}
    worker = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    spec = {
        "tfReplicaSpecs": {"Worker": worker},
        "runPolicy": {"schedulingPolicy": {"queue": queue}},
    }
    groups = "/apis/scheduling.gangline.dev/v1alpha1"
    return Server(
        {
            tfjob(): {**JOB, "metadata": born, "spec": spec, "status": {}},
            f"{groups}/namespaces/ml/podgroups": {"items": [group]},
            f"{groups}/queues": {"items": [{"metadata": {"name": "research"}}]},
        }
    )


async def test_the_missing_queue_of_a_job_that_is_a_second_old_is_named() -> None:
    found = await collect(Client(young_gang("reserch")), "tfjob/x", "ml", FakeClock())
    assert found.queues == ("research",)
    assert [cause.rule for cause in diagnose(found).causes] == ["no-queue"]


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha2"])
async def test_a_group_of_kubernetes_own_says_why_it_is_not_placed(version: str) -> None:
    server = young_gang("")
    told = {
        "type": "PodGroupScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "2 of 4 fit",
    }
    group = {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "metadata": {"name": "x", "namespace": "ml"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}},
        "status": {"conditions": [told]},
    }
    del server.objects["/apis/scheduling.gangline.dev/v1alpha1/namespaces/ml/podgroups"]
    server.objects[f"/apis/scheduling.k8s.io/{version}/namespaces/ml/podgroups"] = {"items": [group]}
    found = await collect(Client(server), "tfjob/x", "ml", FakeClock(), DiagnosisTimeouts(unnoticed_after=timedelta()))
    assert found.pod_group is not None
    assert (found.pod_group.min_member, found.pod_group.message, found.pod_group.is_gangline) == (
        4,
        "2 of 4 fit",
        False,
    )
    (cause,) = diagnose(found).causes
    assert cause.rule == "gang-does-not-fit"
    assert "2 of 4 fit" in " ".join(cause.evidence)


async def test_queues_are_not_read_for_a_group_that_names_none() -> None:
    server = young_gang("")
    found = await collect(Client(server), "tfjob/x", "ml", FakeClock())
    assert found.queues is None
    assert not [path for path in server.asked if path.endswith("/queues")]


async def test_a_job_from_the_record_of_its_run_is_judged_by_its_last_moment() -> None:
    """It ran well when its run was interrupted, a year ago: nothing hangs, and nobody is missing."""
    annotations = {"local.gangline.dev/run-ended": "2025-01-01T00:00:00Z the run was interrupted"}
    server = Server({tfjob(): {**JOB, "metadata": {"name": "x", "namespace": "ml", "annotations": annotations}}})
    found = await collect(Client(server), "tfjob/x", "ml", FakeClock())
    assert found.now == datetime(2025, 1, 1, tzinfo=UTC)
    assert found.job.run_end_reason == "the run was interrupted"
    assert diagnose(found).summary.startswith("TFJob ml/x was Running")


def archived(name: str, ended_at: str) -> Any:
    annotations = {"local.gangline.dev/run-ended": f"{ended_at} its --timeout was over"}
    return {
        **JOB,
        "metadata": {**cast(Any, JOB)["metadata"], "name": name, "uid": f"u-{name}", "annotations": annotations},
    }


def placed_pod(job: str, index: int, node: str = "local") -> Any:
    """A pod with two GPUs; without a node it is one that found no room."""
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    return {
        "metadata": {
            "name": f"{job}-worker-{index}",
            "namespace": "ml",
            "uid": f"{job}-{index}",
            "ownerReferences": [{"uid": f"u-{job}", "apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": job}],
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "tensorflow", "resources": {"requests": {"nvidia.com/gpu": "2"}}}],
        },
        "status": {"phase": "Running" if node else "Pending", "conditions": [] if node else [unschedulable]},
    }


async def test_pods_of_other_runs_took_no_room_of_the_machine_during_this_one() -> None:
    """The archive shows the pods of all runs on one node."""
    now, before = "2026-01-01T00:00:00Z", "2025-12-31T00:00:00Z"
    own = [placed_pod("x", 0), placed_pod("x", 1, node="")]
    everywhere = [*own, placed_pod("peer", 0), placed_pod("other", 0), placed_pod("other", 1)]
    jobs = [archived("x", now), archived("peer", now), archived("other", before)]
    node = {"metadata": {"name": "local"}, "status": {"allocatable": {"nvidia.com/gpu": "4"}}}
    server = Server(
        {
            tfjob(): jobs[0],
            "/apis/kubeflow.org/v1/tfjobs": {"items": jobs},
            "/api/v1/namespaces/ml/pods": {"items": own},
            "/api/v1/pods": {"items": everywhere},
            "/api/v1/nodes": {"items": [node]},
            "/apis/events.k8s.io/v1/namespaces/ml/events": {"items": []},
        }
    )
    snapshot = await collect(Client(server), "tfjob/x", "ml", FakeClock())
    assert snapshot.allocated_by_node is not None
    assert snapshot.allocated_by_node["local"] == parse_resources({"pods": "2", "nvidia.com/gpu": "4"})


async def test_the_events_of_a_pod_that_is_gone_are_read_if_it_failed_first() -> None:
    def event(pod: str) -> Any:
        return {
            "reason": "Unhealthy",
            "note": f"Liveness probe failed: {pod}",
            "regarding": {"kind": "Pod", "name": pod, "uid": "gone"},
            "deprecatedFirstTimestamp": "2026-01-01T00:00:01Z",
            "deprecatedLastTimestamp": "2026-01-01T00:00:09Z",
        }

    failure = {"replica": "worker-0", "pod": "x-worker-0", "exitCode": 143, "time": "2026-01-01T00:00:02Z"}
    job = {**JOB, "status": {"conditions": [{"type": "Failed", "status": "True"}], "firstFailure": failure}}
    events = {"items": [event("x-worker-0"), event("x-worker-1")]}
    server = Server({tfjob(): job, "/apis/events.k8s.io/v1/namespaces/ml/events": events})
    snapshot = await collect(Client(server), "tfjob/x", "ml", FakeClock())
    assert [one.message for one in snapshot.first_failure_events] == ["Liveness probe failed: x-worker-0"]
    assert [one.first_seen for one in snapshot.first_failure_events] == [datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)]
