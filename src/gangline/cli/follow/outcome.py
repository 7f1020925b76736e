"""The outcome of a finished job as a few lines: the verdict, the first failed replica and its last log lines. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from gangline.api.kubeflow.training import ConditionType, TrainingJob
from gangline.cli.follow.view import exit_code_text
from gangline.cli.output.curve import Point, change_text
from gangline.cli.output.text import Span, StyledLine, duration_text
from gangline.jobs.plan.conditions import current_condition
from gangline.progress.line import parse_progress
from gangline.summary.log_lines import printable_text
from gangline.timeline.model import ProgressPoint, TeamTimeline
from gangline.why.diagnosis.wording import count_phrase, exit_code_meaning

MAX_LOG_LINES = 5


class RunOutcome(msgspec.Struct, frozen=True):
    """A finished job, and what a follower has seen of it. All mappings are by replica name."""

    job: TrainingJob
    seconds: float
    # The last log lines of each replica.
    tails: Mapping[str, Sequence[str]] = {}
    # The reported values of one metric, and its name.
    curves: Mapping[str, Sequence[Point]] = {}
    metric: str = ""
    # Replicas whose pod had failed at the end, and their exit codes.
    failed_replicas: Mapping[str, int | None] = {}
    # The mistake in the program that explains the failure, and what to do; empty if none is known.
    mistake: str = ""
    # The names with the framework's ranks: `worker-1 (rank 2)`.
    ranked_names: Mapping[str, str] = {}
    # What the team did, and what its replicas reported.
    timeline: TeamTimeline | None = None
    reports: Mapping[str, Sequence[ProgressPoint]] = {}

    @property
    def succeeded(self) -> bool:
        return self.job.status.holds(ConditionType.SUCCEEDED)


def plain_summary(outcome: RunOutcome) -> list[StyledLine]:
    """The outcome for files and pipes."""
    job = outcome.job
    verdict = f"{current_condition(job.status)} in {outcome.seconds:.1f} s: {_end_message(outcome)}"
    return [(Span(verdict),), *_failure_lines(outcome), *_failed_replicas_note(outcome)]


def live_summary(outcome: RunOutcome) -> list[StyledLine]:
    """The outcome for a terminal: `✔ Succeeded in 14 s · 1 restart · loss 1.92 → 0.004`."""
    status = outcome.job.status
    parts = [f"{current_condition(status)} in {duration_text(outcome.seconds)}"]
    parts += [count_phrase(status.restarts, "restart")] if status.restarts else []
    if not outcome.succeeded:
        parts.append(_end_message(outcome))
        return [(Span("✖ ", "bold red"), Span(" · ".join(parts), "bold")), *_failure_lines(outcome)]
    change = next((change_text(points) for _, points in sorted(outcome.curves.items()) if len(points) > 1), "")
    parts += [f"{outcome.metric} {change}"] if change else []
    return [(Span("✔ ", "bold green"), Span(" · ".join(parts), "bold")), *_failed_replicas_note(outcome)]


def _end_message(outcome: RunOutcome) -> str:
    return outcome.mistake or outcome.job.status.conditions[-1].message


def _failure_lines(outcome: RunOutcome) -> list[StyledLine]:
    first = outcome.job.status.first_failure
    if outcome.mistake:
        # It says all, and the program's own words are above it.
        return []
    if not outcome.job.status.holds(ConditionType.FAILED) or first is None:
        return []
    code = "" if first.exit_code is None else f" with exit code {first.exit_code}"
    reason = f" ({first.reason})" if first.reason else ""
    meaning = f": {exit_code_meaning(first.exit_code)}" if first.exit_code is not None else ""
    if first.reason == "OOMKilled":
        meaning = ": it used more memory than it may"
    who = outcome.ranked_names.get(first.replica, first.replica)
    unsure = "; others failed in the same second, and which one was first is not known" if first.order_unknown else ""
    return [
        (Span(f"first to fail: {who}{code}{reason}{meaning}{unsure}", "red"),),
        *((Span(f"  {first.replica}| {line}", "dim"),) for line in last_log_lines(first.replica, outcome)),
    ]


def _failed_replicas_note(outcome: RunOutcome) -> list[StyledLine]:
    """A note about failed replicas of a job that succeeded: of some kinds one replica, such as the master, decides."""
    if not outcome.succeeded or not outcome.failed_replicas:
        return []
    replicas = ", ".join(
        f"{outcome.ranked_names.get(replica, replica)} ({exit_code_text(code)})" if code is not None else replica
        for replica, code in outcome.failed_replicas.items()
    )
    return [(Span("note: ", "yellow"), Span(f"the job succeeded although these failed: {replicas}"))]


def last_log_lines(replica: str, outcome: RunOutcome) -> list[str]:
    """The last log lines of a replica, without progress reports: from the job's status, else as seen here."""
    first = outcome.job.status.first_failure
    lines = first.log if first is not None and first.log else outcome.tails.get(replica, ())
    return [printable_text(line) for line in lines if line.strip() and parse_progress(line) is None][-MAX_LOG_LINES:]
