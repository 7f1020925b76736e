"""What to type after a run: the verbs that read what it left."""

from collections.abc import Sequence

from gangline.cli.connect.server import archive_flags
from gangline.cli.follow.outcome import RunOutcome
from gangline.cli.follow.view import Span, StyledLine


def next_commands(*words: str) -> list[str]:
    """Command lines that read what a run left; none where they would speak to a plane that runs."""
    way = archive_flags()
    return [f"gangline {each}{way}" for each in words] if way is not None else []


def failure_hints(outcomes: Sequence[RunOutcome]) -> list[StyledLine]:
    """For people whose job failed: one line for each."""
    jobs = [each.job.metadata for each in outcomes if not each.succeeded]
    named = [f"{job.name} -n {job.namespace}" if job.namespace != "default" else job.name for job in jobs]
    steps = [next_commands(f"why {name}", f"logs {name}") for name in named]
    return [(Span("next: ", "bold"), Span(" · ".join(each))) for each in steps if each]
