"""How a job ended, in a few lines: the verdict, and of a failure who failed first, how, and its last words. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from gangline.api.kubeflow.training import ConditionType, TrainingJob
from gangline.cli.follow.view import Span, StyledLine, duration_text, exit_code_text
from gangline.cli.output.curve import Point, change_text
from gangline.cli.output.log_lines import printable_text
from gangline.jobs.plan.conditions import current_condition
from gangline.progress.line import parse_progress
from gangline.why.diagnosis.wording import count_phrase, exit_code_meaning

MAX_LOG_LINES = 5


class RunOutcome(msgspec.Struct, frozen=True):
    """A job that has ended, and what was seen of it."""

    job: TrainingJob
    seconds: float
    # The last log lines of each member.
    tails: Mapping[str, Sequence[str]] = {}
    # What each member reported of its first metric, and what that is called.
    curves: Mapping[str, Sequence[Point]] = {}
    metric: str = ""
    # Members whose pod had failed at the end, and their exit codes.
    failed_replicas: Mapping[str, int | None] = {}

    @property
    def succeeded(self) -> bool:
        return self.job.status.holds(ConditionType.SUCCEEDED)


def plain_summary(outcome: RunOutcome) -> list[StyledLine]:
    """For files and pipes."""
    job = outcome.job
    told = f"{current_condition(job.status)} in {outcome.seconds:.1f} s: {job.status.conditions[-1].message}"
    return [(Span(told),), *_failure_lines(outcome), *_failed_replicas_note(outcome)]


def live_summary(outcome: RunOutcome) -> list[StyledLine]:
    """For a terminal: `✔ Succeeded in 14 s · 1 restart · loss 1.92 → 0.004`."""
    status = outcome.job.status
    parts = [f"{current_condition(status)} in {duration_text(outcome.seconds)}"]
    parts += [count_phrase(status.restarts, "restart")] if status.restarts else []
    if not outcome.succeeded:
        parts.append(status.conditions[-1].message)
        return [(Span("✖ ", "bold red"), Span(" · ".join(parts), "bold")), *_failure_lines(outcome)]
    told = next((change_text(points) for _, points in sorted(outcome.curves.items()) if len(points) > 1), "")
    parts += [f"{outcome.metric} {told}"] if told else []
    return [(Span("✔ ", "bold green"), Span(" · ".join(parts), "bold")), *_failed_replicas_note(outcome)]


def _failure_lines(outcome: RunOutcome) -> list[StyledLine]:
    first = outcome.job.status.first_failure
    if not outcome.job.status.holds(ConditionType.FAILED) or first is None:
        return []
    code = "" if first.exit_code is None else f" with exit code {first.exit_code}"
    reason = f" ({first.reason})" if first.reason else ""
    means = f": {exit_code_meaning(first.exit_code)}" if first.exit_code is not None else ""
    if first.reason == "OOMKilled":
        means = ": it used more memory than it may"
    return [
        (Span(f"first to fail: {first.replica}{code}{reason}{means}", "red"),),
        *((Span(f"  {first.replica}| {line}", "dim"),) for line in last_log_lines(first.replica, outcome)),
    ]


def _failed_replicas_note(outcome: RunOutcome) -> list[StyledLine]:
    """A kind may succeed by one member alone (a master): then nobody should miss that others did not."""
    if not outcome.succeeded or not outcome.failed_replicas:
        return []
    whom = ", ".join(
        f"{member} ({exit_code_text(code)})" if code is not None else member
        for member, code in outcome.failed_replicas.items()
    )
    return [(Span("note: ", "yellow"), Span(f"the job succeeded although these failed: {whom}"))]


def last_log_lines(member: str, outcome: RunOutcome) -> list[str]:
    """What a member said at the end: as the job's status has it, else as it was seen here."""
    first = outcome.job.status.first_failure
    said = first.log if first is not None and first.log else outcome.tails.get(member, ())
    return [printable_text(line) for line in said if line.strip() and parse_progress(line) is None][-MAX_LOG_LINES:]
