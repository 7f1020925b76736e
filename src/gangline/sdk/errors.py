"""The errors of the SDK: those that users of the Kubeflow client catch, with the messages of the server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gangline.base.errors import GanglineError, InputError
from gangline.base.tasks import unwrap_exception_group
from gangline.sdk.job import Job


class TrainingError(RuntimeError):
    """A call failed; the message is that of the server."""


class JobFailed(TrainingError):
    """The job failed; `.job` is its last state."""

    def __init__(self, job: Job) -> None:
        first = job.status.first_failure
        replica = f": {first.replica} {first.reason or f'exit {first.exit_code}'}" if first is not None else ""
        reason = next((condition.message for condition in job.status.conditions if condition.type == "Failed"), "")
        name = f"{job.metadata.namespace}/{job.metadata.name}"
        super().__init__(f"{job.kind} {name} failed{replica}. {reason}".strip())
        self.job = job


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
