"""`gangline drill`: injects a fault into a job, and tells whether the training survives it."""

import asyncio
import re
import uuid
from collections.abc import Callable
from datetime import timedelta

import click

from gangline.api.drill import FaultKind, FaultRequest
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.base.options import F
from gangline.cli.cleanup.processes import cancel_on_interrupt
from gangline.cli.connect.run_work import run_async
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.drill.run import ClusterOptions, DrillRunner, server_for_job
from gangline.cli.errors import single_error
from gangline.cli.exit_codes import NOT_FOUND
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.durations import DURATION, duration_option
from gangline.cli.flags.server_options import server_options
from gangline.cli.resources.lookup import find_job
from gangline.kube.client import Client

CHOOSE_ONE_FAULT = (
    "choose one fault: --kill worker-1, --oom, --port, --disk, --evict, --hang, --node-lost, "
    "--bad-node, --slow 200ms or --slow-network 1mbit"
)
FAULT_DURATION = timedelta(seconds=10)
DURATIONS = {FaultKind.PORT: timedelta(seconds=30), FaultKind.HANG: timedelta(seconds=90)}
"""Longer ones: a restarted program must need the port, and the watch over jobs must notice a hang."""
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?)bit(?:/s|ps)?", re.IGNORECASE)
_RATE_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


def parse_rate(text: str) -> int:
    """The bits a second of a rate, such as `1mbit` or `500kbit`. Raises `InputError`."""
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise InputError(f"--slow-network {text}: expected a rate such as 1mbit or 500kbit")
    return round(float(match[1]) * _RATE_FACTORS[match[2].lower()])


def _fault_option(name: str, text: str) -> Callable[[F], F]:
    return click.option(name, metavar="[REPLICA]", is_flag=False, flag_value="", help=text)


@cli_command()
@click.argument("job", required=False, metavar="[JOB]", shell_complete=completed_by("jobs"))
@_fault_option("--kill", "Kill the processes of a replica (SIGKILL); without a name, of the last worker.")
@_fault_option("--oom", "Have the node kill a replica as out of memory (OOMKilled).")
@_fault_option("--port", "Kill a replica, and take its port before it starts again.")
@_fault_option(
    "--disk", "Fill the emptyDir volume of a replica; without one with a sizeLimit, evict it as for a full disk."
)
@_fault_option("--node-lost", "Lose the node of a replica for a while; without a name, all replicas of one node.")
@_fault_option("--bad-node", "Have the node of a replica fail it, and every pod that starts there, for a while.")
@_fault_option("--evict", "Evict a replica.")
@_fault_option("--hang", "Stop the processes of a replica for a while (SIGSTOP, SIGCONT).")
@click.option(
    "--slow",
    type=DURATION,
    metavar="PAUSE",
    help="Stop the processes of a replica for PAUSE, such as 200ms, again and again.",
)
@click.option(
    "--slow-network",
    metavar="RATE",
    help="Limit what a replica sends to RATE, such as 1mbit; in a run with --network isolated.",
)
@click.option(
    "--replica",
    "chosen",
    metavar="REPLICA",
    help="The replica for --slow and --slow-network.  [default: the last worker]",
)
@click.option(
    "--for",
    "lasts",
    type=DURATION,
    metavar="DURATION",
    help="How long a fault lasts that does.  [default: 30s for --port, 90s for --hang, else 10s]",
)
@duration_option("--hold", "5s", "How long all replicas must run again before the job counts as recovered.")
@duration_option("--timeout", "2m", "Stop watching after this time (exit code 101).")
@click.option("--yes", "confirmed", is_flag=True, help="In a cluster: do it. Without it, the plan is only shown.")
@click.option(
    "--debug-image",
    default="",
    metavar="IMAGE",
    help="In a cluster: the image, with sh, of the pod that sends signals.  [default: the replica's own]",
)
@click.option("-o", "--output", type=click.Choice(["json"]), help="json: print the outcome for programs.")
@server_options
def drill(
    job: str | None,
    kill: str | None,
    oom: str | None,
    port: str | None,
    disk: str | None,
    node_lost: str | None,
    bad_node: str | None,
    evict: str | None,
    hang: str | None,
    slow: timedelta | None,
    slow_network: str | None,
    chosen: str | None,
    lasts: timedelta | None,
    hold: timedelta,
    timeout: timedelta,
    confirmed: bool,
    debug_image: str,
    output: str | None,
    server: ServerOptions,
) -> int:
    r"""Break a running job on purpose, and report whether the training recovers.

    \b
      gangline drill                                  start the demo job and kill one of its workers
      gangline drill linear --kill worker-1           kill a replica of the job "linear"
      gangline drill linear --oom                     its last worker runs out of memory
      gangline drill linear --node-lost --for 20s     its node is lost for 20 seconds
      gangline drill linear --slow 200ms --replica worker-2
      gangline drill linear --hang worker-1 --for 90s
      gangline drill linear --kill --context prod     what it would do there
      gangline drill linear --kill --context prod --yes

    The job runs on this machine, in a `gangline run` in another terminal or on the plane of `gangline up`, or in a
    cluster. Without JOB, the demo job is started and stopped again. The faults are real: processes die, ports are taken,
    volumes fill up. In a cluster nothing is done without --yes, and only pods of this job are touched.

    A job has survived when all of its replicas have been running again for --hold, or when it has succeeded.

    Exit codes: 0 survived; 100 the job failed; 101 undecided after --timeout; 102 no such job; 103 the job was
    deleted; 1 an error, and nothing was done.
    """
    named_faults = {
        FaultKind.KILL: kill,
        FaultKind.OOM: oom,
        FaultKind.PORT: port,
        FaultKind.DISK: disk,
        FaultKind.NODE_LOST: node_lost,
        FaultKind.BAD_NODE: bad_node,
        FaultKind.EVICT: evict,
        FaultKind.HANG: hang,
    }
    faults = [(fault, replica) for fault, replica in named_faults.items() if replica is not None]
    faults += [(FaultKind.SLOW, "")] if slow is not None else []
    faults += [(FaultKind.SLOW_NETWORK, "")] if slow_network is not None else []
    if job is None and not faults:
        faults = [(FaultKind.KILL, "")]
    if len(faults) != 1:
        raise InputError(CHOOSE_ONE_FAULT)
    fault, replica = faults[0]
    duration = lasts or DURATIONS.get(fault, FAULT_DURATION)
    request = FaultRequest(
        id=uuid.uuid4().hex,
        fault=fault,
        seconds=duration.total_seconds(),
        pause=slow.total_seconds() if slow is not None else 0.0,
        bits_per_second=parse_rate(slow_network) if slow_network is not None else 0,
    )
    if fault is FaultKind.SLOW and request.pause <= 0:
        raise InputError("--slow: write how long it is to stand still each time, such as 200ms")

    if job is None:
        return _drill_demo(request, replica or chosen or "", hold, timeout, as_json=output == "json")

    async def work(client: Client, target: ServerTarget) -> int:
        if target.archive is not None:
            raise InputError(
                f"no job is running on this machine; start {job} with gangline run in another terminal, "
                "or drill the demo job: gangline drill"
            )
        options = ClusterOptions(confirmed, debug_image)
        runner = DrillRunner(client, SystemClock(), hold, timeout, as_json=output == "json", cluster=options)
        server_job = await find_job(client, target.object_namespace, job)
        return await runner.run(server_job, request, replica or chosen or "")

    return run_async(server_for_job(server, job), work, missing=NOT_FOUND)


def _drill_demo(request: FaultRequest, replica: str, hold: timedelta, timeout: timedelta, *, as_json: bool) -> int:
    """Start the demo job on this machine, drill it, and stop it."""
    from gangline.cli.drill.demo_job import check_demo_replica, read_demo_job, running_demo_job

    demo_job = read_demo_job()
    check_demo_replica(demo_job, replica)
    clock = SystemClock()

    async def work() -> int:
        click.echo(f"no job is named; starting the demo job, {demo_job.display_name}", err=True)
        with cancel_on_interrupt(lambda: None):
            async with running_demo_job(demo_job, clock) as (client, job):
                runner = DrillRunner(client, clock, hold, timeout, as_json=as_json, explainable=False)
                return await runner.run(job, request, replica)

    try:
        with single_error():
            return asyncio.run(work())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
