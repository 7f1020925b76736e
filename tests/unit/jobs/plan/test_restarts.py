"""Restarts: which pods are replaced, which failed first, what counts against the limit, and the delays."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.core import ContainerState, ContainerStateTerminated, ContainerStatus
from gangline.api.kubeflow.kinds import MPIJOB, PYTORCHJOB, TFJOB, XGBOOSTJOB
from gangline.api.kubeflow.training import ConditionType, JobStatus, RestartLedger, RestartScope
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.pytorch import PyTorch
from gangline.frameworks.tensorflow import TensorFlow
from gangline.frameworks.xgboost import XGBoost
from gangline.jobs.framework import Framework
from gangline.jobs.plan.failures.records import blames_peer, failure_record, first_failed
from gangline.jobs.plan.restarts import MAX_RESTART_DELAY, exceeds_backoff_limit, is_retryable, with_backoff
from gangline.jobs.pods.replicas import Member
from gangline.testing.builders import make_job, make_member
from support.builders.observed_jobs import (
    OBSERVED_AT,
    condition_pairs,
    created_names,
    deleted_names,
    job_plan,
    with_status,
)

TORCH, TF = PyTorch(), TensorFlow()
SECOND = timedelta(seconds=1)
TOGETHER = {"restartScope": "Job"}


def job(**more: Any) -> Any:
    return make_job(PYTORCHJOB, master=1, worker=2, **more)


def member(kind: str, index: int = 0, code: int | None = None, at: float = 0, **more: Any) -> Any:
    if code is None:
        return make_member(kind, index, of=PYTORCHJOB, **more)
    end = OBSERVED_AT + timedelta(seconds=at)
    return make_member(kind, index, of=PYTORCHJOB, phase="Failed", exit_code=code, finished_at=end, **more)


def team(*changed: Any, number: int = 0) -> list[Any]:
    """The pods of all three replicas: `changed`, and running ones for the others."""
    names = {pod.metadata.name for pod in changed}
    running = (member("Master", number=number), *(member("Worker", n, number=number) for n in range(2)))
    return [*changed, *(pod for pod in running if pod.metadata.name not in names)]


@pytest.mark.parametrize("code", [1, 2, 126, 127])
def test_a_programs_own_errors_are_permanent(code: int) -> None:
    assert not is_retryable(code)


@pytest.mark.parametrize("code", [128, 130, 134, 137, 138, 139, 143, 255, None])
def test_signals_and_unknown_ends_are_retryable(code: int | None) -> None:
    assert is_retryable(code)


# One replica at a time


@pytest.mark.parametrize(("policy", "code"), [("OnFailure", 1), ("Always", 1), ("ExitCode", 137), ("ExitCode", 143)])
def test_a_failed_replica_is_sent_away_and_counted_before_it_goes(policy: str, code: int) -> None:
    plan = job_plan(TORCH, job(restart=policy), *team(member("Worker", 1, code)))
    assert deleted_names(plan) == ["job-worker-1"]
    assert created_names(plan) == []
    assert plan.status.restarts == 1
    assert plan.status.ledger.replaced == ("uid-job-worker-1",)
    assert condition_pairs(plan.status) == [("Created", "True"), ("Restarting", "True")]


@pytest.mark.parametrize(
    ("framework", "told"),
    [
        (TORCH, "job job is restarting because Worker replica(s) failed."),
        (TF, "job job is restarting because Worker replica(s) failed."),
        # v1 judges these kinds by their counters, and its message says so.
        (XGBoost(), "XGBoostJob job is restarting because 2 Worker replica(s) failed."),
        (Mpi(), "MPIJob job is restarting because 2 Worker replica(s) failed."),
    ],
    ids=lambda value: value.facts.kind if not isinstance(value, str) else "",
)
def test_a_restart_is_told_in_the_words_of_its_kind(framework: Framework[Any], told: str) -> None:
    of = framework.facts
    replicas: dict[str, Any] = {"launcher" if of is MPIJOB else "master": 1, "worker": 2}
    pod = [make_member("Worker", n, of=of, phase="Failed", exit_code=143) for n in range(2)]
    status = job_plan(framework, make_job(of, restart="ExitCode", **replicas), *pod).status
    assert status.conditions[-1].message == told


def test_a_lost_pod_is_no_replica_that_failed() -> None:
    # All replicas restart because one pod is lost: no replica has failed.
    job = make_job(XGBOOSTJOB, master=1, worker=1, policy=TOGETHER, restart="OnFailure")
    pods = [make_member("Master", of=XGBOOSTJOB), make_member("Worker", of=XGBOOSTJOB)]
    full = job_plan(XGBoost(), job, *pods).status
    lost = job_plan(XGBoost(), with_status(job, full), pods[0]).status
    assert lost.conditions[-1].message == "job job is restarting because Worker replica(s) failed."


def test_a_restart_is_counted_once_however_often_it_is_seen() -> None:
    training_job, pods = job(restart="OnFailure"), team(member("Worker", 1, 1))
    once = job_plan(TORCH, training_job, *pods).status
    twice = job_plan(TORCH, with_status(training_job, once), *pods, after=SECOND).status
    assert twice == once


def test_the_second_failure_of_a_seat_is_another_restart() -> None:
    training_job = job(restart="OnFailure")
    once = job_plan(TORCH, training_job, *team(member("Worker", 1, 1))).status
    again = job_plan(TORCH, with_status(training_job, once), *team(member("Worker", 1, 1, uid="second"))).status
    assert again.restarts == 2
    assert again.ledger.replaced == ("second",)


def test_a_seat_is_filled_when_its_failed_pod_is_gone_and_the_job_runs_again() -> None:
    training_job = job(restart="OnFailure")
    once = job_plan(TORCH, training_job, *team(member("Worker", 1, 1))).status
    then = job_plan(TORCH, with_status(training_job, once), member("Master"), member("Worker", 0))
    assert created_names(then) == ["job-worker-1"]
    assert condition_pairs(then.status) == [("Created", "True"), ("Running", "True")]
    assert then.status.restarts == 1


def test_never_and_a_permanent_exit_code_fail_the_job() -> None:
    for policy, code in (("Never", 137), ("ExitCode", 1)):
        status = job_plan(TORCH, job(restart=policy), *team(member("Worker", 1, code))).status
        assert status.holds(ConditionType.FAILED), (policy, code)
        assert status.completion_time == OBSERVED_AT


def test_an_evicted_pod_without_an_exit_code_is_retried() -> None:
    pod = make_member("Worker", 1, of=PYTORCHJOB, phase="Failed", reason="Evicted")
    plan = job_plan(TORCH, job(restart="ExitCode"), *team(pod))
    assert deleted_names(plan) == ["job-worker-1"]
    assert plan.status.first_failure is not None
    assert plan.status.first_failure.reason == "Evicted"
    assert plan.status.first_failure.exit_code is None


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "ExitCode"])
def test_a_pod_that_dies_of_being_sent_away_is_nobodys_failure(policy: str) -> None:
    drained = member("Worker", 1, 143, leaving=OBSERVED_AT)
    status = job_plan(TORCH, job(restart=policy), *team(drained)).status
    assert not status.finished
    assert status.restarts == 0


def test_dynamic_workers_that_failed_for_good_are_left() -> None:
    job = make_job(TFJOB, ps=1, worker=2, restart="Never", spec={"enableDynamicWorker": True})
    pods = [
        make_member("PS"),
        make_member("Worker", 0),
        make_member("Worker", 1, phase="Failed", exit_code=1),
    ]
    plan = job_plan(TF, job, *pods)
    assert not plan.status.finished
    assert deleted_names(plan) == []


# The backoff limit


@pytest.mark.parametrize(
    ("limit", "restarts", "in_place", "wanted", "over"),
    [
        (None, 99, 99, 1, False),
        (0, 0, 0, 0, False),
        (0, 0, 0, 1, True),
        (2, 1, 0, 1, False),
        (2, 2, 0, 0, False),
        (2, 2, 0, 1, True),
        # As in v1, restarts by kubelets alone can reach the limit.
        (2, 2, 2, 0, True),
        (0, 1, 1, 0, True),
        # Both kinds of restarts count.
        (3, 2, 1, 2, True),
    ],
)
def test_the_budget_is_one_for_all_policies(
    limit: int | None, restarts: int, in_place: int, wanted: int, over: bool
) -> None:
    assert exceeds_backoff_limit(limit, restarts, RestartLedger(in_place=in_place), wanted) is over


def test_restarts_inside_a_pod_are_counted_once_and_stay_counted_when_it_goes() -> None:
    training_job = job(restart="OnFailure")
    one = job_plan(TORCH, training_job, *team(member("Worker", 1, restarts=2))).status
    assert (one.restarts, one.ledger.in_place) == (2, 2)
    two = job_plan(TORCH, with_status(training_job, one), *team(member("Worker", 1, restarts=3))).status
    assert (two.restarts, two.ledger.counted) == (3, {"uid-job-worker-1": 3})
    away = job_plan(TORCH, with_status(training_job, two), member("Master"), member("Worker", 0)).status
    back = job_plan(TORCH, with_status(training_job, away), *team(member("Worker", 1, restarts=3))).status
    assert (back.restarts, back.ledger.in_place) == (3, 3)
    gone = job_plan(TORCH, with_status(training_job, away), *team(member("Worker", 1, uid="another"))).status
    assert (gone.restarts, gone.ledger.counted) == (3, {})


def test_of_a_job_that_v1_began_only_the_restarts_that_v1_counts_are_counted() -> None:
    begun = with_status(job(restart="OnFailure", policy={"backoffLimit": 2}), JobStatus(start_time=OBSERVED_AT))
    pods = team(member("Worker", 0, phase="Succeeded", restarts=5), member("Worker", 1, restarts=1))
    first_look = job_plan(TORCH, begun, *pods).status
    second_look = job_plan(TORCH, with_status(begun, first_look), *pods).status
    assert first_look.restarts == second_look.restarts == 1
    assert not second_look.finished
    more = team(member("Worker", 0, phase="Succeeded", restarts=5), member("Worker", 1, restarts=2))
    assert job_plan(TORCH, with_status(begun, second_look), *more).status.holds(ConditionType.FAILED)


def test_a_job_over_its_budget_fails_and_every_pod_goes() -> None:
    training_job = job(restart="OnFailure", policy={"backoffLimit": 1})
    spent = JobStatus(restarts=1)
    plan = job_plan(TORCH, with_status(training_job, spent), *team(member("Worker", 1, 1)))
    failed = plan.status.condition(ConditionType.FAILED)
    assert failed is not None
    assert failed.message == "Job job has failed because it has reached the specified backoff limit"
    assert len(deleted_names(plan)) == 3
    assert plan.status.replica_statuses["Worker"].active == 0


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "ExitCode"])
def test_with_no_restart_allowed_any_failure_is_one_too_many(policy: str) -> None:
    training_job = job(restart=policy, policy={"backoffLimit": 0})
    plan = job_plan(TORCH, training_job, *team(member("Worker", 1, 1)))
    condition = plan.status.condition(ConditionType.FAILED)
    assert condition is not None
    assert condition.message.endswith("reached the specified backoff limit")
    assert len(deleted_names(plan)) == 3


def test_suspending_a_restarting_job_does_not_hide_that() -> None:
    restarting = job_plan(TORCH, job(restart="OnFailure"), member("Master", 0, 1)).status
    suspended = job_plan(TORCH, with_status(job(restart="OnFailure", policy={"suspend": True}), restarting)).status
    assert condition_pairs(suspended) == [("Created", "True"), ("Restarting", "True"), ("Suspended", "True")]


def test_a_crash_between_verdict_and_clean_up_of_a_limit_changes_nothing() -> None:
    training_job = job(restart="OnFailure", policy={"backoffLimit": 0})
    failed = job_plan(TORCH, training_job, *team(member("Worker", 1, 1))).status
    assert len(deleted_names(job_plan(TORCH, with_status(training_job, failed), *team(member("Worker", 1, 1))))) == 3


# Delays


def test_one_replica_is_replaced_at_once_for_a_while_and_then_ever_later() -> None:
    ledger, waits = RestartLedger(), []
    for _ in range(12):
        ledger = with_backoff(ledger, RestartScope.REPLICA, OBSERVED_AT)
        assert ledger.not_before is not None
        waits.append((ledger.not_before - OBSERVED_AT).total_seconds())
    assert waits[:5] == [0] * 5
    assert waits[5:8] == [10, 20, 40]
    assert waits[-1] == MAX_RESTART_DELAY.total_seconds()


def test_a_restart_that_held_ends_the_row() -> None:
    ledger = RestartLedger()
    for _ in range(9):
        ledger = with_backoff(ledger, RestartScope.JOB, OBSERVED_AT)
    later = with_backoff(ledger, RestartScope.JOB, OBSERVED_AT + timedelta(hours=1))
    assert later.streak == 1
    assert later.not_before == OBSERVED_AT + timedelta(hours=1)


def test_seats_stay_empty_until_the_delay_is_over() -> None:
    waiting = JobStatus(restarts=9, ledger=RestartLedger(streak=9, not_before=OBSERVED_AT + 30 * SECOND))
    training_job = with_status(job(restart="OnFailure"), waiting)
    early = job_plan(TORCH, training_job, member("Master"))
    assert created_names(early) == []
    assert early.requeue_after == 30 * SECOND
    assert created_names(job_plan(TORCH, training_job, member("Master"), after=30 * SECOND)) == [
        "job-worker-0",
        "job-worker-1",
    ]


# All replicas together


def test_the_whole_team_is_started_anew() -> None:
    training_job = job(restart="OnFailure", policy=TOGETHER)
    plan = job_plan(TORCH, training_job, *team(member("Worker", 1, 1)))
    assert sorted(deleted_names(plan)) == ["job-master-0", "job-worker-0", "job-worker-1"]
    assert created_names(plan) == []
    assert (plan.status.restarts, plan.status.ledger.round) == (1, 1)
    assert plan.status.phase == "Creating"
    stale = job_plan(TORCH, with_status(training_job, plan.status), member("Master"))
    assert deleted_names(stale) == ["job-master-0"]
    assert created_names(stale) == []
    assert stale.status.restarts == 1
    gone = job_plan(TORCH, with_status(training_job, stale.status))
    assert created_names(gone) == ["job-master-0", "job-worker-0", "job-worker-1"]


def test_the_annotation_asks_for_it_as_well() -> None:
    training_job = job(restart="OnFailure", annotations={"training.gangline.dev/restart-scope": "Job"})
    assert len(deleted_names(job_plan(TORCH, training_job, *team(member("Worker", 1, 1))))) == 3


def test_pods_of_a_team_leave_no_restart_to_the_kubelet_and_know_their_round() -> None:
    training_job = with_status(job(restart="OnFailure", policy=TOGETHER), JobStatus(ledger=RestartLedger(round=2)))
    plan = job_plan(TORCH, training_job)
    from support.builders.observed_jobs import created_body

    body = created_body(plan, "job-worker-0")
    assert body["spec"]["restartPolicy"] == "Never"
    assert body["metadata"]["annotations"] == {"training.gangline.dev/round": "2"}


def test_what_an_earlier_round_left_is_not_counted_again() -> None:
    training_job = with_status(
        job(restart="OnFailure", policy=TOGETHER), JobStatus(restarts=1, ledger=RestartLedger(round=1))
    )
    plan = job_plan(TORCH, training_job, *team(member("Worker", 1, 1)))
    assert plan.status.restarts == 1
    assert plan.status.ledger.round == 1


def test_whoever_failed_first_decides_for_the_team() -> None:
    training_job = job(restart="ExitCode", policy=TOGETHER)
    killed, echo = member("Worker", 1, 137, at=0), member("Worker", 0, 1, at=1)
    plan = job_plan(TORCH, training_job, *team(killed, echo), after=10 * SECOND)
    assert not plan.status.finished
    assert plan.status.ledger.round == 1
    assert plan.status.first_failure is not None
    assert plan.status.first_failure.replica == "worker-1"


def test_within_one_second_the_one_killed_from_outside_was_first() -> None:
    pods = {Member("Worker", 0): member("Worker", 0, 1), Member("Worker", 1): member("Worker", 1, 137)}
    first = first_failed(pods, "pytorch", {})
    assert first is not None
    assert first[0] == Member("Worker", 1)


def test_within_one_second_and_class_the_one_whose_log_blames_no_peer_was_first() -> None:
    pods = {Member("Worker", 0): member("Worker", 0, 1), Member("Worker", 1): member("Worker", 1, 1)}
    logs = {
        "uid-job-worker-0": ("RuntimeError: [../gloo/transport/tcp/pair.cc] Connection closed by peer [10.0.0.2]:1",),
        "uid-job-worker-1": ("ValueError: shapes (3,) and (4,) not aligned",),
    }
    first = first_failed(pods, "pytorch", logs)
    assert first is not None
    assert first[0] == Member("Worker", 1)


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4711",
        "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error",
        "tensorflow.python.framework.errors_impl.UnavailableError: Collective ops is aborted by: failed to connect",
        "xgboost.core.XGBoostError: [12:00:00] Connection reset by peer",
        "BrokenPipeError: [Errno 32] Broken pipe",
    ],
)
def test_frameworks_words_for_a_lost_peer_are_known(line: str) -> None:
    pod = member("Worker", 0, 1)
    assert blames_peer(pod, "pytorch", {pod.metadata.uid: (line,)})


def test_a_lone_permanent_failure_of_a_team_waits_a_moment_for_an_earlier_one() -> None:
    training_job = job(restart="ExitCode", policy=TOGETHER)
    pods = team(member("Worker", 0, 1))
    early = job_plan(TORCH, training_job, *pods, after=SECOND)
    assert not early.status.finished
    assert early.requeue_after == 2 * SECOND
    assert job_plan(TORCH, training_job, *pods, after=4 * SECOND).status.holds(ConditionType.FAILED)


def test_a_failure_that_a_node_with_another_clock_reports_is_not_waited_for_until_the_clocks_agree() -> None:
    training_job = job(restart="ExitCode", policy=TOGETHER)
    for hours in (-1, 1):
        plan = job_plan(TORCH, training_job, *team(member("Worker", 0, 1)), after=timedelta(hours=hours))
        assert plan.status.holds(ConditionType.FAILED), hours


def test_a_failure_that_blames_a_peer_nobody_hears_of_restarts_the_team() -> None:
    training_job = job(restart="ExitCode", policy=TOGETHER)
    pods = team(member("Worker", 0, 1))
    logs = {"uid-job-worker-0": ("Connection closed by peer",)}
    assert not job_plan(TORCH, training_job, *pods, after=30 * SECOND, log_tails=logs).status.ledger.round
    late = job_plan(TORCH, training_job, *pods, after=61 * SECOND, log_tails=logs)
    assert late.status.ledger.round == 1
    assert not late.status.finished


def test_a_member_that_is_drained_takes_the_team_with_it() -> None:
    training_job = job(restart="ExitCode", policy=TOGETHER)
    complete = job_plan(TORCH, training_job, *team()).status
    plan = job_plan(TORCH, with_status(training_job, complete), *team(member("Worker", 1, leaving=OBSERVED_AT)))
    assert plan.status.ledger.round == 1
    assert sorted(deleted_names(plan)) == ["job-master-0", "job-worker-0"]


def test_resuming_a_team_whose_old_pods_are_still_leaving_is_no_restart() -> None:
    training_job = job(restart="ExitCode", policy=TOGETHER)
    complete = job_plan(TORCH, training_job, *team()).status
    suspended = job_plan(TORCH, with_status(job(policy={**TOGETHER, "suspend": True}), complete), *team()).status
    leaving = [
        member("Master", leaving=OBSERVED_AT),
        *(member("Worker", n, leaving=OBSERVED_AT) for n in range(2)),
    ]
    resumed = job_plan(TORCH, with_status(training_job, suspended), *leaving).status
    assert (resumed.restarts, resumed.ledger.complete) == (0, False)
    assert (resumed.ledger.round, resumed.ledger.renewals) == (1, 1)


def test_a_member_that_vanished_takes_the_team_with_it_once_all_were_there() -> None:
    training_job = job(restart="ExitCode", policy=TOGETHER)
    complete = job_plan(TORCH, training_job, *team()).status
    assert complete.ledger.complete
    plan = job_plan(TORCH, with_status(training_job, complete), member("Master"), member("Worker", 0))
    assert plan.status.ledger.round == 1
    fresh = job_plan(TORCH, training_job, member("Master"), member("Worker", 0))
    assert created_names(fresh) == ["job-worker-1"]


def test_a_scaled_up_team_is_not_taken_for_one_that_lost_members() -> None:
    training_job = job(restart="ExitCode", policy=TOGETHER)
    complete = job_plan(TORCH, training_job, *team()).status
    larger = make_job(PYTORCHJOB, master=1, worker=3, restart="ExitCode", policy=TOGETHER, generation=2)
    plan = job_plan(TORCH, with_status(larger, complete), *team())
    assert plan.status.ledger.round == 0
    assert created_names(plan) == ["job-worker-2"]


def test_a_port_clash_restarts_the_team_with_new_addresses_whatever_the_policy() -> None:
    clash = make_member("Worker", 1, of=PYTORCHJOB, phase="Failed", exit_code=128, reason="PortClash")
    training_job = job(restart="Never")
    plan = job_plan(TORCH, training_job, *team(clash))
    assert len(deleted_names(plan)) == 3
    assert (plan.status.ledger.round, plan.status.ledger.addresses) == (1, 1)
    assert plan.status.restarts == 0
    after = job_plan(TORCH, with_status(training_job, plan.status))
    assert len(deleted_names(after, "services")) == 3


# The failure in the status


def test_a_failure_is_written_down_with_its_last_words() -> None:
    pod = member("Worker", 1, 137, at=3)
    failure = failure_record(Member("Worker", 1), pod, "pytorch", {pod.metadata.uid: ("a", "b")})
    assert (failure.replica, failure.pod, failure.exit_code, failure.signal) == ("worker-1", "job-worker-1", 137, 9)
    assert failure.time == OBSERVED_AT + 3 * SECOND
    assert failure.log == ("a", "b")


def test_a_budget_worn_out_in_place_says_by_whom() -> None:
    ended = ContainerState(terminated=ContainerStateTerminated(exit_code=3, reason="Error", finished_at=OBSERVED_AT))
    status = ContainerStatus(name="pytorch", restart_count=2, last_state=ended)
    tired = member("Worker", 1)
    tired = msgspec.structs.replace(tired, status=msgspec.structs.replace(tired.status, container_statuses=(status,)))
    told = job_plan(TORCH, job(restart="OnFailure", policy={"backoffLimit": 2}), *team(tired)).status
    assert told.first_failure is not None
    assert (told.first_failure.replica, told.first_failure.exit_code) == ("worker-1", 3)


def test_the_status_keeps_the_failure_that_ended_the_job() -> None:
    status = job_plan(TORCH, job(restart="Never"), *team(member("Worker", 1, 3))).status
    assert status.first_failure is not None
    assert (status.first_failure.replica, status.first_failure.exit_code) == ("worker-1", 3)


def test_a_restarted_job_that_succeeds_says_how_often_it_was_restarted() -> None:
    training_job = job(restart="OnFailure")
    once = job_plan(TORCH, training_job, *team(member("Worker", 1, 1))).status
    done = job_plan(
        TORCH,
        with_status(training_job, once),
        member("Master", phase="Succeeded"),
        member("Worker", 0),
        member("Worker", 1, uid="b"),
    ).status
    assert done.holds(ConditionType.SUCCEEDED)
    assert done.restarts == 1
    assert msgspec.to_builtins(done)["restarts"] == 1


def test_a_delay_is_never_over_too_early_although_it_is_written_in_whole_seconds() -> None:
    now = OBSERVED_AT + timedelta(seconds=0.7)
    first = with_backoff(RestartLedger(), RestartScope.JOB, now)
    assert first.not_before == OBSERVED_AT
    second = with_backoff(first, RestartScope.JOB, now)
    assert second.not_before == OBSERVED_AT + timedelta(seconds=11)
    whole = with_backoff(first, RestartScope.JOB, OBSERVED_AT)
    assert whole.not_before == OBSERVED_AT + timedelta(seconds=10)
