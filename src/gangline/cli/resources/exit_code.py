"""The exit code of a command for the state of a job. Pure."""

from typing import Any

from gangline.cli.exit_codes import CANCELLED, FAILED, SUCCEEDED, UNFINISHED
from gangline.summary.job_state import has_condition


def job_exit_code(job: dict[str, Any] | None) -> int:
    """The exit code for the state of a job; None means that the job was deleted before it finished."""
    if job is None:
        return CANCELLED
    if has_condition(job, "Succeeded"):
        return SUCCEEDED
    return FAILED if has_condition(job, "Failed") else UNFINISHED
