"""`gangline drill`: injects a fault into a job, and tells whether the training survives it."""

import uuid
from collections.abc import Callable
from datetime import timedelta

import click

from gangline.api.drill import FaultKind, FaultRequest
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.base.options import F
from gangline.cli.connect.run_work import run_async
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.drill.run import DrillRunner, server_for_job
from gangline.cli.exit_codes import NOT_FOUND
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.durations import DURATION, duration_option
from gangline.cli.flags.server_options import server_options
from gangline.cli.resources.lookup import find_job
from gangline.kube.client import Client

CHOOSE_ONE_FAULT = "choose one fault: --kill worker-1, --oom, --port, --disk, --node-lost or --slow 200ms"
PORT_FAULT_DURATION = timedelta(seconds=30)
"""How long a port is taken: long enough for a restarted program to need it."""
FAULT_DURATION = timedelta(seconds=10)


def _fault_option(name: str, text: str) -> Callable[[F], F]:
    return click.option(name, metavar="[REPLICA]", is_flag=False, flag_value="", help=text)


@cli_command()
@click.argument("job", required=False, metavar="JOB", shell_complete=completed_by("jobs"))
@_fault_option("--kill", "Kill its processes (SIGKILL).")
@_fault_option("--oom", "Have its node kill it as out of memory (OOMKilled).")
@_fault_option("--port", "Kill it, and take its port before it starts again.")
@_fault_option("--disk", "Fill its emptyDir that has a sizeLimit; without one, evict it as for a full disk.")
@_fault_option("--node-lost", "Lose its node for a while; without a name, the replicas of one node.")
@click.option("--slow", type=DURATION, metavar="PAUSE", help="Stop its processes for PAUSE, again and again.")
@click.option("--replica", "chosen", metavar="REPLICA", help="The replica to slow down; by default the last worker.")
@click.option(
    "--for",
    "lasts",
    type=DURATION,
    metavar="DURATION",
    help="The duration of --port (30s by default), --node-lost and --slow (10s).",
)
@duration_option("--hold", "5s", "The job has survived once all replicas run for this time.")
@duration_option("--timeout", "2m", "Give up after this time (exit code 101).")
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print the outcome as JSON.")
@server_options
def drill(
    job: str | None,
    kill: str | None,
    oom: str | None,
    port: str | None,
    disk: str | None,
    node_lost: str | None,
    slow: timedelta | None,
    chosen: str | None,
    lasts: timedelta | None,
    hold: timedelta,
    timeout: timedelta,
    output: str | None,
    server: ServerOptions,
) -> int:
    r"""Inject a fault into a job on this machine, and tell whether the training survives it.

    The job may run on the plane of `gangline up`, or in a `gangline run` in another terminal. The faults are real:
    processes die, ports are taken, volumes fill up. Only gangline's own node injects faults, so a cluster is safe.

    \b
      gangline drill linear --kill worker-1
      gangline drill linear --oom                     the last worker
      gangline drill linear --node-lost --for 20s
      gangline drill linear --slow 200ms --replica worker-2

    Exit codes: 0 survived; 100 the job failed; 101 not clear within --timeout; 102 no such job; 103 the job was
    deleted; 1 an error, and nothing was done.
    """
    named_faults = {
        FaultKind.KILL: kill,
        FaultKind.OOM: oom,
        FaultKind.PORT: port,
        FaultKind.DISK: disk,
        FaultKind.NODE_LOST: node_lost,
    }
    faults = [(fault, replica) for fault, replica in named_faults.items() if replica is not None]
    faults += [(FaultKind.SLOW, "")] if slow is not None else []
    if len(faults) != 1:
        raise InputError(CHOOSE_ONE_FAULT)
    if job is None:
        # click took the name of the job for that of a replica.
        raise InputError("name the job before the fault: gangline drill JOB --kill worker-1")
    fault, replica = faults[0]
    duration = lasts or (PORT_FAULT_DURATION if fault is FaultKind.PORT else FAULT_DURATION)
    request = FaultRequest(
        id=uuid.uuid4().hex,
        fault=fault,
        seconds=duration.total_seconds(),
        pause=slow.total_seconds() if slow is not None else 0.0,
    )
    if fault is FaultKind.SLOW and request.pause <= 0:
        raise InputError("--slow: write how long it is to stand still each time, such as 200ms")

    async def work(client: Client, target: ServerTarget) -> int:
        if target.archive is not None:
            raise InputError("no plane runs on this machine; start the job with gangline run or gangline up")
        runner = DrillRunner(client, SystemClock(), hold, timeout, as_json=output == "json")
        server_job = await find_job(client, target.object_namespace, job)
        return await runner.run(server_job, request, replica or chosen or "")

    return run_async(server_for_job(server, job), work, missing=NOT_FOUND)
