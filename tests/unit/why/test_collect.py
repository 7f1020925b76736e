"""What is read, and what is made of a server that refuses."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

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
