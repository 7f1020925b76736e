"""What the SDK raises: the errors that users of the Kubeflow client catch, with what the server said."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gangline.base.errors import GanglineError, InputError
from gangline.base.tasks import unwrap_exception_group
from gangline.sdk.job import Job


class TrainingError(RuntimeError):
    """Something about jobs could not be done; the message is the server's own."""


class JobFailed(TrainingError):
    """The job failed. `.job` is as it was then."""

    def __init__(self, job: Job) -> None:
        first = job.status.first_failure
        who = f": {first.replica} {first.reason or f'exit {first.exit_code}'}" if first is not None else ""
        reason = next((found.message for found in job.status.conditions if found.type == "Failed"), "")
        where = f"{job.metadata.namespace}/{job.metadata.name}"
        super().__init__(f"{job.kind} {where} failed{who}. {reason}".strip())
        self.job = job


@asynccontextmanager
async def translate_errors(what: str, timeout: float | None = None) -> AsyncIterator[None]:
    """Our errors become those above; after `timeout` seconds, `TimeoutError`."""
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
