"""A run as it was asked for, to its exit code: shown, kept, told. Heavy to import."""

import asyncio
from collections.abc import Sequence

import click

from gangline.base.clock import SystemClock
from gangline.cli.connect.server import archive_flags, single_error
from gangline.cli.exit_codes import CANCELLED, FAILED, UNFINISHED
from gangline.cli.follow.screen import choose_screen
from gangline.cli.follow.view import Span
from gangline.cli.manifests.server_errors import explained_error
from gangline.cli.run.command import RunRequest
from gangline.cli.run.nextsteps import failure_hints
from gangline.cli.run.request import RunJob
from gangline.cli.run.result import output_stream, prepare_run_folders, print_results, silence_operator_log
from gangline.cli.run.session import RunPlan, run_jobs
from gangline.kube.errors import ApiError
from gangline.node.options import node_settings

OWN_PLANE_NOTE = "a plane is running on this machine, but this run has one of its own; to run there: --context gangline"


def run_local(asked: RunRequest, jobs: Sequence[RunJob]) -> int:
    """Run them, and give the exit code. Raises `InputError` before anything starts, `KeyboardInterrupt` at the end."""
    silence_operator_log()
    node = node_settings(**asked.node._asdict())
    keeping = prepare_run_folders(asked, jobs)
    if archive_flags() is None:
        click.echo(f"note: {OWN_PLANE_NOTE}", err=True)
    wanted = RunPlan(jobs, node, asked.timeout, asked.gang, asked.hook_factory, keeping)
    clock = SystemClock()
    screen = choose_screen(output_stream(asked), clock)
    try:
        with single_error():
            results = asyncio.run(run_jobs(wanted, screen, clock))
    except TimeoutError:
        click.echo(f"not finished after {asked.timeout:g} s; everything was stopped", err=True)
        return UNFINISHED
    except asyncio.CancelledError:
        screen.say((Span("stopped; no process is left"),))
        raise KeyboardInterrupt from None
    except ApiError as error:
        raise explained_error([job.document for job in jobs if job.document is not None], error) from None
    if not results:
        return CANCELLED
    steps = failure_hints([each.outcome for each in results]) if not asked.next_steps else []
    code = print_results(asked, results, keeping, screen, *steps)
    return code if code == FAILED or len(results) == len(jobs) else CANCELLED
