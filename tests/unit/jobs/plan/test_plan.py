"""The planner: values in, values out."""

import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.core import Service
from gangline.api.kubeflow.jaxjob import JAXJOB
from gangline.api.kubeflow.mpijob import MPIJOB
from gangline.api.kubeflow.pytorchjob import PYTORCHJOB
from gangline.api.kubeflow.tfjob import TFJOB
from gangline.api.kubeflow.training import ADDRESSES, REPLICA_INDEX, ConditionType, JobStatus, Ledger
from gangline.api.meta import ObjectMeta
from gangline.frameworks.jax import Jax
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.pytorch import PyTorch
from gangline.frameworks.tensorflow import TensorFlow
from gangline.jobs.plan.actions import Adopt, Change, Create, DeleteJob
from gangline.jobs.plan.plan import plan
from gangline.jobs.pods.addressing import Services, Site
from gangline.testing.builders import make_job, make_member, make_tfjob
from support.builders.observed_jobs import (
    NOW,
    actions,
    body,
    conditions,
    created,
    deleted,
    having,
    planned,
    seen,
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
    intent = planned(TF, job(), services=())
    kinds = [{action.resource for action in stage if isinstance(action, Create)} for stage in intent.stages]
    assert kinds == [{"services"}, {"pods"}]
    assert created(intent, "services") == created(intent) == list(TEAM)


def test_on_one_machine_no_pod_starts_before_every_address_is_known() -> None:
    book = {ADDRESSES: json.dumps({"tfjob-port": "127.0.0.1:9000"})}
    one = Service(metadata=ObjectMeta(name="job-ps-0", namespace="default", annotations=book))
    assert not created(planned(TF, job(), services=[one], site=LOCAL))
    every = [
        msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, name=n)) for n in TEAM
    ]
    assert created(planned(TF, job(), services=every, site=LOCAL)) == list(TEAM)


def test_on_one_machine_each_member_is_told_all_endpoints() -> None:
    there = [
        Service(
            metadata=ObjectMeta(
                name=name,
                namespace="default",
                annotations={ADDRESSES: json.dumps({"tfjob-port": f"127.0.0.1:{9000 + n}"})},
            )
        )
        for n, name in enumerate(TEAM)
    ]
    made = body(planned(TF, job(), services=there, site=LOCAL), "job-worker-1")
    env = {each["name"]: each["value"] for each in made["spec"]["containers"][0]["env"]}
    assert json.loads(env["GANGLINE_ENDPOINTS"]) == {
        "ps": ["127.0.0.1:9000"],
        "worker": ["127.0.0.1:9001", "127.0.0.1:9002"],
    }


def test_in_a_cluster_nobody_is_told_endpoints_as_in_v1() -> None:
    made = body(planned(TF, job()), "job-worker-1")
    assert [each["name"] for each in made["spec"]["containers"][0]["env"]] == ["TF_CONFIG"]


def test_every_missing_seat_is_filled_and_no_other() -> None:
    intent = planned(TF, job(), make_member("PS", 0), make_member("Worker", 1))
    assert created(intent) == ["job-worker-0"]


def test_what_we_made_and_the_cache_does_not_show_yet_is_not_made_again() -> None:
    awaited = frozenset({("pods", "job-worker-0"), ("pods", "job-worker-1"), ("services", "job-ps-0")})
    intent = planned(TF, job(), make_member("PS", 0), services=(), awaited=awaited)
    assert created(intent) == []
    assert created(intent, "services") == ["job-worker-0", "job-worker-1"]


def test_a_template_is_passed_on_whole_and_never_changed() -> None:
    wanted = job()
    template = wanted.spec.tf_replica_specs["Worker"].template
    template["spec"]["fieldOfTheFuture"] = {"kept": True}
    before = json.dumps(template)
    assert body(planned(TF, wanted), "job-worker-0")["spec"]["fieldOfTheFuture"] == {"kept": True}
    assert json.dumps(template) == before


def test_one_service_per_job_gives_pods_host_names() -> None:
    site = Site(services=Services.PER_JOB)
    intent = planned(TF, job(), services=(), site=site)
    assert created(intent, "services") == ["job"]
    made = body(intent, "job-worker-1")["spec"]
    assert (made["hostname"], made["subdomain"]) == ("job-worker-1", "job")
    assert "job-worker-1.job.default.svc:2222" in made["containers"][0]["env"][0]["value"]


def test_a_scaled_down_team_loses_the_highest_pods_and_services() -> None:
    pods = [make_member("Worker", n) for n in range(3)]
    wanted = make_job(TFJOB, worker=1)
    there = seen(TF, make_job(TFJOB, worker=3)).children.services
    intent = planned(TF, wanted, *pods, services=there)
    assert deleted(intent) == ["job-worker-1", "job-worker-2"]
    assert deleted(intent, "services") == ["job-worker-1", "job-worker-2"]
    assert created(intent) == []


# Whose


def test_an_orphan_with_our_labels_and_name_is_adopted_not_made_anew() -> None:
    orphan = make_member("Worker", 0)
    intent = planned(TF, job(), make_member("PS", 0), orphans=(("pods", orphan),))
    assert Adopt("pods", "job-worker-0", "uid-job-worker-0") in actions(intent)
    assert created(intent) == ["job-worker-1"]


def test_an_orphan_of_another_name_is_left_alone() -> None:
    stray = make_member("Worker", 7)
    assert not any(isinstance(a, Adopt) for a in actions(planned(TF, job(), orphans=(("pods", stray),))))


def test_a_pod_of_ours_that_lost_a_label_gets_it_back() -> None:
    pod = make_member("Worker", 0)
    labels = {key: value for key, value in pod.metadata.labels.items() if key != REPLICA_INDEX}
    relabelled = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels))
    (change,) = [a for a in actions(planned(TF, job(), relabelled)) if isinstance(a, Change)]
    assert change.body["metadata"]["labels"][REPLICA_INDEX] == "0"
    assert change.uid == pod.metadata.uid


def test_a_job_managed_by_somebody_else_is_left_alone() -> None:
    wanted = job(policy={"managedBy": "kueue.x-k8s.io/multikueue"})
    intent = planned(TF, wanted, services=())
    assert intent.status == JobStatus()
    assert intent.stages == ()


# Ending


def test_success_stops_what_still_runs_when_the_policy_says_so() -> None:
    intent = planned(TF, job(policy={"cleanPodPolicy": "Running"}), *members(worker_0="Succeeded"))
    assert intent.status.holds(ConditionType.SUCCEEDED)
    assert intent.status.completion_time == NOW
    assert deleted(intent) == ["job-ps-0", "job-worker-1"]
    assert deleted(intent, "services") == ["job-ps-0", "job-worker-1"]
    assert intent.status.phase == "CleanUp"


@pytest.mark.parametrize(("policy", "gone"), [("None", []), ("All", list(TEAM)), ("Strange", list(TEAM))])
def test_clean_pod_policy_says_what_goes(policy: str, gone: list[str]) -> None:
    intent = planned(TF, job(policy={"cleanPodPolicy": policy}), *members(worker_0="Succeeded"))
    assert deleted(intent) == gone
    assert intent.status.phase == ("CleanUp" if gone else "Done")


def test_clean_up_interrupted_between_pod_and_service_is_finished() -> None:
    wanted = job(policy={"cleanPodPolicy": "Running"})
    ended = planned(TF, wanted, *members(worker_0="Succeeded")).status
    left = make_member("Worker", 0, phase="Succeeded")
    intent = planned(TF, having(wanted, ended), left)
    assert deleted(intent, "services") == ["job-ps-0", "job-worker-1"]


def test_a_cleaned_up_job_is_done() -> None:
    wanted = job(policy={"cleanPodPolicy": "All"})
    ended = planned(TF, wanted, *members(worker_0="Succeeded")).status
    intent = planned(TF, having(wanted, ended), services=())
    assert intent.status.phase == "Done"
    assert not actions(intent)


def test_a_finished_job_stays_as_it_is_whatever_is_edited() -> None:
    ended = planned(TF, job(), *members(worker_0="Succeeded")).status
    edited = having(make_job(TFJOB, ps=1, worker=5, generation=2), ended)
    intent = planned(TF, edited, services=())
    assert intent.status == ended
    assert not actions(intent)


def test_a_job_is_deleted_when_its_time_to_live_is_over_and_not_before() -> None:
    wanted = job(policy={"ttlSecondsAfterFinished": 60})
    ended = having(wanted, planned(TF, wanted, *members(worker_0="Succeeded")).status)
    early = planned(TF, ended, after=timedelta(seconds=59))
    assert early.wake_after == timedelta(seconds=1)
    assert DeleteJob() not in actions(early)
    assert DeleteJob() in actions(planned(TF, ended, after=timedelta(seconds=60)))


# Suspending


def test_suspending_sends_everything_away_and_keeps_the_start_time() -> None:
    running = planned(TF, job(), *members()).status
    wanted = having(job(policy={"suspend": True}), running)
    intent = planned(TF, wanted, *members(), after=timedelta(minutes=1))
    assert deleted(intent) == deleted(intent, "services") == list(TEAM)
    assert conditions(intent.status) == [("Created", "True"), ("Running", "False"), ("Suspended", "True")]
    assert intent.status.start_time == NOW
    assert intent.status.replica_statuses["Worker"].active == 0
    assert intent.status.phase == ""


def test_a_job_created_suspended_has_no_start_time_and_no_counters() -> None:
    intent = planned(TF, job(policy={"suspend": True}), services=())
    assert conditions(intent.status) == [("Created", "True"), ("Suspended", "True")]
    assert intent.status.start_time is None
    assert intent.status.replica_statuses == {}


def test_resuming_starts_the_clock_anew() -> None:
    suspended = planned(TF, job(policy={"suspend": True}), services=()).status
    intent = planned(TF, having(job(), suspended), services=(), after=timedelta(minutes=5))
    assert conditions(intent.status) == [("Created", "True"), ("Suspended", "False")]
    assert intent.status.start_time == NOW + timedelta(minutes=5)
    assert created(intent) == list(TEAM)
    assert intent.status.phase == "Creating"


def test_a_deadline_does_not_count_the_time_before_a_resume() -> None:
    policy = {"activeDeadlineSeconds": 60}
    running = planned(TF, job(policy=policy), *members()).status
    suspended = planned(TF, having(job(policy={**policy, "suspend": True}), running), *members()).status
    intent = planned(TF, having(job(policy=policy), suspended), services=(), after=timedelta(hours=1))
    assert not intent.status.finished
    assert intent.wake_after == timedelta(seconds=60)


# The rest


def test_a_companion_is_made_changed_and_left_when_it_is_right() -> None:
    mpi = Mpi()
    wanted = make_job(MPIJOB, launcher=1, worker=2)
    fresh = planned(mpi, wanted, services=())
    assert created(fresh, "configmaps") == ["job-config"]
    config = body(fresh, "job-config", "configmaps")
    stored: dict[str, Any] = {**config, "metadata": {**config["metadata"], "uid": "c1"}}

    def again(found: dict[str, Any]) -> Any:
        from gangline.jobs.plan.observed import Children, Observed

        def find(resource: str, name: str) -> Any:
            return found if (resource, name) == ("configmaps", "job-config") else None

        return plan(mpi, Observed.of(mpi, wanted, NOW, Children(), find=find))

    assert not [
        a for a in actions(again(stored)) if isinstance(a, (Change, Create)) and a.resource == "configmaps"
    ]
    broken = {**stored, "data": {**stored["data"], "hostfile": "nobody"}}
    (change,) = [a for a in actions(again(broken)) if isinstance(a, Change)]
    assert change.body == {"data": config["data"]}


def test_an_mpi_job_has_no_services() -> None:
    assert created(planned(Mpi(), make_job(MPIJOB, launcher=1, worker=2), services=()), "services") == []


def test_scalable_kinds_say_which_pods_are_theirs() -> None:
    status = planned(Jax(), make_job(JAXJOB, worker=1)).status
    assert status.replica_statuses["Worker"].selector == (
        "training.kubeflow.org/job-name=job,training.kubeflow.org/operator-name=jaxjob-controller,"
        "training.kubeflow.org/replica-type=worker"
    )


def test_a_plan_that_was_carried_out_is_followed_by_an_empty_one() -> None:
    first = planned(TF, job(), services=())
    then = planned(
        TF, having(job(), first.status), *members(ps_0="Pending", worker_0="Pending", worker_1="Pending")
    )
    assert then.status == first.status
    assert not actions(then)


def test_a_plan_prints_as_json() -> None:
    text = msgspec.json.encode(planned(TF, make_tfjob(worker=1)))
    assert json.loads(text)["stages"][1][0]["type"] == "Create"


def test_states_are_counted_per_replica_type() -> None:
    pods = members(ps_0="Pending", worker_1="Failed")
    status = planned(TF, job(restart="Never"), *pods).status
    assert status.replica_statuses["Worker"].states == {"Running": 1, "Failed": 1}
    assert status.replica_statuses["Worker"].state == "Failed"
    assert status.replica_statuses["PS"].states == {"Unknown": 1}


def test_the_generation_that_was_acted_on_is_told() -> None:
    assert planned(TF, job(generation=7)).status.observed_generation == 7


def test_ledger_is_absent_while_nothing_ever_restarted() -> None:
    assert planned(PyTorch(), make_job(PYTORCHJOB, master=1)).status.ledger == Ledger()
