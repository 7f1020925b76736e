"""The exit codes of every command. They are documented in docs/cli.md and are part of the public interface."""

SUCCEEDED, ERROR = 0, 1
NOTHING_WRONG = 3
"""Of `why`: the job is healthy, so there is no cause to name."""
FAILED, UNFINISHED, NOT_FOUND, CANCELLED = 100, 101, 102, 103
"""How a job ended: failed, not finished in time, no such job, deleted before it finished."""
INTERRUPTED = 130
"""Ctrl-C: 128 and the number of SIGINT, as shells have it."""
