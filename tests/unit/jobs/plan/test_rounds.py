"""Rounds: when a pod of a new round may be created, what the server must confirm first, and who is told of a long wait."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.api.kubeflow.training import ADDRESSES_ANNOTATION, ConditionType, JobStatus, RestartLedger
from gangline.frameworks.pytorch import PyTorch
from gangline.jobs.plan.actions import ConfirmEnded, ConfirmJob, JobPlan
from gangline.jobs.plan.rounds import MAX_EARLY_CONFIRMATIONS, OVERDUE_AFTER, STILL_TERMINATING
from gangline.jobs.site import ServiceMode, Site
from gangline.testing.builders import make_job, make_member
from support.builders.observed_jobs import (
    OBSERVED_AT,
    created_names,
    deleted_names,
    job_plan,
    job_services,
    plan_actions,
    with_status,
)

TORCH = PyTorch()
SECOND = timedelta(seconds=1)
TOGETHER = {"restartScope": "Job"}
EVERY_POD = ["job-master-0", "job-worker-0", "job-worker-1"]


def job(number: int = 0, policy: Any = TOGETHER, **ledger: Any) -> Any:
    body = make_job(PYTORCHJOB, master=1, worker=2, restart="ExitCode", policy=policy)
    seen = job_plan(TORCH, body).status
    return with_status(body, msgspec.structs.replace(seen, ledger=RestartLedger(round=number, **ledger)))


def member(kind: str, index: int = 0, **more: Any) -> Pod:
    return make_member(kind, index, of=PYTORCHJOB, **more)


def leaving(kind: str, index: int = 0, **more: Any) -> Pod:
    return member(kind, index, leaving=OBSERVED_AT, **more)


@pytest.mark.parametrize(
    ("old", "created"),
    [
        ((), EVERY_POD),
        ((leaving("Worker", 1),), []),
        ((member("Worker", 1),), []),
        ((leaving("Worker", 1, phase="Failed"),), []),
        # Scaled away, and still there.
        ((leaving("Worker", 7),), []),
        ((leaving("Worker", 7, number=1),), []),
    ],
)
@pytest.mark.parametrize("policy", [TOGETHER, {}])
def test_a_pod_of_an_earlier_round_holds_up_the_whole_next_round(old: Any, created: list[str], policy: Any) -> None:
    if old and old[0].metadata.annotations and policy == {}:
        # A surplus pod of this round, which is being deleted, holds up nobody under scope Replica.
        created = EVERY_POD
    assert created_names(job_plan(TORCH, job(1, policy), *old)) == created


def test_under_scope_replica_a_pod_on_its_way_out_holds_up_only_its_own_replica() -> None:
    assert created_names(job_plan(TORCH, job(0, {}), leaving("Worker", 1))) == ["job-master-0", "job-worker-0"]
    assert created_names(job_plan(TORCH, job(0), leaving("Worker", 1))) == []


def test_a_pod_that_we_deleted_counts_before_the_cache_shows_it() -> None:
    there = member("Worker", 1)
    assert created_names(job_plan(TORCH, job(), there)) == ["job-master-0", "job-worker-0"]
    assert created_names(job_plan(TORCH, job(), there, pending_deletes=frozenset({there.metadata.uid}))) == []


def test_an_orphan_of_an_earlier_round_holds_up_the_next_one_and_a_strange_one_does_not() -> None:
    orphan, stranger = member("Worker", 1), member("Worker", 7)
    assert created_names(job_plan(TORCH, job(1), orphans=(("pods", orphan),))) == []
    assert created_names(job_plan(TORCH, job(1), orphans=(("pods", stranger),))) == EVERY_POD


@pytest.mark.parametrize("scope", [{}, TOGETHER])
@pytest.mark.parametrize("site", [Site(), Site(services=ServiceMode.PER_JOB), Site(shared_host=True)])
def test_a_resumed_job_waits_for_the_pods_of_before(scope: Any, site: Site) -> None:
    running = [member("Master"), member("Worker", 0), member("Worker", 1)]
    before = job(0, scope)
    paused = with_status(job(0, {**scope, "suspend": True}), before.status)
    suspended = job_plan(TORCH, paused, *running, site=site).status
    ledger = suspended.ledger
    # A round is written on pods, which v1 does not do: only where it is needed.
    number = int(site.shared_host or scope == TOGETHER)
    assert (ledger.round, ledger.addresses, ledger.renewals) == (number, int(site.shared_host), number)
    assert ledger.draining is not bool(number)
    assert suspended.restarts == 0
    assert job_plan(TORCH, with_status(paused, suspended), *running, site=site).status.ledger == ledger
    resumed = with_status(before, suspended)
    assert created_names(job_plan(TORCH, resumed, leaving("Worker", 1), services=(), site=site)) == []
    plan = job_plan(TORCH, resumed, services=(), site=site)
    # On one machine the addresses come first.
    assert created_names(plan) == ([] if site.shared_host else EVERY_POD)
    assert plan.status.ledger.round == number
    assert not plan.status.ledger.draining


def test_the_addresses_of_before_are_not_handed_to_a_resumed_job() -> None:
    site = Site(shared_host=True)
    paused = with_status(job(0, {"suspend": True}), job(0, {}).status)
    resumed = with_status(job(0, {}), job_plan(TORCH, paused, site=site).status)
    assigned = {ADDRESSES_ANNOTATION: '{"pytorchjob-port": "127.0.0.1:7000"}'}

    def services(number: int) -> tuple[Any, ...]:
        annotations = {**assigned, "training.gangline.dev/round": str(number)}
        return tuple(
            msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, annotations=annotations))
            for one in job_services(TORCH, resumed)
        )

    late = job_plan(TORCH, resumed, services=services(0), site=site)
    assert created_names(late) == []
    assert len(deleted_names(late, "services")) == 3
    assert created_names(job_plan(TORCH, resumed, services=services(1), site=site)) == EVERY_POD


def test_a_job_that_is_created_suspended_begins_with_its_first_round() -> None:
    body = make_job(PYTORCHJOB, master=1, policy={"suspend": True})
    assert job_plan(TORCH, body, services=()).status.ledger == RestartLedger()


def confirmed(plan: JobPlan) -> list[Any]:
    return [action for action in plan_actions(plan) if isinstance(action, ConfirmJob | ConfirmEnded)]


def test_the_server_confirms_what_caches_may_not_show() -> None:
    assert confirmed(job_plan(TORCH, job(0, {}))) == []
    assert confirmed(job_plan(TORCH, with_status(job(), JobStatus()))) == []
    assert confirmed(job_plan(TORCH, job())) == [ConfirmJob()]
    plan = job_plan(TORCH, job(2, {}), member("Master", number=2))
    assert confirmed(plan)[0] == ConfirmJob()
    assert [(one.name, one.round) for one in confirmed(plan)[1:]] == [("job-worker-0", 2), ("job-worker-1", 2)]
    assert confirmed(plan)[1].labels["training.kubeflow.org/replica-index"] == "0"
    # Also a pod that we created, and that the cache does not show: it may be of an earlier round.
    unseen = job_plan(TORCH, job(2), pending_creates=frozenset({("pods", "job-worker-1")}))
    assert [one.name for one in confirmed(unseen)[1:]] == EVERY_POD
    stages = [stage for stage in plan.stages if stage]
    assert isinstance(stages[-2][0], ConfirmJob)
    assert len(created_names(plan)) == len(stages[-1])


def test_a_small_job_asks_already_while_it_waits() -> None:
    waiting = job_plan(TORCH, job(1), leaving("Worker", 1))
    assert [one.name for one in confirmed(waiting)] == ["job-master-0", "job-worker-0"]
    large = make_job(PYTORCHJOB, master=1, worker=MAX_EARLY_CONFIRMATIONS + 1, restart="ExitCode", policy=TOGETHER)
    large = with_status(large, job(1).status)
    assert confirmed(job_plan(TORCH, large, leaving("Worker", 1))) == []
    assert len(confirmed(job_plan(TORCH, large))) == MAX_EARLY_CONFIRMATIONS + 3


def test_a_long_wait_is_told_once_with_pod_node_and_remedy() -> None:
    waiting = job(1)
    pod = leaving("Worker", 1)
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="gpu-7"))
    early = job_plan(TORCH, waiting, pod, after=5 * SECOND)
    assert early.requeue_after == OVERDUE_AFTER - 5 * SECOND
    assert early.status.condition(ConditionType.BLOCKED) is None
    late = job_plan(TORCH, waiting, pod, after=OVERDUE_AFTER)
    blocked = late.status.condition(ConditionType.BLOCKED)
    assert blocked is not None
    assert (blocked.reason, late.requeue_after) == (STILL_TERMINATING, None)
    assert "pod job-worker-1 on node gpu-7 should have ended at 12:00:00" in blocked.message
    assert "kubectl delete pod job-worker-1 -n default --force --grace-period=0" in blocked.message
    assert [event.message for event in late.events] == [blocked.message]
    again = job_plan(TORCH, with_status(waiting, late.status), pod, after=2 * OVERDUE_AFTER)
    assert (again.status, again.events) == (late.status, ())
    gone = job_plan(TORCH, with_status(waiting, late.status), after=2 * OVERDUE_AFTER)
    assert gone.status.condition(ConditionType.BLOCKED) is None
    assert created_names(gone) == EVERY_POD
