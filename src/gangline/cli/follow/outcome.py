"""How a job ended, in a few lines: the verdict, and of a failure who failed first, how, and its last words. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from gangline.api.kubeflow.training import ConditionType, TrainingJob
from gangline.cli.follow.view import Line, Span, ended, lasted
from gangline.cli.output.curve import Point, fell
from gangline.cli.output.log_lines import tamed
from gangline.jobs.plan.status import newest
from gangline.progress.line import progress
from gangline.why.model.wording import count, meaning

LAST_WORDS = 5


class Outcome(msgspec.Struct, frozen=True):
    """A job that has ended, and what was seen of it."""

    job: TrainingJob
    seconds: float
    # The last log lines of each member.
    tails: Mapping[str, Sequence[str]] = {}
    # What each member reported of its first metric, and what that is called.
    curves: Mapping[str, Sequence[Point]] = {}
    metric: str = ""
    # Members whose pod had failed at the end, and their exit codes.
    failed: Mapping[str, int | None] = {}

    @property
    def succeeded(self) -> bool:
        return self.job.status.holds(ConditionType.SUCCEEDED)


def plain_ending(outcome: Outcome) -> list[Line]:
    """For files and pipes."""
    job = outcome.job
    told = f"{newest(job.status)} in {outcome.seconds:.1f} s: {job.status.conditions[-1].message}"
    return [(Span(told),), *_failure(outcome), *_although(outcome)]


def live_ending(outcome: Outcome) -> list[Line]:
    """For a terminal: `✔ Succeeded in 14 s · 1 restart · loss 1.92 → 0.004`."""
    status = outcome.job.status
    parts = [f"{newest(status)} in {lasted(outcome.seconds)}"]
    parts += [count(status.restarts, "restart")] if status.restarts else []
    if not outcome.succeeded:
        parts.append(status.conditions[-1].message)
        return [(Span("✖ ", "bold red"), Span(" · ".join(parts), "bold")), *_failure(outcome)]
    told = next((fell(points) for _, points in sorted(outcome.curves.items()) if len(points) > 1), "")
    parts += [f"{outcome.metric} {told}"] if told else []
    return [(Span("✔ ", "bold green"), Span(" · ".join(parts), "bold")), *_although(outcome)]


def _failure(outcome: Outcome) -> list[Line]:
    first = outcome.job.status.first_failure
    if not outcome.job.status.holds(ConditionType.FAILED) or first is None:
        return []
    code = "" if first.exit_code is None else f" with exit code {first.exit_code}"
    reason = f" ({first.reason})" if first.reason else ""
    means = f": {meaning(first.exit_code)}" if first.exit_code is not None else ""
    if first.reason == "OOMKilled":
        means = ": it used more memory than it may"
    return [
        (Span(f"first to fail: {first.replica}{code}{reason}{means}", "red"),),
        *((Span(f"  {first.replica}| {line}", "dim"),) for line in last_words(first.replica, outcome)),
    ]


def _although(outcome: Outcome) -> list[Line]:
    """A kind may succeed by one member alone (a master): then nobody should miss that others did not."""
    if not outcome.succeeded or not outcome.failed:
        return []
    whom = ", ".join(
        f"{member} ({ended(code)})" if code is not None else member for member, code in outcome.failed.items()
    )
    return [(Span("note: ", "yellow"), Span(f"the job succeeded although these failed: {whom}"))]


def last_words(member: str, outcome: Outcome) -> list[str]:
    """What a member said at the end: as the job's status has it, else as it was seen here."""
    first = outcome.job.status.first_failure
    said = first.log if first is not None and first.log else outcome.tails.get(member, ())
    return [tamed(line) for line in said if line.strip() and progress(line) is None][-LAST_WORDS:]
