"""When the ledger is written: with other changes, else a minute later at the earliest, and not because time passes."""

from datetime import timedelta

import msgspec
import pytest

from gangline.api.kubeflow.training import ConditionType, JobStatus
from gangline.jobs.goodput import LEDGER_INTERVAL, account
from gangline.jobs.plan.conditions import status_with_condition
from gangline.jobs.plan.stall import Stall
from support.builders.timed_teams import TimedTeam

pytestmark = pytest.mark.asyncio


def new_team() -> TimedTeam:
    """A team whose operator waits with its writes, as a real one."""
    team = TimedTeam(workers=1)
    team.world.operator.reconciler._ledger_interval = LEDGER_INTERVAL
    return team


async def running_team() -> TimedTeam:
    team = new_team()
    await team.settle()
    await team.bind()
    await team.start()
    return team


async def test_while_all_go_on_as_before_nothing_is_written_and_nobody_looks() -> None:
    team = await running_team()
    writes, looks = team.world.writes, team.world.looks
    await team.wait(6 * 3600)
    assert (team.world.writes, team.world.looks) == (writes, looks)
    await team.end()
    assert team.ledger.seconds == {"working": 2 * 6 * 3600}


async def test_a_pod_event_that_changes_nothing_writes_nothing() -> None:
    team = await running_team()
    writes = team.world.writes
    for minute in range(5):
        await team.wait(60)
        team._patch("worker-0", {"metadata": {"labels": {"minute": str(minute)}}})
        await team.settle()
    assert team.world.writes == writes


async def test_a_replica_that_does_something_else_is_written_after_a_minute_and_once() -> None:
    team = new_team()
    await team.settle()
    assert team.ledger.replicas == {"queueing": 2}
    await team.wait(10)
    # Nothing in a status changes when a pod gets its node.
    writes = team.world.writes
    await team.bind()
    assert team.world.writes == writes
    await team.wait(49)
    assert team.world.writes == writes
    await team.wait(1)
    assert team.world.writes == writes + 1
    assert team.ledger.replicas == {"starting": 2}
    assert team.ledger.seconds == {"queueing": 20, "starting": 100}
    await team.wait(3600)
    assert team.world.writes == writes + 1


async def test_the_reports_of_a_job_that_trains_bring_no_other_writes_than_their_own() -> None:
    team = await running_team()
    writes = team.world.writes
    for step in range(1, 61):
        await team.wait(10)
        await team.report("master-0", step=step)
    assert team.world.writes == writes + 60


async def test_a_definition_without_the_field_is_not_written_to_again_and_again() -> None:
    team = new_team()
    store = team.world.server._store

    def pruned(resource: str, name: str, body: dict[str, object]) -> dict[str, object]:
        status = body.get("status")
        if resource == team.world.plural and isinstance(status, dict):
            body = {**body, "status": {field: value for field, value in status.items() if field != "goodput"}}
        return store(resource, name, body)

    team.world.server._store = pruned  # type: ignore[method-assign]
    await team.settle()
    writes = team.world.writes
    await team.bind()
    await team.wait(600)
    assert team.world.job.status.goodput is None
    assert team.world.writes == writes


async def test_a_finished_job_keeps_its_ledger() -> None:
    team = await running_team()
    await team.wait(10)
    await team.end("master-0")
    assert team.world.job.status.finished
    assert (team.ledger.seconds, team.ledger.replicas) == ({"working": 20}, {})
    # The policy leaves the worker running.
    await team.wait(100)
    await team.end("worker-0")
    assert (team.ledger.seconds, team.ledger.replicas) == ({"working": 20}, {})


async def test_what_was_booked_as_work_since_the_last_sign_of_life_is_booked_as_a_stall() -> None:
    team = await running_team()
    await team.wait(100)
    await team.report("master-0", step=1)
    await team.wait(200)
    await team.report("master-0", step=1, loss=0.5)
    await team.wait(30)
    observed = team.world.operator.reconciler._observe(team.world.key)
    assert observed is not None
    since = observed.now - timedelta(seconds=80)
    stalled = msgspec.structs.replace(observed, stall=Stall(since, "NoProgress", "It makes no progress."))
    status: JobStatus = status_with_condition(
        observed.job.status, ConditionType.STALLED, "NoProgress", "It makes no progress.", observed.now
    )
    current = account(team.world.framework, stalled, status)
    assert current is not None
    # 330 seconds of 2 replicas, of which the last 80 were none: 50 booked as work already, 30 since then.
    assert current.ledger.seconds == {"working": 500, "stalled": 160}
    assert current.ledger.replicas == {"stalled": 2}
