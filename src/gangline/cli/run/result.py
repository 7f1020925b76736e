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
from gangline.base.log import LogFormat, configure
from gangline.cli.exit_codes import FAILED, SUCCEEDED
from gangline.cli.follow.outcome import Outcome
from gangline.cli.follow.screen import Screen
from gangline.cli.follow.view import Line, Span
from gangline.cli.output.curve import curve
from gangline.cli.run.command import Asked
from gangline.cli.run.keeping import Keeping
from gangline.cli.run.request import Job
from gangline.kube.client import Client
from gangline.kube.errors import NotFound


class Result(NamedTuple):
    """What became of a job, also as the server has it."""

    outcome: Outcome
    body: JSON
    # Where its programs could leave what they made; gone where they left nothing.
    artifacts: Path | None = None


async def final(client: Client, outcome: Outcome) -> JSON:
    """The job as the server has it; one that was cleaned up already, as it was last seen."""
    job = outcome.job
    with suppress(NotFound):
        return await client.get(client.plain(type(job)), job.metadata.key)
    return to_json(job)


def quiet() -> None:
    """What the operator would warn of is told by the view; its log is for operators."""
    configure(logging.ERROR, LogFormat.TEXT)


def prepared(asked: Asked, jobs: Sequence[Job]) -> Mapping[str, Keeping]:
    """Where each job is kept, if that was asked for. Raises `InputError` where it cannot be."""
    keeping = {job.name: Keeping(asked.runs, job.name) for job in jobs} if asked.runs is not None else {}
    for each in keeping.values():
        each.prepare()
    return keeping


def stream(asked: Asked) -> IO[str]:
    """Where people look: not where data goes."""
    found = sys.stderr if asked.output else sys.stdout
    if isinstance(found, io.TextIOWrapper):
        # A terminal that knows no lights shows question marks, and goes on.
        found.reconfigure(errors="replace")
    return found


def told(
    asked: Asked, results: Sequence[Result], keeping: Mapping[str, Keeping], screen: Screen, *more: Line
) -> int:
    """Show how all of it ended, write what is kept, print what was asked for. Gives the worst verdict."""
    for result in results:
        if len(results) > 1:
            job = result.outcome.job
            screen.say((Span(f"{result.body.get('kind', '').lower()}/{job.metadata.name}", "bold"),))
        screen.end(result.outcome)
        screen.say(*_remarks(asked, result, keeping.get(result.outcome.job.metadata.name)))
    screen.say(*more)
    if asked.following:
        screen.say((Span("next: ", "bold"), Span(asked.following)))
    if asked.output == "json":
        _print([result.body for result in results])
    return SUCCEEDED if all(result.outcome.succeeded for result in results) else FAILED


def _print(bodies: Sequence[JSON]) -> None:
    """One job as itself, several as a list, as `get` has it."""
    body = bodies[0] if len(bodies) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(bodies)}
    click.echo(msgspec.json.format(msgspec.json.encode(body), indent=2))


def _remarks(asked: Asked, result: Result, keeping: Keeping | None) -> list[Line]:
    """The curve, and what was kept (which is written here)."""
    outcome, lines = result.outcome, list[Line]()
    if asked.curve:
        # Of all members together: what one of them sees is noisy.
        points = sorted(point for each in outcome.curves.values() for point in each)
        lines += [(Span(line),) for line in ("", *curve(points), "")]
    if keeping is not None:
        keeping.job(result.body)
        picture = keeping.curve(outcome.curves, outcome.metric)
        shown = f"curve: {picture}   " if picture is not None else ""
        lines.append((Span(f"{shown}logs: {keeping.folder}/", "dim"),))
        lines += [(Span("warning: ", "yellow"), Span(keeping.trouble))] if keeping.trouble else []
    if result.artifacts is not None and any(result.artifacts.glob("*")):
        lines.append((Span(f"artefacts: {result.artifacts}/", "dim"),))
    return lines
