"""`gangline run --context`: the same run, in a cluster. The folder goes along; what is interrupted is deleted."""

import asyncio
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import click

from gangline.api.quantity import Quantity
from gangline.api.scheme import CORE_SCHEME
from gangline.base.clock import Clock, SystemClock
from gangline.base.errors import GanglineError, InputError
from gangline.base.tasks import unwrap_exception_group
from gangline.cli.cleanup import processes
from gangline.cli.connect.server import FIELD_MANAGER, ServerOptions, ServerTarget, find_server
from gangline.cli.errors import error_with_server, print_warning
from gangline.cli.exit_codes import CANCELLED, ERROR, FAILED, UNFINISHED
from gangline.cli.follow.screen import Screen, choose_screen
from gangline.cli.follow.view import Span, StyledLine
from gangline.cli.manifests.server_errors import explained_error
from gangline.cli.run.bundle import Bundle, bundle_of
from gangline.cli.run.command import RunRequest
from gangline.cli.run.dependencies import reject_dependencies
from gangline.cli.run.kept_files import RunFolder
from gangline.cli.run.remote_jobs import RemoteJobs, RemoteRunSettings
from gangline.cli.run.request import RunJob
from gangline.cli.run.result import (
    JobResult,
    output_stream,
    prepare_run_folders,
    print_results,
    silence_operator_log,
)
from gangline.kube.client import Client
from gangline.kube.options import WriteOptions
from gangline.kube.transport.http import HttpTransport


def run_remote(asked: RunRequest, jobs: Sequence[RunJob]) -> int:
    """Run them there, and give the exit code. Raises `InputError` before anything is sent, `KeyboardInterrupt` at the end."""
    silence_operator_log()
    place = find_server(asked.server)
    if place.archive is not None:
        raise InputError(
            f"--context {asked.server.context}: no server is running there; start one: gangline up --detach"
        )
    found = place.connection
    print(
        f"server: context {found.context} ({found.server}), namespace {place.object_namespace}",
        file=sys.stderr,
    )
    reject_dependencies(jobs, server_flags(asked.server))
    jobs = [with_namespace(job, place) for job in jobs]
    with tempfile.TemporaryDirectory(prefix="gangline-") as scratch:
        cargo = [_load_bundle(asked, job, Path(scratch) / str(number)) for number, job in enumerate(jobs)]
        return _run_bundles(asked, cargo, place)


def with_namespace(job: RunJob, place: ServerTarget) -> RunJob:
    """The job in the namespace that it or the command line names. Raises `InputError` where these are two."""
    metadata = job.body["metadata"]
    written = metadata.get("namespace") or ""
    if written and place.flag_namespace and written != place.flag_namespace:
        raise InputError(
            f'{job.display_name}: its namespace is "{written}", but --namespace is "{place.flag_namespace}"; leave one of them out'
        )
    return job._replace(body={**job.body, "metadata": {**metadata, "namespace": written or place.object_namespace}})


def _load_bundle(asked: RunRequest, job: RunJob, scratch: Path) -> Bundle:
    """The job, and the folder that goes with it. Says what goes and what does not."""
    scratch.mkdir()
    try:
        limit = Quantity.parse(asked.ship_limit).value()
    except InputError as error:
        raise InputError(f"--ship-limit {asked.ship_limit}: is no size; write 500Mi or 2Gi") from error
    cargo = bundle_of(job, scratch, limit, ship=asked.ship)
    for line in cargo.notes:
        click.echo(line, err=True)
    return cargo


def _run_bundles(asked: RunRequest, cargo: Sequence[Bundle], place: ServerTarget) -> int:
    clock = SystemClock()
    screen = choose_screen(output_stream(asked), clock)
    terms = RemoteRunSettings(server_flags(asked.server), asked.timeout, asked.runs is not None, asked.storage_class)
    # What is left is known only to who made it, also when that was interrupted.
    left: list[str] = []
    try:
        with unwrap_exception_group():
            return asyncio.run(_run_connected(asked, cargo, place, terms, screen, clock, left))
    except TimeoutError:
        click.echo(f"not finished after {asked.timeout:g} s; {'; '.join(left)}", err=True)
        return UNFINISHED
    except asyncio.CancelledError:
        screen.say((Span(f"interrupted; {'; '.join(left)}"),))
        raise KeyboardInterrupt from None
    except GanglineError as refusal:
        error = explained_error([each.job.document for each in cargo if each.job.document is not None], refusal)
        print(error_with_server(error, place.connection), *left, sep="\n", file=sys.stderr)
        return ERROR


async def _run_connected(
    asked: RunRequest,
    cargo: Sequence[Bundle],
    place: ServerTarget,
    terms: RemoteRunSettings,
    screen: Screen,
    clock: Clock,
    left: list[str],
) -> int:
    scheme = CORE_SCHEME.with_resources(*{each.job.kind.kind: each.job.kind.resource for each in cargo}.values())
    async with HttpTransport(place.connection, warn=print_warning) as transport:
        client = Client(
            transport,
            scheme=scheme,
            options=WriteOptions(FIELD_MANAGER),
            clock=clock,
            timeout=asked.server.request_timeout,
        )
        remote = RemoteJobs(client, terms, clock, screen, left)
        with delete_on_interrupt(remote, screen):
            named = [each._replace(job=await remote.with_free_name(each.job)) for each in cargo]
            keeping = prepare_run_folders(asked, [each.job for each in named])
            with screen:
                results = await remote.run(named, keeping)
            return _exit_code(asked, results, keeping, screen, terms)


def _exit_code(
    asked: RunRequest,
    results: Sequence[JobResult | None],
    keeping: Mapping[str, RunFolder],
    screen: Screen,
    terms: RemoteRunSettings,
) -> int:
    ended = [result for result in results if result is not None]
    if not ended:
        return CANCELLED
    code = print_results(asked, ended, keeping, screen, *(_next_step(result, terms) for result in ended))
    return code if code == FAILED or len(ended) == len(results) else CANCELLED


def _next_step(result: JobResult, terms: RemoteRunSettings) -> StyledLine:
    """The job is still there: what can be done with it."""
    name = f"{result.body.get('kind', '').lower()}/{result.outcome.job.metadata.name} {terms.server_flags}"
    look = f"gangline logs {name}" if result.outcome.succeeded else f"gangline why {name}"
    return Span("next: ", "bold"), Span(f"{look} · gangline delete {name}")


def server_flags(server: ServerOptions) -> str:
    """The options that lead another command to the same server."""
    given = {"--kubeconfig": server.kubeconfig, "--context": server.context, "-n": server.namespace}
    return " ".join(f"{option} {shlex.quote(value)}" for option, value in given.items() if value)


def delete_on_interrupt(remote: RemoteJobs, screen: Screen) -> AbstractContextManager[None]:
    """Ctrl-C asks the block to end, and says what becomes of the jobs; once more does not wait for that."""
    return processes.cancel_on_interrupt(
        lambda: screen.say((Span(f"{remote.interrupt_message()} (Ctrl-C again leaves at once)", "yellow"),))
    )
