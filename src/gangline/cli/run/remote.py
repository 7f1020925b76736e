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
from gangline.api.scheme import CORE
from gangline.base.clock import Clock, SystemClock
from gangline.base.errors import GanglineError, InputError
from gangline.base.tasks import unwrapped
from gangline.cli.cleanup import interrupting
from gangline.cli.connect.server import MANAGER, Place, ServerOptions, find
from gangline.cli.errors import blamed, warn
from gangline.cli.exit_codes import CANCELLED, ERROR, FAILED, UNFINISHED
from gangline.cli.follow.screen import Screen, choose
from gangline.cli.follow.view import Line, Span
from gangline.cli.manifests.server_errors import mistaken
from gangline.cli.run.bundle import Cargo, cargo_of
from gangline.cli.run.command import Asked
from gangline.cli.run.dependencies import refuse
from gangline.cli.run.keeping import Keeping
from gangline.cli.run.remote_jobs import RemoteJobs, Terms
from gangline.cli.run.request import Job
from gangline.cli.run.result import Result, prepared, quiet, stream, told
from gangline.kube.client import Client
from gangline.kube.options import WriteOptions
from gangline.kube.transport.http import HttpTransport


def execute(asked: Asked, jobs: Sequence[Job]) -> int:
    """Run them there, and give the exit code. Raises `InputError` before anything is sent, `KeyboardInterrupt` at the end."""
    quiet()
    place = find(asked.server)
    if place.left is not None:
        raise InputError(
            f"--context {asked.server.context}: no server is running there; start one: gangline up --detach"
        )
    found = place.connection
    print(f"server: context {found.context} ({found.server}), namespace {place.home}", file=sys.stderr)
    refuse(jobs, where(asked.server))
    jobs = [placed(job, place) for job in jobs]
    with tempfile.TemporaryDirectory(prefix="gangline-") as scratch:
        cargo = [_loaded(asked, job, Path(scratch) / str(number)) for number, job in enumerate(jobs)]
        return _executed(asked, cargo, place)


def placed(job: Job, place: Place) -> Job:
    """The job in the namespace that it or the command line names. Raises `InputError` where these are two."""
    metadata = job.body["metadata"]
    written = metadata.get("namespace") or ""
    if written and place.asked and written != place.asked:
        raise InputError(
            f'{job.shown}: its namespace is "{written}", but --namespace is "{place.asked}"; leave one of them out'
        )
    return job._replace(body={**job.body, "metadata": {**metadata, "namespace": written or place.home}})


def _loaded(asked: Asked, job: Job, scratch: Path) -> Cargo:
    """The job, and the folder that goes with it. Says what goes and what does not."""
    scratch.mkdir()
    try:
        limit = Quantity.parse(asked.ship_limit).value()
    except InputError as error:
        raise InputError(f"--ship-limit {asked.ship_limit}: is no size; write 500Mi or 2Gi") from error
    cargo = cargo_of(job, scratch, limit, ship=asked.ship)
    for line in cargo.notes:
        click.echo(line, err=True)
    return cargo


def _executed(asked: Asked, cargo: Sequence[Cargo], place: Place) -> int:
    clock = SystemClock()
    screen = choose(stream(asked), clock)
    terms = Terms(where(asked.server), asked.timeout, asked.runs is not None, asked.storage_class)
    # What is left is known only to who made it, also when that was interrupted.
    left: list[str] = []
    try:
        with unwrapped():
            return asyncio.run(_connected(asked, cargo, place, terms, screen, clock, left))
    except TimeoutError:
        click.echo(f"not finished after {asked.timeout:g} s; {'; '.join(left)}", err=True)
        return UNFINISHED
    except asyncio.CancelledError:
        screen.say((Span(f"interrupted; {'; '.join(left)}"),))
        raise KeyboardInterrupt from None
    except GanglineError as refusal:
        error = mistaken([each.job.document for each in cargo if each.job.document is not None], refusal)
        print(blamed(error, place.connection), *left, sep="\n", file=sys.stderr)
        return ERROR


async def _connected(
    asked: Asked,
    cargo: Sequence[Cargo],
    place: Place,
    terms: Terms,
    screen: Screen,
    clock: Clock,
    left: list[str],
) -> int:
    scheme = CORE.extended(*{each.job.facts.kind: each.job.facts.resource for each in cargo}.values())
    async with HttpTransport(place.connection, warn=warn) as transport:
        client = Client(
            transport,
            scheme=scheme,
            options=WriteOptions(MANAGER),
            clock=clock,
            timeout=asked.server.request_timeout,
        )
        remote = RemoteJobs(client, terms, clock, screen, left)
        with interruptible(remote, screen):
            named = [each._replace(job=await remote.named(each.job)) for each in cargo]
            keeping = prepared(asked, [each.job for each in named])
            with screen:
                results = await remote.run(named, keeping)
            return _verdict(asked, results, keeping, screen, terms)


def _verdict(
    asked: Asked,
    results: Sequence[Result | None],
    keeping: Mapping[str, Keeping],
    screen: Screen,
    terms: Terms,
) -> int:
    ended = [result for result in results if result is not None]
    if not ended:
        return CANCELLED
    code = told(asked, ended, keeping, screen, *(_afterwards(result, terms) for result in ended))
    return code if code == FAILED or len(ended) == len(results) else CANCELLED


def _afterwards(result: Result, terms: Terms) -> Line:
    """The job is still there: what can be done with it."""
    name = f"{result.body.get('kind', '').lower()}/{result.outcome.job.metadata.name} {terms.where}"
    look = f"gangline logs {name}" if result.outcome.succeeded else f"gangline why {name}"
    return Span("next: ", "bold"), Span(f"{look} · gangline delete {name}")


def where(server: ServerOptions) -> str:
    """The options that lead another command to the same server."""
    given = {"--kubeconfig": server.kubeconfig, "--context": server.context, "-n": server.namespace}
    return " ".join(f"{option} {shlex.quote(value)}" for option, value in given.items() if value)


def interruptible(remote: RemoteJobs, screen: Screen) -> AbstractContextManager[None]:
    """Ctrl-C asks the block to end, and says what becomes of the jobs; once more does not wait for that."""
    return interrupting.interruptible(
        lambda: screen.say((Span(f"{remote.farewell()} (Ctrl-C again leaves at once)", "yellow"),))
    )
