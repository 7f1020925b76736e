"""The cause that a recovery policy gets of `why`, and what happens if it cannot be read."""

from typing import Any

import pytest

from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.jobs.plan.recovery.decision import FailureCause
from gangline.kube.errors import ApiError, Forbidden, KubeError, NotFound, Status, Unreachable
from gangline.testing.builders import make_job
from gangline.testing.clock import FakeClock
from gangline.why.causes import cause_reader, failure_cause
from gangline.why.diagnosis.report import Cause, Diagnosis

JOB = make_job(PYTORCHJOB, worker=1)


def report(*causes: Cause, unread: tuple[str, ...] = ()) -> Diagnosis:
    return Diagnosis("PyTorchJob", "ns", "job", "Running", "", healthy=not causes, causes=causes, unread=unread)


def test_the_first_cause_counts() -> None:
    assert failure_cause(report()) is None
    found = failure_cause(report(Cause("oom-killed", "It was killed."), Cause("evicted", "")))
    assert found == FailureCause("oom-killed", "It was killed.")


@pytest.mark.parametrize("rule", ["exit-code", "permanent-exit-code"])
def test_an_exit_code_alone_is_unknown_if_the_log_could_not_be_read(rule: str) -> None:
    cause = Cause(rule, "It ended with 1.")
    assert failure_cause(report(cause)) == FailureCause(rule, cause.cause)
    assert failure_cause(report(cause, unread=("nodes: forbidden",))) == FailureCause(rule, cause.cause)
    unknown = failure_cause(report(cause, unread=("log of job-worker-0: the node does not answer",)))
    assert unknown == FailureCause("failed", cause.cause)


class FailingClient:
    """A client whose every request fails."""

    def __init__(self, error: KubeError) -> None:
        self._error = error

    async def get(self, *_: Any) -> Any:
        raise self._error

    async def iterate(self, *_: Any) -> Any:
        yield await self.get()


def api_error(kind: type[ApiError]) -> ApiError:
    return kind(Status(status="Failure", message="no"))


@pytest.mark.parametrize("error", [api_error(Forbidden), api_error(NotFound)], ids=["forbidden", "gone"])
async def test_a_job_that_may_not_be_read_has_no_cause(error: KubeError) -> None:
    reader = cause_reader(FailingClient(error), FakeClock())  # type: ignore[arg-type]
    assert await reader.cause(JOB, PYTORCHJOB) is None


async def test_a_server_that_does_not_answer_decides_nothing() -> None:
    reader = cause_reader(FailingClient(Unreachable("no route")), FakeClock())  # type: ignore[arg-type]
    with pytest.raises(Unreachable):
        await reader.cause(JOB, PYTORCHJOB)
