"""A sweep as it was asked for, to its exit code: run, printed, told. Heavy to import."""

import asyncio
import logging
import sys
from collections.abc import Sequence

import click
import msgspec

from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.base.log import LogFormat, configure
from gangline.base.tasks import unwrapped
from gangline.cli.errors import sentence
from gangline.cli.exit_codes import FAILED, SUCCEEDED
from gangline.cli.manifests.jobs import read_documents
from gangline.cli.manifests.server_errors import mistaken
from gangline.cli.output import formats
from gangline.cli.output.curve import curve
from gangline.cli.output.tables import colours, put, render
from gangline.cli.sweep.command import Asked
from gangline.cli.sweep.leaderboard import (
    Aim,
    Board,
    State,
    as_json,
    cells,
    fresh,
    header,
    labels,
    remarks,
    told,
)
from gangline.cli.sweep.results import SweepFolder
from gangline.cli.sweep.screen import choose
from gangline.cli.sweep.space import Values
from gangline.cli.sweep.sweeping import Refused, Sweep, Wanted
from gangline.cli.sweep.trial_jobs import Source
from gangline.node.options import settings


def execute(
    asked: Asked, source: Source, facts: JobKind, bodies: Sequence[JSON], values: Sequence[Values]
) -> int:
    """Run it, and give the exit code. Raises `InputError` before anything starts, `KeyboardInterrupt` at the end."""
    # What the operator would warn of is in the table, as a cause.
    configure(logging.ERROR, LogFormat.TEXT)
    node = settings(**asked.node._asdict())
    kept = SweepFolder(asked.runs, str(bodies[0]["metadata"]["name"]))
    node = msgspec.structs.replace(node, artifacts=kept.artifacts)
    wanted = Wanted(facts, bodies, source.folder, node, asked.parallel, asked.timeout)
    board = fresh(Aim(asked.metric, asked.most), values)
    sweep = Sweep(wanted, board, kept, choose(sys.stderr), SystemClock())
    try:
        with unwrapped():
            asyncio.run(sweep.run())
    except asyncio.CancelledError:
        _tell(asked, sweep, kept)
        click.echo("stopped; no process is left", err=True)
        raise KeyboardInterrupt from None
    except Refused as error:
        raise _mistake(source, bodies[error.at], values[error.at], error) from None
    finally:
        kept.tidy()
    _tell(asked, sweep, kept)
    return SUCCEEDED if sweep.board.count(State.SUCCEEDED) else FAILED


def _mistake(source: Source, body: JSON, values: Values, refused: Refused) -> InputError:
    """Why no trial was begun, with the line of the file; and with its values, where they are in the job."""
    found = sentence(refused.error).removeprefix("error: ")
    if source.file is not None:
        document = msgspec.structs.replace(read_documents(source.file)[0][1], body=body)
        found = str(mistaken([document], refused.error))
    places = {name: value for name, value in values.items() if "." in name}
    with_values = "".join(f"--set {name}={value}: " for name, value in places.items())
    return InputError(f"{with_values}{found}")


def _tell(asked: Asked, sweep: Sweep, kept: SweepFolder) -> None:
    """The leaderboard on standard output; for people, the curve of the best one and where everything is."""
    board = sweep.board
    kept.table(board)
    picture = kept.picture(board, sweep.curves)
    if asked.output == "json":
        put(formats.as_json(as_json(board)))
    else:
        put(render(header(board), cells(board), colour=colours(sys.stdout)))
        for line in _best(board, sweep):
            click.echo(line, err=True)
    for remark in remarks(board, sweep.metrics):
        click.echo(f"note: {remark}", err=True)
    if kept.trouble:
        click.echo(f"warning: {kept.trouble}", err=True)
    drawn = f"picture: {picture}   " if picture is not None else ""
    click.echo(f"table: {kept.csv}   {drawn}logs: {kept.folder}/trial-*/", err=True)


def _best(board: Board, sweep: Sweep) -> list[str]:
    """The curve of the best trial, with its name."""
    best = board.best()
    if best is None or len(sweep.curves[best.number]) < 2:
        return []
    name = f"{board.aim.metric} of trial {best.number}, the best: {told(best, labels(board.rows))}"
    return ["", *curve(sweep.curves[best.number]), name, ""]
