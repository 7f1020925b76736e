"""`gangline run --context`: runs jobs in a cluster. Ships their folders, and deletes the jobs if interrupted."""

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
from gangline.base.invocation import own_command
from gangline.base.tasks import unwrap_exception_group
from gangline.cli.cleanup.processes import cancel_on_interrupt
from gangline.cli.connect.server import FIELD_MANAGER, ServerOptions, ServerTarget, find_server
from gangline.cli.errors import error_with_server, print_warning
from gangline.cli.exit_codes import CANCELLED, ERROR, FAILED, SUCCEEDED, UNFINISHED
from gangline.cli.follow.screen import Screen, choose_screen
from gangline.cli.manifests.server_errors import explained_error
from gangline.cli.output.text import Span, StyledLine
from gangline.cli.run.bundle import Bundle, bundle_of, file_lines
from gangline.cli.run.kept_files import RunFolder
from gangline.cli.run.remote_jobs import RemoteJobs, RemoteRunSettings
from gangline.cli.run.request import RunJob, RunRequest
from gangline.cli.run.result import (
    JobResult,
    next_lines,
    output_stream,
    prepare_run_folders,
    print_results,
    silence_operator_log,
)
from gangline.cli.run.submit import reject_dependencies
from gangline.kube.client import Client
from gangline.kube.options import WriteOptions
from gangline.kube.transport.http import HttpTransport


def run_remote(request: RunRequest, jobs: Sequence[RunJob]) -> int:
    """Run the jobs in the cluster of the context, print the results and return the exit code.

    Raises `InputError` before anything is sent, and `KeyboardInterrupt` after an interrupted run.
    """
    silence_operator_log()
    target = find_server(request.server)
    if target.archive is not None:
        raise InputError(
            f"--context {request.server.context}: no server is running there; start one: gangline up --detach"
        )
    connection = target.connection
    print(
        f"server: context {connection.context} ({connection.server}), namespace {target.object_namespace}",
        file=sys.stderr,
    )
    reject_dependencies(jobs, server_flags(request.server))
    jobs = [with_namespace(job, target) for job in jobs]
    with tempfile.TemporaryDirectory(prefix="gangline-") as scratch:
        bundles = [_load_bundle(request, job, Path(scratch) / str(number)) for number, job in enumerate(jobs)]
        if request.shipping.dry_run:
            return SUCCEEDED
        return _run_bundles(request, bundles, target)


def with_namespace(job: RunJob, target: ServerTarget) -> RunJob:
    """The job in its own namespace, else in that of the command line. Raises `InputError` where the two differ."""
    metadata = job.body["metadata"]
    namespace = metadata.get("namespace") or ""
    if namespace and target.flag_namespace and namespace != target.flag_namespace:
        raise InputError(
            f'{job.display_name}: its namespace is "{namespace}", but --namespace is "{target.flag_namespace}"; leave one of them out'
        )
    return job._replace(body={**job.body, "metadata": {**metadata, "namespace": namespace or target.object_namespace}})


def _load_bundle(request: RunRequest, job: RunJob, scratch: Path) -> Bundle:
    """The job and the folder that is shipped with it. Prints notes about what is shipped and what is not."""
    shipping = request.shipping
    scratch.mkdir()
    try:
        limit = Quantity.parse(shipping.ship_limit).value()
    except InputError as error:
        raise InputError(f"--ship-limit {shipping.ship_limit}: is no size; write 500Mi or 2Gi") from error
    bundle = bundle_of(job, scratch, limit, ship=shipping.ship, ship_secrets=shipping.ship_secrets)
    for line in bundle.notes:
        click.echo(line, err=True)
    if shipping.dry_run and bundle.shipment is None:
        click.echo(f"{job.display_name}: no folder is shipped", err=True)
    if shipping.dry_run or request.server.verbose:
        for line in file_lines(bundle):
            click.echo(line, err=not shipping.dry_run)
    return bundle


def _run_bundles(request: RunRequest, bundles: Sequence[Bundle], target: ServerTarget) -> int:
    clock = SystemClock()
    screen = choose_screen(output_stream(request), clock)
    settings = RemoteRunSettings(
        server_flags(request.server), request.timeout, request.runs is not None, request.shipping.storage_class
    )
    # Filled by `RemoteJobs`, so that it can be printed even if the run is interrupted.
    leftovers: list[str] = []
    try:
        with unwrap_exception_group():
            return asyncio.run(_run_connected(request, bundles, target, settings, screen, clock, leftovers))
    except TimeoutError:
        click.echo(f"not finished after {request.timeout:g} s; {'; '.join(leftovers)}", err=True)
        return UNFINISHED
    except asyncio.CancelledError:
        screen.say((Span(f"interrupted; {'; '.join(leftovers)}"),))
        raise KeyboardInterrupt from None
    except GanglineError as cause:
        documents = [bundle.job.document for bundle in bundles if bundle.job.document is not None]
        error = explained_error(documents, cause)
        print(error_with_server(error, target.connection), *leftovers, sep="\n", file=sys.stderr)
        return ERROR


async def _run_connected(
    request: RunRequest,
    bundles: Sequence[Bundle],
    target: ServerTarget,
    settings: RemoteRunSettings,
    screen: Screen,
    clock: Clock,
    leftovers: list[str],
) -> int:
    kinds = {bundle.job.kind.scheme: bundle.job.kind.resource for bundle in bundles}
    async with HttpTransport(target.connection, warn=print_warning) as transport:
        client = Client(
            transport,
            scheme=CORE_SCHEME.with_resources(*kinds.values()),
            options=WriteOptions(FIELD_MANAGER),
            clock=clock,
            timeout=request.server.request_timeout,
        )
        remote = RemoteJobs(client, settings, clock, screen, leftovers)
        with delete_on_interrupt(remote, screen):
            named = [bundle._replace(job=await remote.with_free_name(bundle.job)) for bundle in bundles]
            folders = prepare_run_folders(request, [bundle.job for bundle in named])
            with screen:
                results = await remote.run(named, folders)
            return _print_results(request, results, folders, screen, settings)


def _print_results(
    request: RunRequest,
    results: Sequence[JobResult | None],
    folders: Mapping[str, RunFolder],
    screen: Screen,
    settings: RemoteRunSettings,
) -> int:
    finished = [result for result in results if result is not None]
    if not finished:
        return CANCELLED
    hints = [line for result in finished for line in _next_lines(result, settings)]
    code = print_results(request, finished, folders, screen, *hints)
    return code if code == FAILED or len(finished) == len(results) else CANCELLED


def _next_lines(result: JobResult, settings: RemoteRunSettings) -> list[StyledLine]:
    """Commands for a job that is still in the cluster."""
    name = f"{result.body.get('kind', '').lower()}/{result.outcome.job.metadata.name} {settings.server_flags}"
    verb = "logs" if result.outcome.succeeded else "why"
    return next_lines([f"{own_command()} {verb} {name}", f"{own_command()} delete {name}"])


def server_flags(server: ServerOptions) -> str:
    """The flags with which another command reaches the same server."""
    flags = {"--kubeconfig": server.kubeconfig, "--context": server.context, "-n": server.namespace}
    return " ".join(f"{flag} {shlex.quote(value)}" for flag, value in flags.items() if value)


def delete_on_interrupt(remote: RemoteJobs, screen: Screen) -> AbstractContextManager[None]:
    """The first interrupt cancels the block and says what happens to the jobs; the next one does not wait for that."""
    return cancel_on_interrupt(
        lambda: screen.say((Span(f"{remote.interrupt_message()} (Ctrl-C again leaves at once)", "yellow"),))
    )
