"""The errors of the SDK: those that users of the Kubeflow client catch, with the messages of the server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gangline.api.kubeflow.training import Failure
from gangline.base.errors import GanglineError, InputError
from gangline.base.tasks import unwrap_exception_group
from gangline.frameworks.ranks import rank_of, ranks_per_replica
from gangline.sdk.job import Job
from gangline.sdk.outcome.python_errors import PythonError, job_error


class TrainingError(RuntimeError):
    """A call failed; the message is that of the server."""


class JobFailed(TrainingError):
    """The job failed: the exception of the replica that failed first, as far as it is known.

    The traceback of the replica is a note of this exception, so Python shows it below the message.

    Attributes:
        job: the last state of the job.
        replica: the replica that failed first, such as `worker-1`; empty if it is unknown.
        rank: its rank; None if the framework has none, or the replica several.
        exit_code: of its process; None if it never ran.
        error_type: the type of the exception, such as `ValueError`; empty if it was no Python exception.
        error_message: the message of the exception.
        log: its last log lines before the traceback.
    """

    def __init__(self, job: Job, failure: Failure | None = None) -> None:
        failure = failure or job.status.first_failure or Failure(replica="")
        self._failure = failure
        error = job_error(failure)
        self.job, self.replica, self.exit_code = job, failure.replica, failure.exit_code
        self.rank = failure.rank if failure.rank is not None else _rank(job, failure.replica)
        self.error_type, self.error_message, self.log = error.type, error.message, error.log
        super().__init__("\n".join(_failure_lines(job, failure, error, self._place)))
        if error.traceback:
            self.add_note(f"in {self._place}:\n{error.traceback}")

    def __reduce__(self) -> tuple[type["JobFailed"], tuple[Job, Failure]]:
        return JobFailed, (self.job, self._failure)

    @property
    def _place(self) -> str:
        """`worker-1 (rank 2)`."""
        return self.replica if self.rank is None else f"{self.replica} (rank {self.rank})"

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the failure in the replica, not the lines of the client that waited for it."""
        return [f"JobFailed: {self}", *getattr(self, "__notes__", ())]


def _rank(job: Job, replica: str) -> int | None:
    """The rank of a replica; None if it has several, or the framework decides."""
    spec = job.to_dict()["spec"]
    processes = ranks_per_replica(spec.get("elasticPolicy"), spec.get("nprocPerNode") or spec.get("slotsPerWorker"))
    return rank_of(job.kind, job.replicas, replica) if processes == 1 else None


def _failure_lines(job: Job, failure: Failure, error: PythonError, place: str) -> list[str]:
    name = f"{job.kind} {job.metadata.namespace}/{job.metadata.name}"
    condition = next((condition.message for condition in job.status.conditions if condition.type == "Failed"), "")
    if job.state == "Succeeded":
        condition = f"{name} has succeeded, because its leader has; this rank failed."
    if error.type:
        message = f"{error.type}: {error.message}" if error.message else error.type
        lines = [f"{place}: {message}" if place else message, condition or f"{name} failed."]
    else:
        how = f": {place} {failure.reason or f'exit {failure.exit_code}'}" if failure.replica else ""
        lines = [f"{name} failed{how}. {condition}".rstrip()]
    if failure.order_unknown:
        lines.append("Others failed in the same second; which one was first is not known.")
    if error.log:
        lines += [f"last lines of {failure.replica}:", *(f"  {line}" for line in error.log)]
    return lines


@asynccontextmanager
async def translate_errors(what: str, timeout: float | None = None) -> AsyncIterator[None]:
    """Raise errors of gangline as `ValueError` or `TrainingError`, and `TimeoutError` after `timeout` seconds."""
    try:
        with unwrap_exception_group():
            async with asyncio.timeout(timeout):
                yield
    except TimeoutError:
        raise TimeoutError(f"{what}: not within {timeout:g} seconds") from None
    except InputError as error:
        raise ValueError(str(error)) from error
    except GanglineError as error:
        raise TrainingError(str(error)) from error
