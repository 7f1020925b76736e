"""`gangline logs`: what all replicas of a job say, merged in order of time."""

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import click

from gangline.api.meta import JSON, Key
from gangline.base.errors import InputError
from gangline.cli.connect.run_work import run_async, run_blocking
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.exit_codes import NOT_FOUND, job_exit_code
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.durations import DURATION
from gangline.cli.flags.server_options import server_options
from gangline.cli.output.log_lines import TimedLine, merge_lines, normalized_time, parse_line
from gangline.cli.output.tables import paint, use_colour
from gangline.cli.resources.lookup import ServerJob, find_job
from gangline.cli.resources.replicas import (
    ReplicaSelector,
    container_name,
    list_replicas,
    replica_name,
    replica_selector,
)
from gangline.kube.client import Client
from gangline.kube.errors import BadRequest, NotFound

_PALETTE = ("36", "32", "33", "35", "34", "31", "96", "92", "93", "95")


class LogsFlags(NamedTuple):
    """Which lines, and how they look."""

    replicas: tuple[ReplicaSelector, ...] = ()
    container: str = ""
    follow: bool = False
    tail: int | None = None
    since: timedelta | None = None
    since_time: datetime | None = None
    timestamps: bool = False
    previous: bool = False
    prefix: bool = True
    exit_code: bool = False

    @property
    def start(self) -> timedelta | datetime | None:
        return self.since or self.since_time


@cli_command()
@click.argument("job", shell_complete=completed_by("jobs"))
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended; replicas yet to come too.")
@click.option("--replica", "chosen", multiple=True, metavar="TYPE[/INDEX]", help="Only worker/0, or all of worker.")
@click.option("-c", "--container", default="", metavar="NAME", help="Container; by default the one that trains.")
@click.option("--tail", type=int, metavar="LINES", help="Only so many last lines of each replica.")
@click.option("--since", type=DURATION, metavar="DURATION", help="Only what is newer: 10s, 5m, 2h.")
@click.option("--since-time", metavar="TIME", help="Only what is newer than 2026-01-02T15:04:05Z.")
@click.option("--timestamps", is_flag=True, help="The time before each line.")
@click.option("-p", "--previous", is_flag=True, help="Of the run before, where a container was started again.")
@click.option("--prefix/--no-prefix", default=True, help="Whether the replica's name stands before each line.")
@click.option("--exit-code", is_flag=True, help="Exit with the verdict: 0 succeeded, 100 failed, 101 not finished.")
@server_options
def logs(job: str, server: ServerOptions, chosen: tuple[str, ...], since_time: str | None, **given: Any) -> int:
    r"""Print what all replicas of a job said, in order of time, with `worker-1|` before each line.

    JOB is a name, or KIND/NAME where several kinds have a job of that name.

    \b
      gangline logs linear                          everything, merged
      gangline logs -f linear                       and on, until the job has ended
      gangline logs linear --replica worker/0       one replica
      gangline logs linear --replica worker --tail 20 --timestamps
      gangline logs linear --previous               what was said before the restart
      gangline logs -f --exit-code linear && ./publish

    Exit codes: 0; 102 no such job; with --exit-code 0 succeeded, 100 failed, 101 not finished, 103 deleted.
    """
    options = LogsFlags(
        replicas=tuple(map(replica_selector, chosen)), since_time=_parse_since_time(since_time), **given
    )
    if options.follow and options.previous:
        raise InputError("--follow and --previous: what was said before does not go on; leave one of them out")
    if options.follow:
        from gangline.cli.logs.follow import follow_logs

        async def live(client: Client, place: ServerTarget) -> int:
            return await follow_logs(client, place.object_namespace, job, options)

        async def judge(client: Client, place: ServerTarget) -> int:
            return job_exit_code((await find_job(client, place.object_namespace, job)).body) if options.exit_code else 0

        return run_async(server, live, missing=NOT_FOUND, afterwards=judge)

    async def once(client: Client, place: ServerTarget) -> int:
        return await _print_logs(client, await find_job(client, place.object_namespace, job), options)

    return run_blocking(server, once, missing=NOT_FOUND)


def _parse_since_time(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise InputError(f'--since-time: "{text}" is no time; write 2026-01-02T15:04:05Z')
    return found


async def _print_logs(client: Client, job: ServerJob, options: LogsFlags) -> int:
    pods = await list_replicas(client, job, options.replicas)
    said = [await _pod_log(client, pod, replica_name(job, pod), options) for pod in pods]
    write = LogPrinter(options)
    for line in merge_lines(lines for lines in said if lines is not None):
        write(line)
    if not pods:
        click.echo(
            f"{job.display_name} has no pods"
            + ("" if not _failure_log(job) else "; this was left of the first failure:"),
            err=True,
        )
        for line in _failure_log(job):
            write(line)
    elif all(lines is None for lines in said):
        what = "was started again in its pod" if options.previous else "has started"
        click.echo(f"no replica of {job.display_name} {what}", err=True)
    return job_exit_code(job.body) if options.exit_code else 0


def _failure_log(job: ServerJob) -> list[TimedLine]:
    """What the job itself remembers of the replica that failed first, once its pods are gone."""
    failure = (job.body.get("status") or {}).get("firstFailure") or {}
    moment = normalized_time(str(failure.get("time") or ""))
    return [TimedLine(moment, str(failure.get("replica", "")), str(text)) for text in failure.get("log") or ()]


async def _pod_log(client: Client, pod: JSON, name: str, options: LogsFlags) -> list[TimedLine] | None:
    """What a replica said; None if it has not started, or is gone."""
    try:
        return [line async for line in read_pod_lines(client, pod, name, options)]
    except (BadRequest, NotFound) as error:
        if options.container and "not valid for pod" in str(error):
            raise
        return None


async def read_pod_lines(
    client: Client,
    pod: JSON,
    name: str,
    options: LogsFlags,
    *,
    start: timedelta | datetime | None = None,
    tail: int | None = None,
) -> AsyncGenerator[TimedLine, None]:
    """The lines of one replica, from the server. Raises `BadRequest` where it has not started."""
    from gangline.kube.pods import PodSubresources

    metadata = pod["metadata"]
    found = PodSubresources(client).logs(
        Key(metadata["namespace"], metadata["name"]),
        container=container_name(pod, options.container),
        follow=options.follow,
        previous=options.previous,
        tail=options.tail if tail is None else tail,
        since=options.start if start is None else start,
        timestamps=True,
    )
    async with aclosing(found) as lines:
        async for raw in lines:
            yield parse_line(name, raw)


class LogPrinter:
    """Prints lines; on a terminal each replica has its colour."""

    def __init__(self, options: LogsFlags) -> None:
        self._options = options
        self._use_colour = use_colour(sys.stdout)
        self._replica_colours: dict[str, str] = {}

    def __call__(self, line: TimedLine) -> None:
        options = self._options
        if not self._use_colour or not options.prefix:
            text = line.as_text(prefix=options.prefix, timestamps=options.timestamps)
        else:
            code = self._replica_colours.setdefault(line.replica, _PALETTE[len(self._replica_colours) % len(_PALETTE)])
            text = paint(f"{line.replica}| ", code) + line.as_text(prefix=False, timestamps=options.timestamps)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
