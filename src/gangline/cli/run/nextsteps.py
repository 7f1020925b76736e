"""What to type after a run: the verbs that read what it left."""

from collections.abc import Sequence

from gangline.cli.connect.server import way_to_left
from gangline.cli.follow.outcome import Outcome
from gangline.cli.follow.view import Line, Span


def verbs(*words: str) -> list[str]:
    """Command lines that read what a run left; none where they would speak to a plane that runs."""
    way = way_to_left()
    return [f"gangline {each}{way}" for each in words] if way is not None else []


def after_failure(outcomes: Sequence[Outcome]) -> list[Line]:
    """For people whose job failed: one line for each."""
    jobs = [each.job.metadata for each in outcomes if not each.succeeded]
    named = [f"{job.name} -n {job.namespace}" if job.namespace != "default" else job.name for job in jobs]
    steps = [verbs(f"why {name}", f"logs {name}") for name in named]
    return [(Span("next: ", "bold"), Span(" · ".join(each))) for each in steps if each]
