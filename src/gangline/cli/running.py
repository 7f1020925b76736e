"""A run as it was asked for, to its exit code: shown, kept, told. Heavy to import."""

import asyncio
import io
import logging
import sys
from pathlib import Path
from typing import IO

import click
import msgspec

from gangline.api.meta import JSON
from gangline.api.training import JobKind
from gangline.base.clock import SystemClock
from gangline.base.log import LogFormat, configure
from gangline.base.tasks import unwrapped
from gangline.cli.curve import curve
from gangline.cli.keeping import Keeping
from gangline.cli.run import Asked
from gangline.cli.screen import choose
from gangline.cli.session import Result, Wanted, run
from gangline.cli.verdicts import FAILED, SUCCEEDED, UNFINISHED
from gangline.cli.view import Line, Span
from gangline.local.node.choosing import settings


def execute(asked: Asked, facts: JobKind, body: JSON, folder: Path) -> int:
    """Run it, and give the exit code. Raises `InputError` before anything starts, `KeyboardInterrupt` at the end."""
    # What the operator would warn of is told by the view; its log is for operators.
    configure(logging.ERROR, LogFormat.TEXT)
    node = settings(**asked.node._asdict())
    keeping = Keeping(asked.runs, str(body["metadata"]["name"])) if asked.runs is not None else None
    if keeping is not None:
        keeping.prepare()
    wanted = Wanted(facts, body, folder, node, asked.timeout, asked.watcher, keeping)
    clock = SystemClock()
    screen = choose(_stream(asked), clock)
    try:
        with unwrapped():
            result = asyncio.run(run(wanted, screen, clock))
    except TimeoutError:
        click.echo(f"not finished after {asked.timeout:g} s; everything was stopped", err=True)
        return UNFINISHED
    except asyncio.CancelledError:
        screen.say((Span("stopped; no process is left"),))
        raise KeyboardInterrupt from None
    screen.end(result.outcome)
    screen.say(*_remarks(asked, result, keeping))
    if asked.output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(result.body), indent=2))
    return SUCCEEDED if result.outcome.succeeded else FAILED


def _stream(asked: Asked) -> IO[str]:
    stream = sys.stderr if asked.output else sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        # A terminal that knows no lights shows question marks, and goes on.
        stream.reconfigure(errors="replace")
    return stream


def _remarks(asked: Asked, result: Result, keeping: Keeping | None) -> list[Line]:
    """The curve, what was kept (which is written here), what to do next."""
    outcome, lines = result.outcome, list[Line]()
    if asked.curve:
        # Of all members together: what one of them sees is noisy.
        points = sorted(point for each in outcome.curves.values() for point in each)
        lines += [(Span(line),) for line in ("", *curve(points), "")]
    if keeping is not None:
        keeping.job(result.body)
        picture = keeping.curve(outcome.curves, outcome.metric)
        told = f"curve: {picture}   " if picture is not None else ""
        lines.append((Span(f"{told}logs: {keeping.folder}/", "dim"),))
    if asked.following:
        lines.append((Span("next: ", "bold"), Span(asked.following)))
    return lines
