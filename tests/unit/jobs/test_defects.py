"""The defects of the operator we replace (contract section 10, rows marked fix): each test fails on its behaviour."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.core import Container
from gangline.api.kubeflow.kinds import MPIJOB, PADDLEJOB, PYTORCHJOB, TFJOB, TRAINING_KINDS, XGBOOSTJOB
from gangline.api.kubeflow.training import ConditionType, JobKind, JobStatus
from gangline.frameworks.jax import Jax
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.paddle import Paddle
from gangline.frameworks.pytorch import PyTorch
from gangline.frameworks.tensorflow import TensorFlow
from gangline.frameworks.xgboost import XGBoost
from gangline.jobs.framework import Framework
from gangline.jobs.plan.actions import JobEvent, Rejection
from gangline.jobs.plan.finish import rejected_status
from gangline.testing.builders import make_job, make_member
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

BY_KIND: dict[str, Framework[Any]] = {
    "TFJob": TensorFlow(),
    "PyTorchJob": PyTorch(),
    "XGBoostJob": XGBoost(),
    "MPIJob": Mpi(),
    "PaddleJob": Paddle(),
    "JAXJob": Jax(),
}
LEADERS = {"TFJob": "Worker", "MPIJob": "Launcher", "JAXJob": "Worker"}
every_kind = pytest.mark.parametrize("of", TRAINING_KINDS, ids=lambda kind: kind.kind)


def leader(of: JobKind) -> str:
    return LEADERS.get(of.kind, "Master")


def one_of_each(of: JobKind, **more: Any) -> Any:
    """A job with a leader and two workers."""
    replicas: dict[str, Any] = {leader(of).lower(): 1, "worker": 2}
    return make_job(of, **replicas, **more)


def team(of: JobKind, *instead: Any) -> list[Any]:
    names = {pod.metadata.name for pod in instead}
    pods = [make_member(leader(of), 0, of=of), *(make_member("Worker", n, of=of) for n in range(2))]
    return [*instead, *{pod.metadata.name: pod for pod in pods if pod.metadata.name not in names}.values()]


def failed(of: JobKind, code: int, kind: str = "Worker", index: int = 1) -> Any:
    return make_member(kind, index, of=of, phase="Failed", exit_code=code, finished_at=OBSERVED_AT)


@pytest.mark.parametrize("of", [PADDLEJOB, PYTORCHJOB], ids=lambda kind: kind.kind)
def test_d1_an_elastic_policy_without_workers_fails_one_job_and_not_the_operator(of: JobKind) -> None:
    status = job_plan(BY_KIND[of.kind], make_job(of, master=1, spec={"elasticPolicy": {}})).status
    assert status.holds(ConditionType.FAILED)
    condition = status.condition(ConditionType.FAILED)
    assert condition is not None
    assert "Worker" in condition.message


@every_kind
def test_d2_seats_beyond_the_replicas_are_never_filled(of: JobKind) -> None:
    framework = BY_KIND[of.kind]
    replicas: dict[str, Any] = {leader(of).lower(): 1, "worker": 1}
    job = make_job(of, **replicas)
    # Index 1 vanished before index 2: only 2 is deleted, and nothing is created.
    pods = [
        make_member(leader(of), 0, of=of),
        make_member("Worker", 0, of=of),
        make_member("Worker", 2, of=of),
    ]
    plan = job_plan(framework, job, *{pod.metadata.name: pod for pod in pods}.values())
    assert deleted_names(plan) == ["job-worker-2"]
    assert created_names(plan) == []


def test_d2_no_replicas_means_no_pods() -> None:
    job = make_job(PYTORCHJOB, master=1, worker=0)
    assert created_names(job_plan(PyTorch(), job)) == ["job-master-0"]


@every_kind
def test_d3_a_deadline_wakes_the_operator_by_itself(of: JobKind) -> None:
    framework = BY_KIND[of.kind]
    wanted = one_of_each(of, policy={"activeDeadlineSeconds": 60})
    running = job_plan(framework, wanted, *team(of))
    assert running.requeue_after == timedelta(seconds=61)
    late = job_plan(framework, with_status(wanted, running.status), *team(of), after=timedelta(seconds=61))
    assert late.status.holds(ConditionType.FAILED)
    assert len(deleted_names(late)) == len(team(of))


@every_kind
def test_d3_replaced_pods_count_against_the_limit(of: JobKind) -> None:
    framework = BY_KIND[of.kind]
    wanted = one_of_each(of, restart="ExitCode", policy={"backoffLimit": 2})
    status = JobStatus()
    for attempt in range(3):
        assert not status.finished
        pod = make_member("Worker", 1, of=of, phase="Failed", exit_code=137, uid=f"attempt-{attempt}")
        status = job_plan(framework, with_status(wanted, status), *team(of, pod)).status
    condition = status.condition(ConditionType.FAILED)
    assert condition is not None
    assert condition.message.endswith("it has reached the specified backoff limit")


@every_kind
def test_d4_a_permanent_exit_code_ends_the_job_properly(of: JobKind) -> None:
    framework = BY_KIND[of.kind]
    wanted = one_of_each(of, restart="ExitCode", policy={"ttlSecondsAfterFinished": 10})
    plan = job_plan(framework, wanted, *team(of, failed(of, 1)))
    assert plan.status.holds(ConditionType.FAILED)
    assert plan.status.completion_time == OBSERVED_AT
    assert plan.requeue_after == timedelta(seconds=11)
    assert [note.reason for note in plan.events] == [f"{of.kind}Failed", "ExitedWithCode"]
    assert not plan.status.condition(ConditionType.RESTARTING)


@every_kind
def test_d5_created_is_there_whoever_touched_the_job_first(of: JobKind) -> None:
    touched = one_of_each(of, annotations={"kueue.x-k8s.io/queue": "x"}, generation=3)
    assert condition_pairs(job_plan(BY_KIND[of.kind], touched).status)[0] == ("Created", "True")


@pytest.mark.parametrize("policy", ["OnFailure", "Always"])
def test_d6_an_xgboost_replica_that_may_restart_does_not_fail_the_job(policy: str) -> None:
    wanted = one_of_each(XGBOOSTJOB, restart=policy)
    plan = job_plan(XGBoost(), wanted, *team(XGBOOSTJOB, failed(XGBOOSTJOB, 1)))
    assert not plan.status.finished
    assert deleted_names(plan) == ["job-worker-1"]


@pytest.mark.parametrize(("kind", "name"), [("Worker", "job-worker-1"), ("Launcher", "job-launcher")])
def test_d7_mpi_replicas_restart_under_exit_code(kind: str, name: str) -> None:
    wanted = one_of_each(MPIJOB, restart="ExitCode")
    plan = job_plan(Mpi(), wanted, *team(MPIJOB, failed(MPIJOB, 137, kind)))
    assert deleted_names(plan) == [name]
    assert not plan.status.finished
    assert job_plan(Mpi(), wanted, *team(MPIJOB, failed(MPIJOB, 1, kind))).status.holds(ConditionType.FAILED)


def test_d7_an_evicted_launcher_is_made_anew() -> None:
    evicted = make_member("Launcher", of=MPIJOB, phase="Failed", reason="Evicted")
    plan = job_plan(Mpi(), one_of_each(MPIJOB, restart="OnFailure"), *team(MPIJOB, evicted))
    assert deleted_names(plan) == ["job-launcher"]


@pytest.mark.parametrize(("code", "verdict"), [(1, ConditionType.FAILED), (137, ConditionType.RESTARTING)])
def test_d7_an_exit_code_counts_whatever_an_mpi_job_calls_its_container(code: int, verdict: ConditionType) -> None:
    of = MPIJOB
    pod = make_member(
        "Launcher", of=of, phase="Failed", exit_code=code, finished_at=OBSERVED_AT, container="mpi-launcher"
    )
    containers = (Container(name="mpi-launcher"), Container(name="proxy"))
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=containers))
    plan = job_plan(Mpi(), one_of_each(of, restart="ExitCode"), *team(of, pod))
    assert plan.status.holds(verdict)
    assert plan.status.first_failure is not None
    assert plan.status.first_failure.exit_code == code


@every_kind
@pytest.mark.parametrize("policy", ["Never", "OnFailure", "ExitCode"])
def test_d8_a_pod_on_its_way_out_is_not_a_failed_one(of: JobKind, policy: str) -> None:
    drained = make_member("Worker", 1, of=of, leaving=OBSERVED_AT)
    status = job_plan(BY_KIND[of.kind], one_of_each(of, restart=policy), *team(of, drained)).status
    assert not status.finished
    assert not status.condition(ConditionType.RESTARTING)
    assert status.replica_statuses["Worker"].failed == 0


@pytest.mark.parametrize("of", [kind for kind in TRAINING_KINDS if kind.port], ids=lambda kind: kind.kind)
def test_d9_an_unnamed_port_gets_a_name_in_the_service(of: JobKind) -> None:
    wanted = one_of_each(of)
    specs = getattr(wanted.spec, of.attribute)
    specs["Worker"].template["spec"]["containers"][0]["ports"] = [
        {"containerPort": 8080},
        {"containerPort": 9090},
    ]
    body = created_body(job_plan(BY_KIND[of.kind], wanted, services=()), "job-worker-1", "services")
    assert of.port is not None
    assert body["spec"]["ports"] == [
        {"name": "port-8080", "port": 8080},
        {"name": "port-9090", "port": 9090},
        {"name": of.port.name, "port": of.port.number},
    ]


@every_kind
def test_d10_a_bad_restart_policy_fails_the_job_once(of: JobKind) -> None:
    framework = BY_KIND[of.kind]
    wanted = one_of_each(of, restart="Sometimes")
    plan = job_plan(framework, wanted, services=())
    condition = plan.status.condition(ConditionType.FAILED)
    assert condition is not None
    assert condition.reason == f"{of.kind}FailedValidation"
    assert 'restartPolicy: is "Sometimes"; write one of Always, OnFailure, Never, ExitCode' in condition.message
    assert not created_names(plan)
    job = job_plan(framework, with_status(wanted, plan.status), services=())
    assert job.status == plan.status
    assert not plan_actions(job)


@every_kind
def test_d10_what_quota_refuses_is_a_condition_and_is_tried_again(of: JobKind) -> None:
    framework = BY_KIND[of.kind]
    wanted = one_of_each(of)
    view = observed_job(framework, wanted)
    status = job_plan(framework, wanted).status
    blocked = rejected_status(
        framework, view, with_status(wanted, status), [Rejection("Pod", "pod job-worker-0: exceeded quota")]
    )
    assert condition_pairs(blocked) == [("Created", "True"), ("Blocked", "True")]
    retried = job_plan(framework, with_status(wanted, blocked))
    assert "job-worker-1" in created_names(retried)
    allowed = job_plan(framework, with_status(wanted, blocked), *team(of))
    if not any(True for _ in plan_actions(allowed)):
        assert not allowed.status.condition(ConditionType.BLOCKED)


@every_kind
def test_d10_what_can_never_be_made_fails_the_job(of: JobKind) -> None:
    framework = BY_KIND[of.kind]
    wanted = one_of_each(of)
    view = observed_job(framework, wanted)
    status = rejected_status(framework, view, wanted, [Rejection("Pod", "spec.x: Invalid value", permanent=True)])
    assert status.holds(ConditionType.FAILED)
    assert status.completion_time == OBSERVED_AT
    job = job_plan(framework, with_status(wanted, status), make_member("Worker", 0, of=of))
    assert deleted_names(job) == ["job-worker-0"]


@every_kind
def test_d14_services_are_made_before_pods_and_types_in_a_fixed_order(of: JobKind) -> None:
    framework = BY_KIND[of.kind]
    plans = [job_plan(framework, one_of_each(of), services=()) for _ in range(3)]
    assert len({msgspec.json.encode(plan) for plan in plans}) == 1
    if of.port is not None:
        assert created_names(plans[0], "services") == created_names(plans[0])


@every_kind
def test_d18_a_job_managed_by_another_is_left_alone_by_every_kind(of: JobKind) -> None:
    wanted = one_of_each(of, policy={"managedBy": "kueue.x-k8s.io/multikueue"})
    plan = job_plan(BY_KIND[of.kind], wanted, services=())
    assert plan.status == JobStatus()
    assert not plan_actions(plan)


@pytest.mark.parametrize("of", [PYTORCHJOB, XGBOOSTJOB], ids=lambda kind: kind.kind)
def test_d19_a_master_without_replicas_is_one_master(of: JobKind) -> None:
    wanted = one_of_each(of)
    specs = getattr(wanted.spec, of.attribute)
    specs["Master"] = msgspec.structs.replace(specs["Master"], replicas=None)
    assert "job-master-0" in created_names(job_plan(BY_KIND[of.kind], wanted))


def test_d20_an_unknown_replica_type_is_told_not_ignored() -> None:
    job = make_job(TFJOB, worker=1, Boss=1)
    condition = job_plan(TensorFlow(), job).status.condition(ConditionType.FAILED)
    assert condition is not None
    assert "spec.tfReplicaSpecs.Boss: is no replica type of a TFJob" in condition.message


def test_d11_pods_that_hold_their_resources_after_success_are_told() -> None:
    done = [make_member("Worker", 0, phase="Succeeded"), make_member("PS", 0)]
    plan = job_plan(TensorFlow(), make_job(TFJOB, ps=1, worker=1), *done)
    assert [note.reason for note in plan.events] == ["PodsLeftRunning", "TFJobSucceeded"]
    tidy = make_job(TFJOB, ps=1, worker=1, policy={"cleanPodPolicy": "Running"})
    assert [note.reason for note in job_plan(TensorFlow(), tidy, *done).events] == ["TFJobSucceeded"]


def test_d20_fields_without_effect_are_told_once() -> None:
    job = make_job(PADDLEJOB, worker=1, spec={"elasticPolicy": {"minReplicas": 1}})
    job.spec.paddle_replica_specs["Worker"].template["metadata"] = {"name": "mine"}
    first = job_plan(Paddle(), job)
    messages = [note.message for note in first.events if note.reason == "FieldIgnored"]
    assert [text.partition(":")[0] for text in messages] == [
        "spec.paddleReplicaSpecs.Worker.template.metadata.name",
        "spec.elasticPolicy",
    ]
    assert not job_plan(Paddle(), with_status(job, first.status)).events


NO_EFFECT = "has no effect on failures of {}: their restartPolicy is Never, so they are final; write ExitCode or"
SCOPE_FIELD = "spec.runPolicy.restartScope"
SCOPE_ANNOTATION = "training.gangline.dev/restart-scope"


@pytest.mark.parametrize(
    ("policies", "whose"),
    [
        ({"Master": "Never", "Worker": "Never"}, "every replica"),
        ({"Master": "Never", "Worker": "ExitCode"}, "Master replicas"),
        ({"Master": "OnFailure", "Worker": "Never"}, "Worker replicas"),
        ({"Master": "OnFailure", "Worker": "Always"}, ""),
    ],
)
@pytest.mark.parametrize("annotated", [False, True])
def test_d20_a_restart_scope_under_never_is_told(policies: dict[str, str], whose: str, *, annotated: bool) -> None:
    job = make_job(
        PYTORCHJOB,
        master=1,
        worker=2,
        policy={} if annotated else {"restartScope": "Job"},
        annotations={SCOPE_ANNOTATION: "Job"} if annotated else {},
    )
    for kind, policy in policies.items():
        specs = job.spec.pytorch_replica_specs
        specs[kind] = msgspec.structs.replace(specs[kind], restart_policy=policy)
    messages = [note.message for note in job_plan(PyTorch(), job).events if note.reason == "FieldIgnored"]
    path = f"metadata.annotations[{SCOPE_ANNOTATION}]" if annotated else SCOPE_FIELD
    assert [text.partition(" OnFailure")[0] for text in messages] == (
        [f"{path}: {NO_EFFECT.format(whose)}"] if whose else []
    )


def test_d20_a_restart_scope_asks_only_types_that_have_replicas_and_only_when_it_is_job() -> None:
    def told(**more: Any) -> list[str]:
        events = job_plan(TensorFlow(), make_job(TFJOB, restart="Never", **more)).events
        return [note.message for note in events if note.reason == "FieldIgnored"]

    assert not told(worker=1, policy={"restartScope": "Replica"})
    assert not told(worker=1)
    assert told(worker=1, policy={"restartScope": "Job"})
    (wrong,) = told(worker=1, annotations={SCOPE_ANNOTATION: "Team"})
    assert wrong.endswith('is "Team", which has no effect; write one of Replica, Job')


def test_d20_types_in_another_case_are_meant() -> None:
    assert created_names(job_plan(TensorFlow(), make_job(TFJOB, WORKER=1, ps=1))) == [
        "job-ps-0",
        "job-worker-0",
    ]


@every_kind
def test_d22_suspending_is_told_once(of: JobKind) -> None:
    framework = BY_KIND[of.kind]
    wanted = one_of_each(of, policy={"suspend": True})
    first = job_plan(framework, wanted, services=())
    assert [note.reason for note in first.events] == [f"{of.kind}Suspended"]
    assert job_plan(framework, with_status(wanted, first.status), services=()).events == ()


@every_kind
def test_d22_a_failure_is_told_as_a_warning(of: JobKind) -> None:
    plan = job_plan(BY_KIND[of.kind], one_of_each(of, restart="Never"), *team(of, failed(of, 1)))
    assert [(note.reason, note.warning) for note in plan.events] == [
        (f"{of.kind}Failed", True),
        ("ExitedWithCode", False),
    ]


@every_kind
@pytest.mark.parametrize("policy", [{}, {"backoffLimit": 0}], ids=["for good", "by a limit"])
def test_d22_the_exit_code_of_a_failure_is_told_once(of: JobKind, policy: dict[str, int]) -> None:
    framework, wanted = BY_KIND[of.kind], one_of_each(of, restart="Never", policy=policy)
    pods = team(of, failed(of, 3))
    first = job_plan(framework, wanted, *pods)
    name = next(pod.metadata.name for pod in pods if pod.status.phase == "Failed")
    told = JobEvent("ExitedWithCode", f"Pod: default.{name} exited with code 3")
    assert [note for note in first.events if note.reason == "ExitedWithCode"] == [told]
    assert job_plan(framework, with_status(wanted, first.status), *pods).events == ()


@pytest.mark.parametrize("suspended", [False, True])
def test_d25_the_autoscaler_goes_with_the_work(suspended: bool) -> None:
    torch = PyTorch()
    metrics = [{"type": "Resource", "resource": {"name": "cpu"}}]
    job = make_job(
        PYTORCHJOB,
        worker=2,
        spec={"elasticPolicy": {"minReplicas": 1, "maxReplicas": 3, "metrics": metrics}},
        policy={"suspend": suspended},
    )
    autoscaler = {"metadata": {"name": "job", "uid": "hpa", "ownerReferences": [{"uid": "uid-job"}]}}
    from gangline.jobs.plan.observed import JobChildren, ObservedJob
    from gangline.jobs.plan.plan import reconcile_plan

    pods = () if suspended else (make_member("Worker", 0, of=PYTORCHJOB, phase="Succeeded"),)
    view = ObservedJob.of(torch, job, OBSERVED_AT, JobChildren(pods=pods), find=lambda resource, name: autoscaler)
    assert deleted_names(reconcile_plan(torch, view), "horizontalpodautoscalers.autoscaling") == ["job"]


@every_kind
def test_d28_a_job_never_both_succeeded_and_failed(of: JobKind) -> None:
    framework = BY_KIND[of.kind]
    wanted = one_of_each(of, restart="Never")
    done = [
        make_member(leader(of), 0, of=of, phase="Succeeded"),
        make_member("Worker", 0, of=of, phase="Succeeded"),
        failed(of, 1),
    ]
    pods = {pod.metadata.name: pod for pod in done}.values()
    status = job_plan(framework, wanted, *pods).status
    assert status.holds(ConditionType.SUCCEEDED) != status.holds(ConditionType.FAILED)
    later = job_plan(framework, with_status(wanted, status), *pods).status
    assert later == status


@every_kind
def test_d28_restarting_does_not_survive_the_end(of: JobKind) -> None:
    framework = BY_KIND[of.kind]
    wanted = one_of_each(of, restart="OnFailure")
    restarting = job_plan(framework, wanted, failed(of, 1)).status
    assert restarting.holds(ConditionType.RESTARTING)
    pods = [
        make_member(leader(of), 0, of=of, phase="Succeeded"),
        *(make_member("Worker", n, of=of, phase="Succeeded") for n in range(2)),
    ]
    done = job_plan(framework, with_status(wanted, restarting), *{p.metadata.name: p for p in pods}.values()).status
    assert [condition.type for condition in done.conditions if condition.status == "True"] == ["Created", "Succeeded"]


@every_kind
def test_d28_running_says_when_it_ended(of: JobKind) -> None:
    framework = BY_KIND[of.kind]
    wanted = one_of_each(of, restart="Never")
    running = job_plan(framework, wanted, *team(of)).status
    later = timedelta(minutes=5)
    over = job_plan(framework, with_status(wanted, running), *team(of, failed(of, 1)), after=later).status
    told = over.condition(ConditionType.RUNNING)
    assert told is not None
    assert (told.status, told.last_transition_time) == ("False", OBSERVED_AT + later)


@every_kind
def test_d29_nothing_counts_as_active_once_a_limit_ended_the_job(of: JobKind) -> None:
    framework = BY_KIND[of.kind]
    wanted = one_of_each(of, policy={"activeDeadlineSeconds": 1})
    running = job_plan(framework, wanted, *team(of)).status
    over = job_plan(framework, with_status(wanted, running), *team(of), after=timedelta(seconds=2)).status
    assert all(replica.active == 0 for replica in over.replica_statuses.values())


@pytest.mark.parametrize("of", [kind for kind in TRAINING_KINDS if kind.port], ids=lambda kind: kind.kind)
def test_d30_a_name_too_long_for_its_services_is_told(of: JobKind) -> None:
    wanted = one_of_each(of, name="x" * 60)
    condition = job_plan(BY_KIND[of.kind], wanted).status.condition(ConditionType.FAILED)
    assert condition is not None
    assert "metadata.name" in condition.message
    assert "shorter by" in condition.message
