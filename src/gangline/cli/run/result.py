"""How a run ended: as people see it, as it is kept, as data, as an exit code."""

import io
import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

import click
import msgspec

from gangline.api.codec.codec import to_json
from gangline.api.meta import JSON
from gangline.base.log import LogFormat, configure_logging
from gangline.cli.connect.server import archive_flags
from gangline.cli.exit_codes import FAILED, SUCCEEDED
from gangline.cli.follow.outcome import RunOutcome
from gangline.cli.follow.screen import Screen
from gangline.cli.follow.view import Span, StyledLine
from gangline.cli.output.curve import curve_lines
from gangline.cli.run.command import RunRequest
from gangline.cli.run.kept_files import RunFolder
from gangline.cli.run.request import RunJob
from gangline.kube.client import Client
from gangline.kube.errors import NotFound


class JobResult(NamedTuple):
    """What became of a job, also as the server has it."""

    outcome: RunOutcome
    body: JSON
    # Where its programs could leave what they made; gone where they left nothing.
    artifacts: Path | None = None


async def fetch_final_job(client: Client, outcome: RunOutcome) -> JSON:
    """The job as the server has it; one that was cleaned up already, as it was last seen."""
    job = outcome.job
    with suppress(NotFound):
        return await client.get(client.unstructured(type(job)), job.metadata.key)
    return to_json(job)


def silence_operator_log() -> None:
    """What the operator would warn of is told by the view; its log is for operators."""
    configure_logging(logging.ERROR, LogFormat.TEXT)


def prepare_run_folders(asked: RunRequest, jobs: Sequence[RunJob]) -> Mapping[str, RunFolder]:
    """Where each job is kept, if that was asked for. Raises `InputError` where it cannot be."""
    keeping = {job.name: RunFolder(asked.runs, job.name) for job in jobs} if asked.runs is not None else {}
    for each in keeping.values():
        each.prepare()
    return keeping


def output_stream(asked: RunRequest) -> IO[str]:
    """Where people look: not where data goes."""
    found = sys.stderr if asked.output else sys.stdout
    if isinstance(found, io.TextIOWrapper):
        # A terminal that knows no lights shows question marks, and goes on.
        found.reconfigure(errors="replace")
    return found


def print_results(
    asked: RunRequest,
    results: Sequence[JobResult],
    keeping: Mapping[str, RunFolder],
    screen: Screen,
    *more: StyledLine,
) -> int:
    """Show how all of it ended, write what is kept, print what was asked for. Gives the worst verdict."""
    for result in results:
        if len(results) > 1:
            job = result.outcome.job
            screen.say((Span(f"{result.body.get('kind', '').lower()}/{job.metadata.name}", "bold"),))
        screen.show_outcome(result.outcome)
        screen.say(*_result_lines(asked, result, keeping.get(result.outcome.job.metadata.name)))
    screen.say(*more)
    if asked.next_steps:
        screen.say((Span("next: ", "bold"), Span(asked.next_steps)))
    if asked.output == "json":
        _print_json([result.body for result in results])
    return SUCCEEDED if all(result.outcome.succeeded for result in results) else FAILED


def _print_json(bodies: Sequence[JSON]) -> None:
    """One job as itself, several as a list, as `get` has it."""
    body = bodies[0] if len(bodies) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(bodies)}
    click.echo(msgspec.json.format(msgspec.json.encode(body), indent=2))


def _result_lines(asked: RunRequest, result: JobResult, keeping: RunFolder | None) -> list[StyledLine]:
    """The curve, and what was kept (which is written here)."""
    outcome, lines = result.outcome, list[StyledLine]()
    if asked.curve:
        # Of all members together: what one of them sees is noisy.
        points = sorted(point for each in outcome.curves.values() for point in each)
        lines += [(Span(line),) for line in ("", *curve_lines(points), "")]
    if keeping is not None:
        keeping.write_job(result.body)
        picture = keeping.write_curve(outcome.curves, outcome.metric)
        shown = f"curve: {picture}   " if picture is not None else ""
        lines.append((Span(f"{shown}logs: {keeping.folder}/", "dim"),))
        lines += [(Span("warning: ", "yellow"), Span(keeping.write_error))] if keeping.write_error else []
    if result.artifacts is not None and any(result.artifacts.glob("*")):
        lines.append((Span(f"artefacts: {result.artifacts}/", "dim"),))
    return lines


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
