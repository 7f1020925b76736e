"""All rules, in the order in which they are tried: likely causes first."""

from gangline.why.diagnosis.report import DiagnosisRule
from gangline.why.diagnosis.rules import (
    container_exits,
    job_state,
    log_patterns,
    no_progress,
    not_created,
    not_started,
    unscheduled,
)

RULES: tuple[DiagnosisRule, ...] = (
    *job_state.JOB_RULES,
    *not_created.CREATION_RULES,
    *container_exits.TERMINATION_RULES,
    *not_started.STARTUP_RULES,
    *log_patterns.LOG_RULES,
    *unscheduled.SCHEDULING_RULES,
    *log_patterns.PEER_RULES,
    *container_exits.EXIT_CODE_RULES,
    *container_exits.LOOP_RULES,
    *no_progress.RUNNING_RULES,
    *not_started.SLOW_START_RULES,
    *job_state.FALLBACK_RULES,
)


def rules_table() -> str:
    """The rules as a Markdown table. docs/why.md holds it, and a test compares them."""
    lines = ["| rule | what must be seen | what is said |", "| --- | --- | --- |"]
    lines += [f"| `{rule.id}` | {rule.symptom} | {rule.cause.rstrip('.')} |" for rule in RULES]
    return "\n".join(lines)
