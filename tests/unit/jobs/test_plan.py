"""The planner: values in, values out."""

import json
from datetime import UTC, datetime

import msgspec

from gangline.api.core import Pod, Service
from gangline.api.meta import ObjectMeta
from gangline.api.tfjob import TFJob
from gangline.api.training import ConditionType
from gangline.frameworks.tensorflow import TensorFlow
from gangline.jobs.actions import CreatePod, CreateService, DeletePod
from gangline.jobs.framework import Addresses, Member
from gangline.jobs.plan import Observed, Plan, plan
from gangline.testing.builders import make_member, make_tfjob

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SEATS = (Member("PS", 0), Member("Worker", 0), Member("Worker", 1))
BOOK = Addresses({seat: f"127.0.0.1:{9000 + number}" for number, seat in enumerate(SEATS)})


def observed(
    *pods: Pod, job: TFJob | None = None, addresses: Addresses = BOOK, services: bool = True
) -> Observed[TFJob]:
    job = job or make_tfjob(ps=1, worker=2)
    there = tuple(Service(metadata=ObjectMeta(name=f"job-{seat}")) for seat in SEATS) if services else ()
    return Observed(job=job, pods=pods, services=there, addresses=addresses, now=NOW)


def actions(intent: Plan, kind: type) -> list[object]:
    return [action for stage in intent.stages for action in stage if isinstance(action, kind)]


def test_services_come_before_pods() -> None:
    intent = plan(TensorFlow(), observed(services=False, addresses=Addresses({})))
    assert len(actions(intent, CreateService)) == 3
    assert not actions(intent, CreatePod)


def test_no_pod_starts_before_every_address_is_known() -> None:
    part = Addresses({SEATS[0]: "127.0.0.1:9000"})
    assert not actions(plan(TensorFlow(), observed(addresses=part)), CreatePod)


def test_every_missing_seat_is_filled_and_no_other() -> None:
    intent = plan(TensorFlow(), observed(make_member("PS", 0), make_member("Worker", 1)))
    (created,) = actions(intent, CreatePod)
    assert isinstance(created, CreatePod)
    assert created.body["metadata"]["name"] == "job-worker-0"


def test_each_member_is_told_where_all_are() -> None:
    created = actions(plan(TensorFlow(), observed()), CreatePod)
    bodies = {each.body["metadata"]["name"]: each.body for each in created if isinstance(each, CreatePod)}
    env = bodies["job-worker-1"]["spec"]["containers"][0]["env"]
    config = json.loads(next(each["value"] for each in env if each["name"] == "TF_CONFIG"))
    assert config == {
        "cluster": {"ps": ["127.0.0.1:9000"], "worker": ["127.0.0.1:9001", "127.0.0.1:9002"]},
        "task": {"type": "worker", "index": 1},
        "environment": "cloud",
    }


def test_a_template_is_passed_on_whole_and_never_changed() -> None:
    job = make_tfjob(ps=1, worker=2)
    template = job.spec.tf_replica_specs["Worker"].template
    template["spec"]["fieldOfTheFuture"] = {"kept": True}
    before = json.dumps(template)
    created = actions(plan(TensorFlow(), observed(job=job)), CreatePod)
    worker = next(
        each for each in created if isinstance(each, CreatePod) and "worker" in each.body["metadata"]["name"]
    )
    assert worker.body["spec"]["fieldOfTheFuture"] == {"kept": True}
    assert json.dumps(template) == before


def test_job_is_running_when_worker_0_runs() -> None:
    status = plan(TensorFlow(), observed(*(make_member(seat.type, seat.index) for seat in SEATS))).status
    assert [(found.type, found.status) for found in status.conditions] == [
        ("Created", "True"),
        ("Running", "True"),
    ]
    assert status.replica_statuses["Worker"].active == 2


def test_job_succeeds_with_worker_0_and_what_still_runs_is_stopped() -> None:
    pods = (make_member("PS", 0), make_member("Worker", 0, phase="Succeeded"), make_member("Worker", 1))
    intent = plan(TensorFlow(), observed(*pods))
    assert intent.status.holds(ConditionType.SUCCEEDED)
    assert intent.status.completion_time == NOW
    assert {each.name for each in actions(intent, DeletePod) if isinstance(each, DeletePod)} == {
        "job-ps-0",
        "job-worker-1",
    }


def test_job_fails_when_a_member_fails() -> None:
    status = plan(TensorFlow(), observed(make_member("Worker", 1, phase="Failed"))).status
    failed = status.condition(ConditionType.FAILED)
    assert failed is not None
    assert failed.message == "TFJob default/job has failed because 1 Worker replica(s) failed."


def test_a_finished_job_stays_as_it_is() -> None:
    ended = plan(TensorFlow(), observed(make_member("Worker", 0, phase="Succeeded"))).status
    job = msgspec.structs.replace(make_tfjob(ps=1, worker=2), status=ended)
    intent = plan(TensorFlow(), observed(job=job))
    assert intent.status == ended
    assert intent.stages == ((),)


def test_a_plan_prints_as_json() -> None:
    text = msgspec.json.encode(plan(TensorFlow(), observed()))
    assert json.loads(text)["stages"][1][0]["type"] == "CreatePod"
