"""Exit codes that say how a job ended, the same for every command that waits for one."""

from gangline.api.meta import JSON
from gangline.cli.output.job_rows import has_condition

SUCCEEDED, ERROR, FAILED, UNFINISHED, NOT_FOUND, CANCELLED = 0, 1, 100, 101, 102, 103


def job_exit_code(job: JSON | None) -> int:
    """Of a job as it is; None is a job that was deleted before it ended."""
    if job is None:
        return CANCELLED
    if has_condition(job, "Succeeded"):
        return SUCCEEDED
    return FAILED if has_condition(job, "Failed") else UNFINISHED
