"""Events for jobs that wait because the operator lacks rights for their kind."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from gangline.api.kubeflow.kinds import MPIJOB
from gangline.jobs.events import JobEvents
from gangline.jobs.missing_rights import PERIOD, REASON, MissingRightsReporter
from gangline.testing import FakeClock, settle
from gangline.testing.builders import make_job


async def test_each_waiting_job_gets_one_event_until_the_rights_are_there() -> None:
    clock, recorded = FakeClock(), list[tuple[str, str]]()
    recorder = SimpleNamespace(record=lambda job, kind, reason, message: recorded.append((reason, message)))
    jobs = SimpleNamespace(cache=[make_job(MPIJOB, launcher=1, worker=1)])
    roles = SimpleNamespace(is_synced=False, problem=None)
    reporter = MissingRightsReporter(
        "MPIJob", cast(Any, jobs), (cast(Any, roles),), JobEvents(cast(Any, recorder)), clock
    )
    task = asyncio.create_task(reporter.run())
    await settle()
    await clock.advance(PERIOD)
    await settle()
    assert not recorded  # the first list is still under way

    roles.problem = "roles is forbidden"
    for _ in range(3):
        await clock.advance(PERIOD)
        await settle()
    assert recorded == [(REASON, "The operator cannot serve MPIJobs yet: roles is forbidden")]

    roles.is_synced, roles.problem = True, None
    await clock.advance(PERIOD)
    await asyncio.wait_for(task, 5)
    assert len(recorded) == 1
