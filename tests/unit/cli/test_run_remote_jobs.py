"""A job in a cluster where nobody looks at it."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from gangline.api.kubeflow.kinds import TFJOB
from gangline.api.kubeflow.training import JobStatus
from gangline.api.meta import Condition
from gangline.cli.follow.follower import JobView
from gangline.cli.run.remote_jobs import OPERATOR_WARNING_AFTER, warn_without_operator
from gangline.testing.builders import make_job
from gangline.testing.clock import FakeClock


@pytest.mark.parametrize("seen", [False, True])
async def test_a_job_that_no_operator_looks_at_is_told_once(seen: bool) -> None:
    team, clock, told = JobView(), FakeClock(), list[str]()
    team.job = make_job(TFJOB, worker=1)
    async with asyncio.TaskGroup() as group:
        group.create_task(warn_without_operator(team, clock, lambda: told.append("warned")))
        await clock.advance(OPERATOR_WARNING_AFTER - timedelta(seconds=1))
        assert told == []
        if seen:
            status = JobStatus(conditions=(Condition("Created", "True"),))
            team.job = msgspec.structs.replace(team.job, status=status)
        await clock.advance(timedelta(seconds=1))
    assert told == ([] if seen else ["warned"])
