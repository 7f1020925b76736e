"""The planner: values in, values out."""

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.core import Service
from gangline.api.kubeflow.kinds import JAXJOB, MPIJOB, PYTORCHJOB, TFJOB
from gangline.api.kubeflow.training import (
    ADDRESSES_ANNOTATION,
    REPLICA_INDEX,
    ConditionType,
    JobStatus,
    RestartLedger,
)
from gangline.api.meta import ObjectMeta
from gangline.frameworks.jax import Jax
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.pytorch import PyTorch
from gangline.frameworks.tensorflow import TensorFlow
from gangline.jobs.plan.actions import Adopt, Create, DeleteJob, Patch
from gangline.jobs.plan.plan import reconcile_plan
from gangline.jobs.site import ServiceMode, Site
from gangline.testing.builders import make_job, make_member, make_tfjob
from support.builders.observed_jobs import (
    OBSERVED_AT,
    condition_pairs,
    created_body,
    created_names,
    deleted_names,
    job_plan,
    observed_job,
    plan_actions,
    with_status,
)

TF = TensorFlow()
LOCAL = Site(shared_host=True)
TEAM = ("job-ps-0", "job-worker-0", "job-worker-1")


def members(**phases: str) -> list[Any]:
    return [
        make_member("PS", 0, phase=phases.get("ps_0", "Running")),
        make_member("Worker", 0, phase=phases.get("worker_0", "Running")),
        make_member("Worker", 1, phase=phases.get("worker_1", "Running")),
    ]


def job(**more: Any) -> Any:
    return make_job(TFJOB, ps=1, worker=2, **more)


# Creating children


def test_services_come_in_an_earlier_stage_than_pods() -> None:
    plan = job_plan(TF, job(), services=())
    kinds = [{action.resource for action in stage if isinstance(action, Create)} for stage in plan.stages]
    assert kinds == [{"services"}, {"pods"}]
    assert created_names(plan, "services") == created_names(plan) == list(TEAM)


def test_on_one_machine_no_pod_starts_before_every_address_is_known() -> None:
    book = {ADDRESSES_ANNOTATION: json.dumps({"tfjob-port": "127.0.0.1:9000"})}
    one = Service(metadata=ObjectMeta(name="job-ps-0", namespace="default", annotations=book))
    assert not created_names(job_plan(TF, job(), services=[one], site=LOCAL))
    every = [msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, name=n)) for n in TEAM]
    assert created_names(job_plan(TF, job(), services=every, site=LOCAL)) == list(TEAM)


def test_on_one_machine_each_member_is_told_all_endpoints() -> None:
    there = [
        Service(
            metadata=ObjectMeta(
                name=name,
                namespace="default",
                annotations={ADDRESSES_ANNOTATION: json.dumps({"tfjob-port": f"127.0.0.1:{9000 + n}"})},
            )
        )
        for n, name in enumerate(TEAM)
    ]
    body = created_body(job_plan(TF, job(), services=there, site=LOCAL), "job-worker-1")
    env = {each["name"]: each["value"] for each in body["spec"]["containers"][0]["env"]}
    assert json.loads(env["GANGLINE_ENDPOINTS"]) == {
        "ps": ["127.0.0.1:9000"],
        "worker": ["127.0.0.1:9001", "127.0.0.1:9002"],
    }


def test_in_a_cluster_nobody_is_told_endpoints_as_in_v1() -> None:
    body = created_body(job_plan(TF, job()), "job-worker-1")
    assert [each["name"] for each in body["spec"]["containers"][0]["env"]] == ["TF_CONFIG"]


def test_every_missing_seat_is_filled_and_no_other() -> None:
    plan = job_plan(TF, job(), make_member("PS", 0), make_member("Worker", 1))
    assert created_names(plan) == ["job-worker-0"]


def test_what_we_made_and_the_cache_does_not_show_yet_is_not_made_again() -> None:
    awaited = frozenset({("pods", "job-worker-0"), ("pods", "job-worker-1"), ("services", "job-ps-0")})
    plan = job_plan(TF, job(), make_member("PS", 0), services=(), pending_creates=awaited)
    assert created_names(plan) == []
    assert created_names(plan, "services") == ["job-worker-0", "job-worker-1"]


def test_a_template_is_passed_on_whole_and_never_changed() -> None:
    training_job = job()
    template = training_job.spec.tf_replica_specs["Worker"].template
    template["spec"]["fieldOfTheFuture"] = {"kept": True}
    before = json.dumps(template)
    assert created_body(job_plan(TF, training_job), "job-worker-0")["spec"]["fieldOfTheFuture"] == {"kept": True}
    assert json.dumps(template) == before


def test_one_service_per_job_gives_pods_host_names() -> None:
    site = Site(services=ServiceMode.PER_JOB)
    plan = job_plan(TF, job(), services=(), site=site)
    assert created_names(plan, "services") == ["job"]
    spec = created_body(plan, "job-worker-1")["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("job-worker-1", "job")
    assert "job-worker-1.job.default.svc:2222" in spec["containers"][0]["env"][0]["value"]


def test_a_scaled_down_team_loses_the_highest_pods_and_services() -> None:
    pods = [make_member("Worker", n) for n in range(3)]
    job = make_job(TFJOB, worker=1)
    there = observed_job(TF, make_job(TFJOB, worker=3)).children.services
    plan = job_plan(TF, job, *pods, services=there)
    assert deleted_names(plan) == ["job-worker-1", "job-worker-2"]
    assert deleted_names(plan, "services") == ["job-worker-1", "job-worker-2"]
    assert created_names(plan) == []


# Adoption and managedBy


def test_an_orphan_with_our_labels_and_name_is_adopted_not_made_anew() -> None:
    orphan = make_member("Worker", 0)
    plan = job_plan(TF, job(), make_member("PS", 0), orphans=(("pods", orphan),))
    assert Adopt("pods", "job-worker-0", "uid-job-worker-0") in plan_actions(plan)
    assert created_names(plan) == ["job-worker-1"]


def test_an_orphan_of_another_name_is_left_alone() -> None:
    stray = make_member("Worker", 7)
    assert not any(isinstance(a, Adopt) for a in plan_actions(job_plan(TF, job(), orphans=(("pods", stray),))))


def test_a_pod_of_ours_that_lost_a_label_gets_it_back() -> None:
    pod = make_member("Worker", 0)
    labels = {key: value for key, value in pod.metadata.labels.items() if key != REPLICA_INDEX}
    relabelled = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels))
    (change,) = [a for a in plan_actions(job_plan(TF, job(), relabelled)) if isinstance(a, Patch)]
    assert change.body["metadata"]["labels"][REPLICA_INDEX] == "0"
    assert change.uid == pod.metadata.uid


def test_a_job_managed_by_somebody_else_is_left_alone() -> None:
    training_job = job(policy={"managedBy": "kueue.x-k8s.io/multikueue"})
    plan = job_plan(TF, training_job, services=())
    assert plan.status == JobStatus()
    assert plan.stages == ()


# The end


def test_success_stops_what_still_runs_when_the_policy_says_so() -> None:
    plan = job_plan(TF, job(policy={"cleanPodPolicy": "Running"}), *members(worker_0="Succeeded"))
    assert plan.status.holds(ConditionType.SUCCEEDED)
    assert plan.status.completion_time == OBSERVED_AT
    assert deleted_names(plan) == ["job-ps-0", "job-worker-1"]
    assert deleted_names(plan, "services") == ["job-ps-0", "job-worker-1"]
    assert plan.status.phase == "CleanUp"


@pytest.mark.parametrize(("policy", "gone"), [("None", []), ("All", list(TEAM)), ("Strange", list(TEAM))])
def test_clean_pod_policy_says_what_goes(policy: str, gone: list[str]) -> None:
    plan = job_plan(TF, job(policy={"cleanPodPolicy": policy}), *members(worker_0="Succeeded"))
    assert deleted_names(plan) == gone
    assert plan.status.phase == ("CleanUp" if gone else "Done")


def test_clean_up_interrupted_between_pod_and_service_is_finished() -> None:
    training_job = job(policy={"cleanPodPolicy": "Running"})
    ended = job_plan(TF, training_job, *members(worker_0="Succeeded")).status
    pod = make_member("Worker", 0, phase="Succeeded")
    plan = job_plan(TF, with_status(training_job, ended), pod)
    assert deleted_names(plan, "services") == ["job-ps-0", "job-worker-1"]


def test_a_cleaned_up_job_is_done() -> None:
    training_job = job(policy={"cleanPodPolicy": "All"})
    ended = job_plan(TF, training_job, *members(worker_0="Succeeded")).status
    plan = job_plan(TF, with_status(training_job, ended), services=())
    assert plan.status.phase == "Done"
    assert not plan_actions(plan)


def test_a_finished_job_stays_as_it_is_whatever_is_edited() -> None:
    """But for the generation, for which `kubectl wait` waits."""
    ended = job_plan(TF, job(), *members(worker_0="Succeeded")).status
    edited = with_status(make_job(TFJOB, ps=1, worker=5, generation=2), ended)
    plan = job_plan(TF, edited, services=())
    assert ended.observed_generation == 1
    assert plan.status == msgspec.structs.replace(ended, observed_generation=2)
    assert not plan_actions(plan)


def test_a_job_that_another_operator_has_finished_is_not_written() -> None:
    ended = msgspec.structs.replace(job_plan(TF, job(), *members(worker_0="Succeeded")).status, observed_generation=0)
    edited = with_status(make_job(TFJOB, ps=1, worker=5, generation=2), ended)
    assert job_plan(TF, edited, services=()).status == ended


def test_a_job_is_deleted_when_its_time_to_live_is_over_and_not_before() -> None:
    training_job = job(policy={"ttlSecondsAfterFinished": 60})
    ended = with_status(training_job, job_plan(TF, training_job, *members(worker_0="Succeeded")).status)
    early = job_plan(TF, ended, after=timedelta(seconds=60))
    assert early.requeue_after == timedelta(seconds=1)
    assert DeleteJob() not in plan_actions(early)
    assert DeleteJob() in plan_actions(job_plan(TF, ended, after=timedelta(seconds=61)))


# Suspension


def test_suspending_sends_everything_away_and_keeps_the_start_time() -> None:
    running = job_plan(TF, job(), *members()).status
    training_job = with_status(job(policy={"suspend": True}), running)
    plan = job_plan(TF, training_job, *members(), after=timedelta(minutes=1))
    assert deleted_names(plan) == deleted_names(plan, "services") == list(TEAM)
    assert condition_pairs(plan.status) == [
        ("Created", "True"),
        ("Running", "False"),
        ("Suspended", "True"),
    ]
    assert plan.status.start_time == OBSERVED_AT
    assert plan.status.replica_statuses["Worker"].active == 0
    assert plan.status.phase == ""


def test_a_job_created_suspended_has_no_start_time_and_no_counters() -> None:
    plan = job_plan(TF, job(policy={"suspend": True}), services=())
    assert condition_pairs(plan.status) == [("Created", "True"), ("Suspended", "True")]
    assert plan.status.start_time is None
    assert plan.status.replica_statuses == {}


def test_resuming_starts_the_clock_anew() -> None:
    suspended = job_plan(TF, job(policy={"suspend": True}), services=()).status
    plan = job_plan(TF, with_status(job(), suspended), services=(), after=timedelta(minutes=5))
    assert condition_pairs(plan.status) == [("Created", "True"), ("Suspended", "False")]
    assert plan.status.start_time == OBSERVED_AT + timedelta(minutes=5)
    assert created_names(plan) == list(TEAM)
    assert plan.status.phase == "Creating"


def test_a_deadline_does_not_count_the_time_before_a_resume() -> None:
    policy = {"activeDeadlineSeconds": 60}
    running = job_plan(TF, job(policy=policy), *members()).status
    suspended = job_plan(TF, with_status(job(policy={**policy, "suspend": True}), running), *members()).status
    plan = job_plan(TF, with_status(job(policy=policy), suspended), services=(), after=timedelta(hours=1))
    assert not plan.status.finished
    assert plan.requeue_after == timedelta(seconds=61)


# Times in whole seconds


def test_a_deadline_is_never_over_too_early_and_at_most_a_second_too_late() -> None:
    training_job = job(policy={"activeDeadlineSeconds": 3})
    start = timedelta(seconds=0.6)
    running = with_status(training_job, job_plan(TF, training_job, *members(), after=start).status)
    assert running.status.start_time == OBSERVED_AT
    for seconds in (2.4, 2.999):
        plan = job_plan(TF, running, *members(), after=start + timedelta(seconds=seconds))
        assert not plan.status.finished
        assert plan.requeue_after is not None
    assert job_plan(TF, running, *members(), after=start + timedelta(seconds=4)).status.finished


def test_a_time_to_live_is_never_over_too_early_and_none_is_over_at_once() -> None:
    late = timedelta(seconds=0.9)
    for seconds, gone in ((3, False), (0, True)):
        training_job = job(policy={"ttlSecondsAfterFinished": seconds})
        plan = job_plan(TF, training_job, *members(worker_0="Succeeded"), after=late)
        ended = with_status(training_job, plan.status)
        again = job_plan(TF, ended, after=late + timedelta(seconds=2.9 if seconds else 0))
        assert (DeleteJob() in plan_actions(again)) is gone


# Other


def test_a_companion_is_made_changed_and_left_when_it_is_right() -> None:
    mpi = Mpi()
    job = make_job(MPIJOB, launcher=1, worker=2)
    fresh = job_plan(mpi, job, services=())
    assert created_names(fresh, "configmaps") == ["job-config"]
    config = created_body(fresh, "job-config", "configmaps")
    stored: dict[str, Any] = {**config, "metadata": {**config["metadata"], "uid": "c1"}}

    def again(found: dict[str, Any]) -> Any:
        from gangline.jobs.plan.observed import JobChildren, ObservedJob

        def find(resource: str, name: str) -> Any:
            return found if (resource, name) == ("configmaps", "job-config") else None

        return reconcile_plan(mpi, ObservedJob.of(mpi, job, OBSERVED_AT, JobChildren(), find=find))

    assert not [a for a in plan_actions(again(stored)) if isinstance(a, (Patch, Create)) and a.resource == "configmaps"]
    broken = {**stored, "data": {**stored["data"], "hostfile": "nobody"}}
    (change,) = [a for a in plan_actions(again(broken)) if isinstance(a, Patch)]
    assert change.body == {"data": config["data"]}


def test_an_mpi_job_has_no_services() -> None:
    assert created_names(job_plan(Mpi(), make_job(MPIJOB, launcher=1, worker=2), services=()), "services") == []


def test_scalable_kinds_say_which_pods_are_theirs() -> None:
    status = job_plan(Jax(), make_job(JAXJOB, worker=1)).status
    assert status.replica_statuses["Worker"].selector == (
        "training.kubeflow.org/job-name=job,training.kubeflow.org/operator-name=jaxjob-controller,"
        "training.kubeflow.org/replica-type=worker"
    )


def test_a_plan_that_was_carried_out_is_followed_by_an_empty_one() -> None:
    first = job_plan(TF, job(), services=())
    then = job_plan(
        TF, with_status(job(), first.status), *members(ps_0="Pending", worker_0="Pending", worker_1="Pending")
    )
    assert then.status == first.status
    assert not plan_actions(then)


def test_a_plan_prints_as_json() -> None:
    text = msgspec.json.encode(job_plan(TF, make_tfjob(worker=1)))
    assert json.loads(text)["stages"][1][0]["type"] == "Create"


def test_states_are_counted_per_replica_type() -> None:
    pods = members(ps_0="Pending", worker_1="Failed")
    status = job_plan(TF, job(restart="Never"), *pods).status
    assert status.replica_statuses["Worker"].states == {"Running": 1, "Failed": 1}
    assert status.replica_statuses["Worker"].state == "Failed"
    assert status.replica_statuses["PS"].states == {"Unknown": 1}


def test_the_generation_that_was_acted_on_is_told() -> None:
    assert job_plan(TF, job(generation=7)).status.observed_generation == 7


def test_ledger_is_absent_while_nothing_ever_restarted() -> None:
    assert job_plan(PyTorch(), make_job(PYTORCHJOB, master=1)).status.ledger == RestartLedger()
