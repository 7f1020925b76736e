"""The exit codes of every command. They are documented in docs/cli.md and are part of the public interface."""

from typing import Any

SUCCEEDED, ERROR = 0, 1
NOTHING_WRONG = 3
"""Of `why`: the job is healthy, so there is no cause to name."""
FAILED, UNFINISHED, NOT_FOUND, CANCELLED = 100, 101, 102, 103
"""How a job ended: failed, not finished in time, no such job, deleted before it finished."""
INTERRUPTED = 130
"""Ctrl-C: 128 and the number of SIGINT, as shells have it."""


def job_exit_code(job: dict[str, Any] | None) -> int:
    """The exit code for the state of a job; None means that the job was deleted before it finished."""
    # Imported here: the entry point imports this module for its constants, before anything that takes long to load.
    from gangline.cli.output.job_rows import has_condition

    if job is None:
        return CANCELLED
    if has_condition(job, "Succeeded"):
        return SUCCEEDED
    return FAILED if has_condition(job, "Failed") else UNFINISHED
