"""A run as it was asked for, to its exit code: shown, kept, told. Heavy to import."""

import asyncio
from collections.abc import Sequence

import click

from gangline.base.clock import SystemClock
from gangline.cli.connect.server import one_error, way_to_left
from gangline.cli.exit_codes import CANCELLED, FAILED, UNFINISHED
from gangline.cli.follow.screen import choose
from gangline.cli.follow.view import Span
from gangline.cli.manifests.server_errors import mistaken
from gangline.cli.run.command import Asked
from gangline.cli.run.nextsteps import after_failure
from gangline.cli.run.request import Job
from gangline.cli.run.result import prepared, quiet, stream, told
from gangline.cli.run.session import Wanted, run
from gangline.kube.errors import ApiError
from gangline.node.options import settings

OWN = "a plane is running on this machine, but this run has one of its own; to run there: --context gangline"


def execute(asked: Asked, jobs: Sequence[Job]) -> int:
    """Run them, and give the exit code. Raises `InputError` before anything starts, `KeyboardInterrupt` at the end."""
    quiet()
    node = settings(**asked.node._asdict())
    keeping = prepared(asked, jobs)
    if way_to_left() is None:
        click.echo(f"note: {OWN}", err=True)
    wanted = Wanted(jobs, node, asked.timeout, asked.gang, asked.watcher, keeping)
    clock = SystemClock()
    screen = choose(stream(asked), clock)
    try:
        with one_error():
            results = asyncio.run(run(wanted, screen, clock))
    except TimeoutError:
        click.echo(f"not finished after {asked.timeout:g} s; everything was stopped", err=True)
        return UNFINISHED
    except asyncio.CancelledError:
        screen.say((Span("stopped; no process is left"),))
        raise KeyboardInterrupt from None
    except ApiError as error:
        raise mistaken([job.document for job in jobs if job.document is not None], error) from None
    if not results:
        return CANCELLED
    steps = after_failure([each.outcome for each in results]) if not asked.following else []
    code = told(asked, results, keeping, screen, *steps)
    return code if code == FAILED or len(results) == len(jobs) else CANCELLED
