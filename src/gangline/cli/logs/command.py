"""`gangline logs`: the log lines of all replicas of a job, merged in order of time."""

from datetime import datetime
from typing import Any

import click

from gangline.base.clock import time_with_zone
from gangline.base.errors import InputError
from gangline.cli.connect.run_work import run_async, run_blocking
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.exit_codes import NOT_FOUND
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.durations import DURATION
from gangline.cli.flags.server_options import server_options
from gangline.cli.logs.print import LogOptions, print_logs
from gangline.cli.resources.exit_code import job_exit_code
from gangline.cli.resources.lookup import find_job
from gangline.kube.client import Client
from gangline.summary.replicas import replica_selector


@cli_command()
@click.argument("job", shell_complete=completed_by("jobs"))
@click.option(
    "-f",
    "--follow",
    is_flag=True,
    help="Keep printing until the job has ended; replicas that start later are included.",
)
@click.option(
    "--replica",
    "chosen",
    multiple=True,
    metavar="TYPE[/INDEX]",
    help="Only this replica (worker/0), or all of a type (worker); may be repeated.",
)
@click.option(
    "-c", "--container", default="", metavar="NAME", help="Container to read.  [default: the one that trains]"
)
@click.option("--tail", type=int, metavar="LINES", help="Print only the last LINES lines of each replica.")
@click.option(
    "--since",
    type=DURATION,
    metavar="DURATION",
    help="Print only lines that are newer than this, such as 10s, 5m or 2h.",
)
@click.option("--since-time", metavar="TIME", help="Print only lines after this time, such as 2026-01-02T15:04:05Z.")
@click.option("--timestamps", is_flag=True, help="Print the time before each line.")
@click.option("-p", "--previous", is_flag=True, help="Print the logs from before the last restart of each container.")
@click.option(
    "--prefix/--no-prefix", default=True, help="Print the name of the replica before each line.  [default: prefix]"
)
@click.option("--raw", is_flag=True, help="Print progress lines as the program wrote them, in JSON.")
@click.option(
    "--exit-code", is_flag=True, help="Exit with the verdict of the job: 0 succeeded, 100 failed, 101 not finished."
)
@server_options
def logs(job: str, server: ServerOptions, chosen: tuple[str, ...], since_time: str | None, **flags: Any) -> int:
    r"""Print the logs of all replicas of a job, merged in order of time.

    \b
      gangline logs linear                          all replicas
      gangline logs -f linear                       and keep printing until the job has ended
      gangline logs linear --replica worker/0       one replica
      gangline logs linear --replica worker --tail 20 --timestamps
      gangline logs linear --previous               from before the last restart
      gangline logs -f --exit-code linear && ./publish.sh

    Each line starts with the name of its replica, such as `worker-1|`. Lines in which a program reports its progress
    are printed as text; --raw keeps the JSON. JOB is a name, or KIND/NAME if jobs of several kinds have that name.

    Exit codes: 0 printed; 102 no such job; 1 an error. With --exit-code: 0 succeeded, 100 failed, 101 not finished, 103
    deleted.
    """
    options = LogOptions(
        replicas=tuple(map(replica_selector, chosen)), since_time=_parse_since_time(since_time), **flags
    )
    if options.follow and options.previous:
        raise InputError("--follow and --previous: the previous log is complete; leave one of them out")
    if options.follow:
        from gangline.cli.logs.follow import follow_logs

        async def follow(client: Client, target: ServerTarget) -> int:
            return await follow_logs(client, target.object_namespace, job, options)

        async def exit_code(client: Client, target: ServerTarget) -> int:
            if not options.exit_code:
                return 0
            return job_exit_code((await find_job(client, target.object_namespace, job)).body)

        return run_async(server, follow, missing=NOT_FOUND, afterwards=exit_code)

    async def work(client: Client, target: ServerTarget) -> int:
        return await print_logs(client, await find_job(client, target.object_namespace, job), options)

    return run_blocking(server, work, missing=NOT_FOUND)


def _parse_since_time(text: str | None) -> datetime | None:
    if not text:
        return None
    time = time_with_zone(text)
    if time is None:
        raise InputError(f'--since-time: "{text}" is no time; write 2026-01-02T15:04:05Z')
    return time
