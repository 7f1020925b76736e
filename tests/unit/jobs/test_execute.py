"""Plans become calls."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.api.tfjob import TFJob
from gangline.api.training import JobStatus, ReplicaStatus
from gangline.jobs.execute import Executor
from gangline.jobs.framework import Addresses
from gangline.jobs.plan import Observed, Plan
from gangline.testing.builders import make_tfjob

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Writes:
    """A `Writer` that notes what is patched."""

    def __init__(self) -> None:
        self.patches: list[JSON] = []

    async def patch(self, kind: Any, key: Any, body: Any, **_: Any) -> Any:
        self.patches.append(body)

    async def create(self, *_: Any, **__: Any) -> Any:
        raise AssertionError

    update = delete = apply = create


def job(**counts: int) -> TFJob:
    status = JobStatus(replica_statuses={"Worker": ReplicaStatus(**counts)}, start_time=NOW)
    return msgspec.structs.replace(make_tfjob(worker=2), status=status)


async def patched(before: TFJob, after: JobStatus) -> list[JSON]:
    writes = Writes()
    seen = Observed(job=before, pods=(), services=(), addresses=Addresses({}), now=NOW)
    await Executor(writes).apply(seen, Plan(status=after))
    return writes.patches


async def test_a_number_that_falls_to_zero_is_taken_out_of_the_status() -> None:
    (patch,) = await patched(job(active=2), job(succeeded=2).status)
    assert patch == {"status": {"replicaStatuses": {"Worker": {"active": None, "succeeded": 2}}}}


async def test_what_is_gone_is_null_and_what_stays_is_not_sent() -> None:
    (patch,) = await patched(job(active=1), JobStatus(start_time=NOW))
    assert patch == {"status": {"replicaStatuses": None}}


async def test_the_same_status_is_not_written() -> None:
    assert await patched(job(active=1), job(active=1).status) == []
