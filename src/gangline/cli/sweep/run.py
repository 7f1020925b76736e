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
from gangline.base.log import LogFormat, configure_logging
from gangline.base.tasks import unwrap_exception_group
from gangline.cli.errors import error_line
from gangline.cli.exit_codes import FAILED, SUCCEEDED
from gangline.cli.manifests.jobs import read_documents
from gangline.cli.manifests.server_errors import explained_error
from gangline.cli.output import formats
from gangline.cli.output.curve import curve_lines
from gangline.cli.output.tables import render, use_colour, write_stdout
from gangline.cli.sweep.command import SweepRequest
from gangline.cli.sweep.leaderboard import (
    Leaderboard,
    Objective,
    TrialState,
    leaderboard_header,
    leaderboard_json,
    leaderboard_rows,
    new_leaderboard,
    parameter_labels,
    remarks,
    trial_label,
)
from gangline.cli.sweep.results import SweepFolder
from gangline.cli.sweep.screen import choose_sweep_screen
from gangline.cli.sweep.space import TrialValues
from gangline.cli.sweep.sweeping import SweepPlan, SweepRunner, TrialRejected
from gangline.cli.sweep.trial_jobs import SweepSource
from gangline.node.options import node_settings


def run_sweep(
    asked: SweepRequest,
    source: SweepSource,
    facts: JobKind,
    bodies: Sequence[JSON],
    values: Sequence[TrialValues],
) -> int:
    """Run it, and give the exit code. Raises `InputError` before anything starts, `KeyboardInterrupt` at the end."""
    # What the operator would warn of is in the table, as a cause.
    configure_logging(logging.ERROR, LogFormat.TEXT)
    node = node_settings(**asked.node._asdict())
    kept = SweepFolder(asked.runs, str(bodies[0]["metadata"]["name"]))
    node = msgspec.structs.replace(node, artifacts=kept.artifacts_pattern)
    wanted = SweepPlan(facts, bodies, source.folder, node, asked.parallel, asked.timeout)
    board = new_leaderboard(Objective(asked.metric, asked.maximize), values)
    sweep = SweepRunner(wanted, board, kept, choose_sweep_screen(sys.stderr), SystemClock())
    try:
        with unwrap_exception_group():
            asyncio.run(sweep.run())
    except asyncio.CancelledError:
        _print_results(asked, sweep, kept)
        click.echo("stopped; no process is left", err=True)
        raise KeyboardInterrupt from None
    except TrialRejected as error:
        raise _rejection_error(source, bodies[error.index], values[error.index], error) from None
    finally:
        kept.remove_empty_artifacts()
    _print_results(asked, sweep, kept)
    return SUCCEEDED if sweep.board.count(TrialState.SUCCEEDED) else FAILED


def _rejection_error(source: SweepSource, body: JSON, values: TrialValues, refused: TrialRejected) -> InputError:
    """Why no trial was begun, with the line of the file; and with its values, where they are in the job."""
    found = error_line(refused.error).removeprefix("error: ")
    if source.file is not None:
        document = msgspec.structs.replace(read_documents(source.file)[0][1], body=body)
        found = str(explained_error([document], refused.error))
    places = {name: value for name, value in values.items() if "." in name}
    with_values = "".join(f"--set {name}={value}: " for name, value in places.items())
    return InputError(f"{with_values}{found}")


def _print_results(asked: SweepRequest, sweep: SweepRunner, kept: SweepFolder) -> None:
    """The leaderboard on standard output; for people, the curve of the best one and where everything is."""
    board = sweep.board
    kept.write_table(board)
    picture = kept.write_picture(board, sweep.curves)
    if asked.output == "json":
        write_stdout(formats.as_json(leaderboard_json(board)))
    else:
        write_stdout(render(leaderboard_header(board), leaderboard_rows(board), colour=use_colour(sys.stdout)))
        for line in _best_curve(board, sweep):
            click.echo(line, err=True)
    for remark in remarks(board, sweep.metrics):
        click.echo(f"note: {remark}", err=True)
    if kept.write_error:
        click.echo(f"warning: {kept.write_error}", err=True)
    drawn = f"picture: {picture}   " if picture is not None else ""
    click.echo(f"table: {kept.csv}   {drawn}logs: {kept.folder}/trial-*/", err=True)


def _best_curve(board: Leaderboard, sweep: SweepRunner) -> list[str]:
    """The curve of the best trial, with its name."""
    best = board.best_row()
    if best is None or len(sweep.curves[best.number]) < 2:
        return []
    name = (
        f"{board.objective.metric} of trial {best.number}, the best: {trial_label(best, parameter_labels(board.rows))}"
    )
    return ["", *curve_lines(sweep.curves[best.number]), name, ""]
