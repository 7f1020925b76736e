"""The warning about a job that no operator reconciles."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from gangline.api.kubeflow.kinds import TFJOB
from gangline.api.kubeflow.training import JobStatus
from gangline.api.meta import Condition
from gangline.cli.follow.job_view import JobView
from gangline.cli.run.remote_jobs import OPERATOR_WARNING_AFTER, warn_without_operator
from gangline.testing.builders import make_job
from gangline.testing.clock import FakeClock


@pytest.mark.parametrize("has_condition", [False, True])
async def test_a_job_without_an_operator_is_warned_about_once(has_condition: bool) -> None:
    view, clock, warnings = JobView(), FakeClock(), list[str]()
    view.job = make_job(TFJOB, worker=1)
    async with asyncio.TaskGroup() as group:
        group.create_task(warn_without_operator(view, clock, lambda: warnings.append("warned")))
        await clock.advance(OPERATOR_WARNING_AFTER - timedelta(seconds=1))
        assert warnings == []
        if has_condition:
            status = JobStatus(conditions=(Condition("Created", "True"),))
            view.job = msgspec.structs.replace(view.job, status=status)
        await clock.advance(timedelta(seconds=1))
    assert warnings == ([] if has_condition else ["warned"])
