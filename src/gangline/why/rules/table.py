"""All rules, in the order of likelihood in which they are asked."""

from gangline.why.model.report import Rule
from gangline.why.rules import (
    container_exits,
    job_state,
    log_patterns,
    no_progress,
    not_created,
    not_started,
    unscheduled,
)

RULES: tuple[Rule, ...] = (
    *job_state.RULES,
    *not_created.RULES,
    *container_exits.RULES,
    *not_started.RULES,
    *log_patterns.RULES,
    *unscheduled.RULES,
    *log_patterns.PEERS,
    *container_exits.CODES,
    *container_exits.LOOPS,
    *no_progress.RULES,
    *not_started.SLOW,
    *job_state.LAST,
)


def markdown() -> str:
    """The rules as a table for people: docs/why.md holds it, and a test compares."""
    lines = ["| rule | what must be seen | what is said |", "| --- | --- | --- |"]
    lines += [f"| `{rule.id}` | {rule.sees} | {rule.cause.rstrip('.')} |" for rule in RULES]
    return "\n".join(lines)
