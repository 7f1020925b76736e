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
from gangline.jobs.pods.addressing import ServiceMode, Site
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


# Filling


def test_services_come_in_an_earlier_stage_than_pods() -> None:
    intent = job_plan(TF, job(), services=())
    kinds = [{action.resource for action in stage if isinstance(action, Create)} for stage in intent.stages]
    assert kinds == [{"services"}, {"pods"}]
    assert created_names(intent, "services") == created_names(intent) == list(TEAM)


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
    made = created_body(job_plan(TF, job(), services=there, site=LOCAL), "job-worker-1")
    env = {each["name"]: each["value"] for each in made["spec"]["containers"][0]["env"]}
    assert json.loads(env["GANGLINE_ENDPOINTS"]) == {
        "ps": ["127.0.0.1:9000"],
        "worker": ["127.0.0.1:9001", "127.0.0.1:9002"],
    }


def test_in_a_cluster_nobody_is_told_endpoints_as_in_v1() -> None:
    made = created_body(job_plan(TF, job()), "job-worker-1")
    assert [each["name"] for each in made["spec"]["containers"][0]["env"]] == ["TF_CONFIG"]


def test_every_missing_seat_is_filled_and_no_other() -> None:
    intent = job_plan(TF, job(), make_member("PS", 0), make_member("Worker", 1))
    assert created_names(intent) == ["job-worker-0"]


def test_what_we_made_and_the_cache_does_not_show_yet_is_not_made_again() -> None:
    awaited = frozenset({("pods", "job-worker-0"), ("pods", "job-worker-1"), ("services", "job-ps-0")})
    intent = job_plan(TF, job(), make_member("PS", 0), services=(), pending_creates=awaited)
    assert created_names(intent) == []
    assert created_names(intent, "services") == ["job-worker-0", "job-worker-1"]


def test_a_template_is_passed_on_whole_and_never_changed() -> None:
    wanted = job()
    template = wanted.spec.tf_replica_specs["Worker"].template
    template["spec"]["fieldOfTheFuture"] = {"kept": True}
    before = json.dumps(template)
    assert created_body(job_plan(TF, wanted), "job-worker-0")["spec"]["fieldOfTheFuture"] == {"kept": True}
    assert json.dumps(template) == before


def test_one_service_per_job_gives_pods_host_names() -> None:
    site = Site(services=ServiceMode.PER_JOB)
    intent = job_plan(TF, job(), services=(), site=site)
    assert created_names(intent, "services") == ["job"]
    made = created_body(intent, "job-worker-1")["spec"]
    assert (made["hostname"], made["subdomain"]) == ("job-worker-1", "job")
    assert "job-worker-1.job.default.svc:2222" in made["containers"][0]["env"][0]["value"]


def test_a_scaled_down_team_loses_the_highest_pods_and_services() -> None:
    pods = [make_member("Worker", n) for n in range(3)]
    wanted = make_job(TFJOB, worker=1)
    there = observed_job(TF, make_job(TFJOB, worker=3)).children.services
    intent = job_plan(TF, wanted, *pods, services=there)
    assert deleted_names(intent) == ["job-worker-1", "job-worker-2"]
    assert deleted_names(intent, "services") == ["job-worker-1", "job-worker-2"]
    assert created_names(intent) == []


# Whose


def test_an_orphan_with_our_labels_and_name_is_adopted_not_made_anew() -> None:
    orphan = make_member("Worker", 0)
    intent = job_plan(TF, job(), make_member("PS", 0), orphans=(("pods", orphan),))
    assert Adopt("pods", "job-worker-0", "uid-job-worker-0") in plan_actions(intent)
    assert created_names(intent) == ["job-worker-1"]


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
    wanted = job(policy={"managedBy": "kueue.x-k8s.io/multikueue"})
    intent = job_plan(TF, wanted, services=())
    assert intent.status == JobStatus()
    assert intent.stages == ()


# Ending


def test_success_stops_what_still_runs_when_the_policy_says_so() -> None:
    intent = job_plan(TF, job(policy={"cleanPodPolicy": "Running"}), *members(worker_0="Succeeded"))
    assert intent.status.holds(ConditionType.SUCCEEDED)
    assert intent.status.completion_time == OBSERVED_AT
    assert deleted_names(intent) == ["job-ps-0", "job-worker-1"]
    assert deleted_names(intent, "services") == ["job-ps-0", "job-worker-1"]
    assert intent.status.phase == "CleanUp"


@pytest.mark.parametrize(("policy", "gone"), [("None", []), ("All", list(TEAM)), ("Strange", list(TEAM))])
def test_clean_pod_policy_says_what_goes(policy: str, gone: list[str]) -> None:
    intent = job_plan(TF, job(policy={"cleanPodPolicy": policy}), *members(worker_0="Succeeded"))
    assert deleted_names(intent) == gone
    assert intent.status.phase == ("CleanUp" if gone else "Done")


def test_clean_up_interrupted_between_pod_and_service_is_finished() -> None:
    wanted = job(policy={"cleanPodPolicy": "Running"})
    ended = job_plan(TF, wanted, *members(worker_0="Succeeded")).status
    left = make_member("Worker", 0, phase="Succeeded")
    intent = job_plan(TF, with_status(wanted, ended), left)
    assert deleted_names(intent, "services") == ["job-ps-0", "job-worker-1"]


def test_a_cleaned_up_job_is_done() -> None:
    wanted = job(policy={"cleanPodPolicy": "All"})
    ended = job_plan(TF, wanted, *members(worker_0="Succeeded")).status
    intent = job_plan(TF, with_status(wanted, ended), services=())
    assert intent.status.phase == "Done"
    assert not plan_actions(intent)


def test_a_finished_job_stays_as_it_is_whatever_is_edited() -> None:
    ended = job_plan(TF, job(), *members(worker_0="Succeeded")).status
    edited = with_status(make_job(TFJOB, ps=1, worker=5, generation=2), ended)
    intent = job_plan(TF, edited, services=())
    assert intent.status == ended
    assert not plan_actions(intent)


def test_a_job_is_deleted_when_its_time_to_live_is_over_and_not_before() -> None:
    wanted = job(policy={"ttlSecondsAfterFinished": 60})
    ended = with_status(wanted, job_plan(TF, wanted, *members(worker_0="Succeeded")).status)
    early = job_plan(TF, ended, after=timedelta(seconds=59))
    assert early.requeue_after == timedelta(seconds=1)
    assert DeleteJob() not in plan_actions(early)
    assert DeleteJob() in plan_actions(job_plan(TF, ended, after=timedelta(seconds=60)))


# Suspending


def test_suspending_sends_everything_away_and_keeps_the_start_time() -> None:
    running = job_plan(TF, job(), *members()).status
    wanted = with_status(job(policy={"suspend": True}), running)
    intent = job_plan(TF, wanted, *members(), after=timedelta(minutes=1))
    assert deleted_names(intent) == deleted_names(intent, "services") == list(TEAM)
    assert condition_pairs(intent.status) == [
        ("Created", "True"),
        ("Running", "False"),
        ("Suspended", "True"),
    ]
    assert intent.status.start_time == OBSERVED_AT
    assert intent.status.replica_statuses["Worker"].active == 0
    assert intent.status.phase == ""


def test_a_job_created_suspended_has_no_start_time_and_no_counters() -> None:
    intent = job_plan(TF, job(policy={"suspend": True}), services=())
    assert condition_pairs(intent.status) == [("Created", "True"), ("Suspended", "True")]
    assert intent.status.start_time is None
    assert intent.status.replica_statuses == {}


def test_resuming_starts_the_clock_anew() -> None:
    suspended = job_plan(TF, job(policy={"suspend": True}), services=()).status
    intent = job_plan(TF, with_status(job(), suspended), services=(), after=timedelta(minutes=5))
    assert condition_pairs(intent.status) == [("Created", "True"), ("Suspended", "False")]
    assert intent.status.start_time == OBSERVED_AT + timedelta(minutes=5)
    assert created_names(intent) == list(TEAM)
    assert intent.status.phase == "Creating"


def test_a_deadline_does_not_count_the_time_before_a_resume() -> None:
    policy = {"activeDeadlineSeconds": 60}
    running = job_plan(TF, job(policy=policy), *members()).status
    suspended = job_plan(TF, with_status(job(policy={**policy, "suspend": True}), running), *members()).status
    intent = job_plan(TF, with_status(job(policy=policy), suspended), services=(), after=timedelta(hours=1))
    assert not intent.status.finished
    assert intent.requeue_after == timedelta(seconds=60)


# The rest


def test_a_companion_is_made_changed_and_left_when_it_is_right() -> None:
    mpi = Mpi()
    wanted = make_job(MPIJOB, launcher=1, worker=2)
    fresh = job_plan(mpi, wanted, services=())
    assert created_names(fresh, "configmaps") == ["job-config"]
    config = created_body(fresh, "job-config", "configmaps")
    stored: dict[str, Any] = {**config, "metadata": {**config["metadata"], "uid": "c1"}}

    def again(found: dict[str, Any]) -> Any:
        from gangline.jobs.plan.observed import JobChildren, ObservedJob

        def find(resource: str, name: str) -> Any:
            return found if (resource, name) == ("configmaps", "job-config") else None

        return reconcile_plan(mpi, ObservedJob.of(mpi, wanted, OBSERVED_AT, JobChildren(), find=find))

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
