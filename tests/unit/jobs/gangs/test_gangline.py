"""Our own scheduler: PodGroup and pods, and what a job does when its gang cannot be placed."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.kubeflow.kinds import MPIJOB, PYTORCHJOB, TFJOB
from gangline.api.kubeflow.training import RESTART_SCOPE_ANNOTATION
from gangline.api.meta import JSON, Condition
from gangline.api.scheduling import (
    COMMIT_ANNOTATION,
    GANG_GATE,
    GANG_SCHEDULER_ANNOTATION,
    ON_TIMEOUT_ANNOTATION,
    PODGROUPS,
    PodGroupState,
)
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.pytorch import PyTorch
from gangline.frameworks.tensorflow import TensorFlow
from gangline.jobs.framework import Framework
from gangline.jobs.gangs.gangline import GanglineScheduler
from gangline.jobs.gangs.podgroup import NO_EVICTION_ANNOTATIONS
from gangline.jobs.gangs.scheduler_plugins import SchedulerPlugins
from gangline.jobs.gangs.volcano import Volcano
from gangline.jobs.plan.actions import Create, Delete, JobPlan, Patch
from gangline.jobs.plan.observed import JobChildren, ObservedJob
from gangline.jobs.plan.plan import reconcile_plan
from gangline.jobs.site import Site
from gangline.testing.builders import make_job, make_member
from support.builders.observed_jobs import (
    OBSERVED_AT,
    condition_pairs,
    created_body,
    created_names,
    job_services,
    plan_actions,
    with_status,
)

TORCH, MPI, TF = PyTorch(), Mpi(), TensorFlow()
GROUPS = PODGROUPS.name
SITE = Site(gang_scheduler=GanglineScheduler())
ELASTIC = {"elasticPolicy": {"minReplicas": 2, "maxReplicas": 6}}


def look(
    framework: Framework[Any],
    job: Any,
    *pods: Any,
    group: JSON | None = None,
    site: Site = SITE,
    after: timedelta = timedelta(),
) -> JobPlan:
    def find(resource: str, name: str) -> JSON | None:
        return group if (resource, name) == (GROUPS, "job") else None

    children = JobChildren(pods=pods, services=job_services(framework, job))
    return reconcile_plan(framework, ObservedJob.of(framework, job, OBSERVED_AT + after, children, site, find))


def group(phase: str = "", spec: JSON | None = None, message: str = "", running: int = 0) -> JSON:
    """The PodGroup of a job, in its phase since NOW."""
    state = PodGroupState(phase=phase, message=message, last_probe_time=OBSERVED_AT, last_transition_time=OBSERVED_AT)
    return {
        "metadata": {"name": "job", "uid": "g", "ownerReferences": [{"uid": "uid-job"}]},
        "spec": spec or {"minMember": 1},
        "status": {
            "running": running,
            "state": {} if not phase else msgspec.json.decode(msgspec.json.encode(state)),
        },
    }


def spec_of(framework: Framework[Any], job: Any, **more: Any) -> JSON:
    spec: JSON = created_body(look(framework, job, **more), "job", GROUPS)["spec"]
    return spec


def torch(policy: JSON | None = None, master: int = 1, worker: int = 3, **more: Any) -> Any:
    run_policy = {"schedulingPolicy": policy} if policy is not None else {}
    run_policy |= more.pop("run_policy", {})
    return make_job(PYTORCHJOB, master=master, worker=worker, policy=run_policy, **more)


# --- the PodGroup


def test_the_group_says_all_that_the_policy_says() -> None:
    policy = {
        "minAvailable": 3,
        "queue": "research",
        "priorityClass": "high",
        "minResources": {"cpu": "7"},
        "scheduleTimeoutSeconds": 30,
    }
    assert spec_of(TORCH, torch(policy)) == {
        "minMember": 3,
        "minTaskMember": {"master": 1},
        "queue": "research",
        "priorityClassName": "high",
        "minResources": {"cpu": "7"},
        "scheduleTimeoutSeconds": 30,
    }


def test_by_default_all_must_fit_and_roles_need_no_saying() -> None:
    assert spec_of(TORCH, torch()) == {"minMember": 4}


def test_an_mpi_job_needs_its_launcher_too() -> None:
    assert spec_of(MPI, make_job(MPIJOB, launcher=1, worker=4)) == {"minMember": 5}


def test_of_fewer_than_all_those_who_are_needed_are_there() -> None:
    job = make_job(TFJOB, chief=1, ps=2, worker=4, evaluator=1, policy={"schedulingPolicy": {"minAvailable": 4}})
    assert spec_of(TF, job)["minTaskMember"] == {"chief": 1, "ps": 2}


def test_a_minimum_below_those_who_are_needed_is_taken_as_written() -> None:
    job = make_job(TFJOB, ps=3, worker=4, policy={"schedulingPolicy": {"minAvailable": 2}})
    assert spec_of(TF, job) == {"minMember": 2}


def test_an_elastic_job_needs_as_few_as_it_can_train_with() -> None:
    job = make_job(PYTORCHJOB, worker=6, spec=ELASTIC)
    assert spec_of(TORCH, job) == {"minMember": 2}
    training_job = make_job(PYTORCHJOB, worker=6, spec=ELASTIC, policy={"schedulingPolicy": {"minAvailable": 5}})
    assert spec_of(TORCH, training_job) == {"minMember": 5}


def test_a_minimum_of_none_is_one() -> None:
    assert spec_of(TORCH, torch({"minAvailable": 0}))["minMember"] == 1


@pytest.mark.parametrize(
    ("written", "topology"),
    [
        ({"required-topology": "rack"}, {"key": "rack", "required": True}),
        ({"preferred-topology": "zone"}, {"key": "zone"}),
    ],
)
def test_a_topology_is_an_annotation(written: dict[str, str], topology: JSON) -> None:
    marked = {f"scheduling.gangline.dev/{name}": value for name, value in written.items()}
    assert spec_of(TORCH, torch(annotations=marked))["topology"] == topology


def test_the_group_has_the_jobs_labels_and_what_it_says_of_scheduling() -> None:
    about = {COMMIT_ANNOTATION: "pin", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    metadata = created_body(look(TORCH, torch(annotations=about)), "job", GROUPS)["metadata"]
    assert metadata["annotations"] == {COMMIT_ANNOTATION: "pin"}
    assert metadata["labels"]["training.kubeflow.org/job-name"] == "job"
    assert metadata["ownerReferences"][0]["uid"] == "uid-job"


def test_a_group_that_is_right_is_left_alone() -> None:
    settled = look(TORCH, torch({"queue": "a"}), group=group(spec={"minMember": 4, "queue": "a"}))
    assert not [action for action in plan_actions(settled) if isinstance(action, Patch)]


def test_a_group_moved_to_another_queue_stays_there() -> None:
    moved = look(TORCH, torch({"queue": "a"}), group=group(spec={"minMember": 4, "queue": "b"}))
    assert not [action for action in plan_actions(moved) if isinstance(action, Patch)]


# --- the pods


def test_all_pods_are_made_at_once_after_their_group() -> None:
    plan = look(TORCH, torch())
    stages = [[action.resource for action in stage if isinstance(action, Create)] for stage in plan.stages]
    assert stages == [[GROUPS], ["pods"] * 4]


def test_pods_name_their_group_and_its_scheduler() -> None:
    job = created_body(look(TORCH, torch()), "job-worker-2")
    assert job["spec"]["schedulerName"] == "gangline"
    assert "schedulingGates" not in job["spec"]
    assert job["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "job"
    assert job["metadata"]["labels"]["training.kubeflow.org/replica-type"] == "worker"


def test_pods_that_are_pinned_wait_at_a_gate_for_kube_scheduler() -> None:
    job = torch(annotations={COMMIT_ANNOTATION: "pin"})
    job.spec.pytorch_replica_specs["Worker"].template["spec"]["schedulingGates"] = [{"name": "mine"}]
    body = created_body(look(TORCH, job), "job-worker-0")
    assert body["spec"]["schedulingGates"] == [{"name": "mine"}, {"name": GANG_GATE}]
    assert "schedulerName" not in body["spec"]


@pytest.mark.parametrize(("commit", "warned"), [("bind", True), ("pin", False)])
def test_a_templates_own_scheduler_is_kept(commit: str, warned: bool) -> None:
    job = torch(annotations={COMMIT_ANNOTATION: commit})
    job.spec.pytorch_replica_specs["Worker"].template["spec"]["schedulerName"] = "mine"
    plan = look(TORCH, job)
    assert created_body(plan, "job-worker-0")["spec"]["schedulerName"] == "mine"
    # With a gate, the annotation names the PodGroup.
    messages = [note.reason for note in plan.events if note.warning]
    assert messages == (["SetPodTemplateSchedulerName"] if warned else [])


def test_autoscalers_are_asked_to_leave_members_where_they_are() -> None:
    job = created_body(look(TORCH, torch()), "job-worker-0")
    assert NO_EVICTION_ANNOTATIONS.items() <= job["metadata"]["annotations"].items()


def test_what_the_user_says_of_evictions_stands() -> None:
    job, mine = torch(), {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    job.spec.pytorch_replica_specs["Worker"].template["metadata"] = {"annotations": mine}
    annotations = created_body(look(TORCH, job), "job-worker-0")["metadata"]["annotations"]
    assert mine.items() <= annotations.items()
    assert annotations["karpenter.sh/do-not-disrupt"] == "true"


def test_elastic_members_above_the_minimum_may_be_evicted() -> None:
    plan = look(TORCH, make_job(PYTORCHJOB, worker=4, spec=ELASTIC))
    stays = [
        NO_EVICTION_ANNOTATIONS.keys() <= created_body(plan, f"job-worker-{index}")["metadata"]["annotations"].keys()
        for index in range(4)
    ]
    assert stays == [True, True, False, False]


def test_the_protection_can_be_switched_off() -> None:
    body = created_body(
        look(TORCH, torch(), site=Site(gang_scheduler=GanglineScheduler(protect=False))), "job-worker-0"
    )
    assert not NO_EVICTION_ANNOTATIONS.keys() & body["metadata"]["annotations"].keys()


# --- which jobs get a PodGroup


def test_on_request_only_jobs_with_a_policy_get_a_group() -> None:
    site = Site(gang_scheduler=GanglineScheduler(), gangs_on_request=True)
    assert created_names(look(TORCH, torch(), site=site), GROUPS) == []
    assert created_names(look(TORCH, torch({}), site=site), GROUPS) == ["job"]
    job = torch(annotations={GANG_SCHEDULER_ANNOTATION: "Gangline"})
    assert created_names(look(TORCH, job, site=site), GROUPS) == ["job"]


def test_a_job_may_ask_for_nobody_or_for_another() -> None:
    site = Site(gang_scheduler=GanglineScheduler(), other_gang_schedulers=(SchedulerPlugins("batch"), Volcano()))
    nobody = look(TORCH, torch({}, annotations={GANG_SCHEDULER_ANNOTATION: "none"}), site=site)
    assert created_names(nobody, GROUPS) == []
    assert "schedulerName" not in created_body(nobody, "job-worker-0")["spec"]
    other = look(TORCH, torch(annotations={GANG_SCHEDULER_ANNOTATION: "batch"}), site=site)
    assert created_names(other, "podgroups.scheduling.x-k8s.io") == ["job"]
    assert created_body(other, "job-worker-0")["spec"]["schedulerName"] == "batch"


def test_a_job_that_asks_for_one_who_is_not_there_is_told_what_to_install() -> None:
    plan = look(TORCH, torch(annotations={GANG_SCHEDULER_ANNOTATION: "volcano"}))
    assert created_names(plan) == created_names(plan, GROUPS) == []
    assert condition_pairs(plan.status) == [("Created", "True"), ("Blocked", "True")]
    (note,) = plan.events
    assert note == type(note)(
        "GangSchedulerMissing",
        'annotation scheduling.gangline.dev/gang-scheduler asks for "volcano", which this operator does not use; '
        "write one of gangline, none, or install that scheduler and start the operator with "
        "--gang-scheduler-name gangline,volcano",
        warning=True,
    )


def test_a_job_that_asked_for_one_who_is_not_there_is_finished_all_the_same() -> None:
    job = torch(annotations={GANG_SCHEDULER_ANNOTATION: "volcano"})
    done = make_member("Master", of=PYTORCHJOB, phase="Succeeded")
    assert condition_pairs(look(TORCH, job, done).status)[-1] == ("Succeeded", "True")


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("commit", "pinned", 'is "pinned", which has no effect; write one of bind, pin'),
        ("on-timeout", "explode", 'is "explode", which has no effect; write one of Fail, Wait'),
        ("comit", "pin", "has no effect; write one of scheduling.gangline.dev/commit, "),
    ],
)
def test_an_annotation_without_effect_is_told(name: str, value: str, told: str) -> None:
    (note,) = look(TORCH, torch(annotations={f"scheduling.gangline.dev/{name}": value})).events
    assert note.reason == "FieldIgnored"
    assert note.message.startswith(f"metadata.annotations[scheduling.gangline.dev/{name}]: {told}")


def test_annotations_with_an_effect_are_not_told() -> None:
    about = {
        COMMIT_ANNOTATION: "Pin",
        ON_TIMEOUT_ANNOTATION: "fail",
        GANG_SCHEDULER_ANNOTATION: "gangline",
        "other.example.com/x": "y",
    }
    assert not look(TORCH, torch(annotations=about)).events


# --- K39


@pytest.mark.parametrize("ends", ["suspended", "succeeded"])
def test_k39_the_group_goes_with_the_work(ends: str) -> None:
    job = torch(run_policy={"suspend": ends == "suspended"})
    pods = () if ends == "suspended" else (make_member("Master", of=PYTORCHJOB, phase="Succeeded"),)
    assert Delete(GROUPS, "job", "g") in plan_actions(look(TORCH, job, *pods, group=group("Running")))


# --- A6: Unschedulable


def mpi_team(*, number: int = 0, waiting: bool = True) -> list[Any]:
    phases = ["Running", "Running", "Pending" if waiting else "Running"]
    workers = [
        make_member("Worker", index, of=MPIJOB, phase=phase, number=number) for index, phase in enumerate(phases)
    ]
    return [make_member("Launcher", of=MPIJOB, number=number), *workers]


def mpi(**more: Any) -> Any:
    return make_job(MPIJOB, launcher=1, worker=3, **more)


NO_ROOM = "3/4 members running; 0/12 nodes: 8 lack nvidia.com/gpu, 4 tainted"


def test_k35_an_mpi_job_without_room_for_all_starts_anew() -> None:
    stuck = group("Unschedulable", message=NO_ROOM)
    plan = look(MPI, mpi(), *mpi_team(), group=stuck)
    deletes = {action.name for action in plan_actions(plan) if isinstance(action, Delete) and action.resource == "pods"}
    assert deletes == {"job-launcher", "job-worker-0", "job-worker-1", "job-worker-2"}
    assert plan.status.ledger.round == 1
    # No replica failed: the restart does not count against the backoff limit.
    assert plan.status.restarts == 0
    condition = plan.status.conditions[-1]
    assert (condition.type, condition.reason) == ("Restarting", "MPIJobRestarting")
    assert NO_ROOM in condition.message


def test_k35_once_for_each_time_it_comes_to_that() -> None:
    stuck = group("Unschedulable", message=NO_ROOM)
    first = look(MPI, mpi(), *mpi_team(), group=stuck)
    job = with_status(mpi(), first.status)
    # The scheduler has not seen all pods deleted; the new ones wait.
    second = look(MPI, job, *mpi_team(number=1, waiting=True), group=stuck)
    assert second.status.ledger.round == 1
    assert not [action for action in plan_actions(second) if isinstance(action, Delete)]
    later = group("Unschedulable")
    later["status"]["state"]["lastTransitionTime"] = "2026-01-01T13:00:00Z"
    third = look(MPI, job, *mpi_team(number=1), group=later)
    assert third.status.ledger.round == 2


def test_k35_a_budget_of_none_does_not_end_it() -> None:
    job = mpi(policy={"backoffLimit": 0})
    plan = look(MPI, job, *mpi_team(), group=group("Unschedulable"))
    assert plan.status.ledger.round == 1
    assert not plan.status.finished


def test_a_team_that_starts_anew_for_room_waits_longer_every_time() -> None:
    job = with_status(mpi(), look(MPI, mpi(), *mpi_team(), group=group("Unschedulable")).status)
    again = group("Unschedulable")
    again["status"]["state"]["lastTransitionTime"] = "2026-01-01T12:00:05Z"
    second = look(MPI, job, *mpi_team(number=1), group=again, after=timedelta(seconds=5))
    assert second.status.ledger.not_before == OBSERVED_AT + timedelta(seconds=15)


@pytest.mark.parametrize("phase", ["", "Pending", "Running", "Recovering"])
def test_in_no_other_phase_does_a_team_start_anew(phase: str) -> None:
    plan = look(MPI, mpi(), *mpi_team(), group=group(phase))
    assert plan.status.ledger.round == 0


def test_whoever_asks_starts_anew_and_others_wait() -> None:
    def rounds(**more: Any) -> int:
        pods = [
            make_member("Worker", 0, of=PYTORCHJOB),
            make_member("Worker", 1, of=PYTORCHJOB, phase="Pending"),
        ]
        job = make_job(PYTORCHJOB, worker=2, **more)
        return look(TORCH, job, *pods, group=group("Unschedulable")).status.ledger.round

    assert rounds() == 0
    assert rounds(policy={"restartScope": "Job"}) == 1
    assert rounds(annotations={RESTART_SCOPE_ANNOTATION: "Job"}) == 1
    training_job = mpi(annotations={RESTART_SCOPE_ANNOTATION: "Replica"})
    assert look(MPI, training_job, *mpi_team(), group=group("Unschedulable")).status.ledger.round == 0


def test_the_state_of_somebody_elses_group_counts_for_nothing() -> None:
    stranger = group("Unschedulable")
    stranger["metadata"]["ownerReferences"] = [{"uid": "another"}]
    assert look(MPI, mpi(), *mpi_team(), group=stranger).status.ledger.round == 0


# --- A6: elastic jobs shrink


def elastic(running: int, minimum: int, phase: str, asked: int = 5) -> int | None:
    """The new minimum of the PodGroup of an elastic job of six (at least two); None: it is not changed."""
    job = make_job(PYTORCHJOB, worker=6, spec=ELASTIC, policy={"schedulingPolicy": {"minAvailable": asked}})
    there = group(phase, {"minMember": minimum}, running=running)
    pods = [
        make_member("Worker", index, of=PYTORCHJOB, phase="Running" if index < running else "Pending")
        for index in range(6)
    ]
    changes = [action for action in plan_actions(look(TORCH, job, *pods, group=there)) if isinstance(action, Patch)]
    return changes[0].body["spec"]["minMember"] if changes else None


def test_an_elastic_team_without_room_goes_on_with_those_who_run() -> None:
    assert elastic(running=3, minimum=5, phase="Unschedulable") == 3


def test_an_elastic_team_never_shrinks_below_what_it_can_train_with() -> None:
    assert elastic(running=1, minimum=5, phase="Unschedulable") is None


def test_a_team_that_shrank_stays_so_until_as_many_run_again() -> None:
    assert elastic(running=3, minimum=3, phase="Running") is None
    assert elastic(running=4, minimum=3, phase="Running") is None
    assert elastic(running=5, minimum=3, phase="Running") == 5


def test_a_team_that_shrank_and_starts_again_wants_all_it_asked_for() -> None:
    assert elastic(running=0, minimum=3, phase="Pending") == 5


# --- K40


def waiting(job: Any, seconds: int, **more: Any) -> JobPlan:
    pods = [make_member("Worker", index, of=PYTORCHJOB, phase="Pending") for index in range(2)]
    there = group("Pending", {"minMember": 2}, "0/2 members running; 0/3 nodes: 3 lack cpu")
    return look(TORCH, job, *pods, group=there, after=timedelta(seconds=seconds), **more)


def patient(**more: Any) -> Any:
    policy = {"schedulingPolicy": {"scheduleTimeoutSeconds": 30}}
    return make_job(PYTORCHJOB, worker=2, policy=policy, **more)


def test_k40_a_gang_that_finds_no_place_in_time_is_told_once() -> None:
    before = waiting(patient(), 30)
    assert not before.events
    assert before.requeue_after == timedelta(seconds=1)
    after = waiting(patient(), 31)
    (note,) = [note for note in after.events if note.warning]
    assert note.reason == "GangTimeout"
    assert note.message == (
        "its gang found no place within 30 s: 0/2 members running; 0/3 nodes: 3 lack cpu; it goes on waiting"
    )
    assert not after.status.finished
    job = waiting(with_status(patient(), after.status), 32)
    assert not job.events
    assert job.requeue_after is None


def test_k40_the_job_fails_if_it_says_so() -> None:
    job = patient(annotations={ON_TIMEOUT_ANNOTATION: "Fail"})
    assert not waiting(job, 30).status.finished
    failed = waiting(job, 31)
    condition = failed.status.conditions[-1]
    assert (condition.type, condition.message.partition(":")[0]) == (
        "Failed",
        "Job job has failed because its gang found no place within 30 s",
    )
    assert {action.resource for action in plan_actions(failed) if isinstance(action, Delete)} >= {"pods", GROUPS}


def test_k40_without_a_time_it_is_a_minute() -> None:
    job = make_job(PYTORCHJOB, worker=2)
    assert not waiting(job, 60).events
    assert waiting(job, 61).events


def test_why_a_gang_waits_is_not_told_for_each_of_its_pods() -> None:
    refused = Condition(type="PodScheduled", status="False", reason="Unschedulable", message="0/3 nodes")
    pods = [make_member("Worker", index, of=PYTORCHJOB, phase="Pending") for index in range(2)]
    pods = [
        msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, conditions=(refused,))) for pod in pods
    ]
    job = make_job(PYTORCHJOB, worker=2)
    assert not look(TORCH, job, *pods, group=group("Pending")).events
    assert len(look(TORCH, job, *pods, site=Site()).events) == 2


def test_a_gang_that_runs_is_not_late() -> None:
    job = patient(annotations={ON_TIMEOUT_ANNOTATION: "Fail"})
    pods = [make_member("Worker", index, of=PYTORCHJOB) for index in range(2)]
    plan = look(TORCH, job, *pods, group=group("Running"), after=timedelta(hours=1))
    assert not plan.status.finished
