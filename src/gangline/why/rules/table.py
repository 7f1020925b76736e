"""All rules, in the order of likelihood in which they are asked."""

from gangline.why.report import Rule
from gangline.why.rules import creating, ending, going, job, placing, signs, starting

RULES: tuple[Rule, ...] = (
    *job.RULES,
    *creating.RULES,
    *ending.RULES,
    *starting.RULES,
    *signs.RULES,
    *placing.RULES,
    *signs.PEERS,
    *ending.CODES,
    *ending.LOOPS,
    *going.RULES,
    *starting.SLOW,
    *job.LAST,
)


def markdown() -> str:
    """The rules as a table for people: docs/why.md holds it, and a test compares."""
    lines = ["| rule | what must be seen | what is said |", "| --- | --- | --- |"]
    lines += [f"| `{rule.id}` | {rule.sees} | {rule.cause.rstrip('.')} |" for rule in RULES]
    return "\n".join(lines)
