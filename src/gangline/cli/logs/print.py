"""Prints the logs of a job's replicas, merged in order of time."""

import sys
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import NamedTuple

import click

from gangline.api.meta import JSON, Key
from gangline.cli.follow.view import plain_progress
from gangline.cli.output.tables import paint, use_colour
from gangline.cli.resources.exit_code import job_exit_code
from gangline.kube.client import Client
from gangline.kube.errors import BadRequest, NotFound
from gangline.progress.line import parse_progress
from gangline.summary.log_lines import TimedLine, merge_lines, normalized_time, parse_line
from gangline.summary.objects import ServerJob
from gangline.summary.replicas import ReplicaSelector, container_name, list_replicas, replica_name

REPLICA_COLOURS = ("36", "32", "33", "35", "34", "31", "96", "92", "93", "95")


class LogOptions(NamedTuple):
    """Which lines to print, and in which form."""

    replicas: tuple[ReplicaSelector, ...] = ()
    container: str = ""
    follow: bool = False
    tail: int | None = None
    since: timedelta | None = None
    since_time: datetime | None = None
    timestamps: bool = False
    previous: bool = False
    prefix: bool = True
    # Whether progress lines stay as the program wrote them.
    raw: bool = False
    exit_code: bool = False

    @property
    def start(self) -> timedelta | datetime | None:
        return self.since or self.since_time


async def print_logs(client: Client, job: ServerJob, options: LogOptions) -> int:
    """Print the logs that exist now, or else the log of the first failure; returns the exit code."""
    pods = await list_replicas(client, job, options.replicas)
    logs = [await _pod_log(client, pod, replica_name(job, pod), options) for pod in pods]
    write = LogPrinter(options)
    for line in merge_lines(lines for lines in logs if lines is not None):
        write(line)
    if not pods:
        click.echo(
            f"{job.display_name} has no pods"
            + ("" if not _failure_log(job) else "; this was left of the first failure:"),
            err=True,
        )
        for line in _failure_log(job):
            write(line)
    elif all(lines is None for lines in logs):
        what = "was started again in its pod" if options.previous else "has started"
        click.echo(f"no replica of {job.display_name} {what}", err=True)
    return job_exit_code(job.body) if options.exit_code else 0


def _failure_log(job: ServerJob) -> list[TimedLine]:
    """The last lines of the first failed replica from the job's status, for when its pods are deleted."""
    failure = (job.body.get("status") or {}).get("firstFailure") or {}
    time = normalized_time(str(failure.get("time") or ""))
    return [TimedLine(time, str(failure.get("replica", "")), str(text)) for text in failure.get("log") or ()]


async def _pod_log(client: Client, pod: JSON, replica: str, options: LogOptions) -> list[TimedLine] | None:
    """The lines of one replica; None if its container has not started, or the pod is deleted."""
    from gangline.kube.pods import PodSubresources

    metadata = pod["metadata"]
    raw_lines = PodSubresources(client).logs(
        Key(metadata["namespace"], metadata["name"]),
        container=container_name(pod, options.container),
        previous=options.previous,
        tail=options.tail,
        since=options.start,
        timestamps=True,
    )
    try:
        async with aclosing(raw_lines):
            return [parse_line(replica, raw) async for raw in raw_lines]
    except (BadRequest, NotFound) as error:
        if options.container and "not valid for pod" in str(error):
            raise
        return None


def with_readable_progress(line: TimedLine) -> TimedLine:
    """The line; a progress line as `gangline run` prints it: `step 240/400  60 %  loss 0.113`."""
    progress = parse_progress(line.text) if line.text.lstrip().startswith("{") else None
    return line if progress is None else line._replace(text=plain_progress(progress))


class LogPrinter:
    """Prints log lines; on a terminal with a colour for each replica."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._use_colour = use_colour(sys.stdout)
        self._replica_colours: dict[str, str] = {}

    def __call__(self, line: TimedLine) -> None:
        options = self._options
        if not options.raw:
            line = with_readable_progress(line)
        if not self._use_colour or not options.prefix:
            text = line.as_text(prefix=options.prefix, timestamps=options.timestamps)
        else:
            code = self._replica_colours.setdefault(
                line.replica, REPLICA_COLOURS[len(self._replica_colours) % len(REPLICA_COLOURS)]
            )
            text = paint(f"{line.replica}| ", code) + line.as_text(prefix=False, timestamps=options.timestamps)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
