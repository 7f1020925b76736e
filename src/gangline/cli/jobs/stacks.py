"""`gangline stacks`: where every rank of a job stands, grouped."""

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence

import click
import msgspec

from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.cli.connect.run_work import run_async
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.exit_codes import ERROR, NOT_FOUND, SUCCEEDED
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.server_options import server_options
from gangline.cli.output.tables import stdout_uses_colour, write_stdout
from gangline.cli.output.text import Span, StyledLine, ansi_text
from gangline.cli.resources.lookup import find_job
from gangline.kube.client import Client
from gangline.stacks.model import RankStack
from gangline.stacks.report import StacksReport, stacks_report, with_ranks
from gangline.summary.job_state import replica_specs
from gangline.summary.log_lines import printable_text
from gangline.summary.objects import ServerJob
from gangline.summary.replicas import list_replicas, replica_name, replica_selector

PIPE_WIDTH = 120
"""The columns of lines that no terminal limits."""


@cli_command()
@click.argument("job", shell_complete=completed_by("jobs"))
@click.option(
    "--replica",
    "chosen",
    multiple=True,
    metavar="TYPE[/INDEX]",
    help="Only these replicas; may be repeated.  [default: all]",
)
@click.option("--all", "everything", is_flag=True, help="Print every thread of every process, unfolded.")
@click.option("--native", is_flag=True, help="Show frames of C and C++ too; stops each process for a moment.")
@click.option(
    "--debug-image",
    default="",
    metavar="IMAGE",
    help="In a cluster, read the stacks from an ephemeral container with this image, which has py-spy and sh. "
    "It is added to each pod, and stays listed there.",
)
@click.option(
    "-o", "--output", "form", type=click.Choice(["text", "json"]), default="text", help="For people, or for programs."
)
@server_options
def stacks(
    job: str,
    chosen: tuple[str, ...],
    everything: bool,
    native: bool,
    debug_image: str,
    form: str,
    server: ServerOptions,
) -> int:
    r"""Show where every rank of a running job stands, and which one the others wait for.

    Ranks that stand at the same place are one group. The stacks are read from outside: the program needs no change,
    and goes on. They are read with py-spy (pip install 'gangline[stacks]'); of programs that are not Python, or
    without py-spy, the kernel says what they wait for.

    In a cluster a command is run in each pod: that needs the rights to get and create pods/exec, and py-spy in the
    image. With --debug-image an ephemeral container does it: that needs the right to patch pods/ephemeralcontainers.

    \b
      gangline stacks bert
      gangline stacks bert --all                  every thread, unfolded
      gangline stacks bert --replica worker/1 --native
      gangline stacks bert -o json

    Exit codes: 0 printed; 1 no replica runs, or none can be read; 102 no such job.
    """

    async def work(client: Client, target: ServerTarget) -> int:
        server_job = await find_job(client, target.object_namespace, job)
        bodies = await list_replicas(client, server_job, [replica_selector(one) for one in chosen])
        running = [body for body in bodies if (body.get("status") or {}).get("phase") == "Running"]
        if not running:
            states = ", ".join(f"{replica_name(server_job, one)} {one['status'].get('phase')}" for one in bodies)
            raise InputError(f"{server_job.display_name} has no running replica" + (f": {states}" if states else ""))
        samples = await sample_pods(client, target, running, native=native, debug_image=debug_image)
        ranks = with_ranks(samples, replica_ranks(server_job, [one.replica for one in samples]))
        report = stacks_report(
            server_job.resource.kind,
            server_job.key.namespace,
            server_job.key.name,
            ranks,
            tuple(notes(ranks)),
        )
        if form == "json":
            click.echo(msgspec.json.format(msgspec.json.encode(report).decode(), indent=2))
        else:
            write_stdout("".join(f"{line}\n" for line in report_lines(report, everything=everything)))
        return SUCCEEDED if any(one.processes for one in ranks) else ERROR

    return run_async(server, work, missing=NOT_FOUND)


async def sample_pods(
    client: Client, target: ServerTarget, bodies: Sequence[JSON], *, native: bool = False, debug_image: str = ""
) -> tuple[RankStack, ...]:
    """The stacks of pods: of this machine directly, of others by a command inside of them."""
    from gangline.api.codec.codec import Document, decode_document
    from gangline.api.core import Pod
    from gangline.base.clock import SystemClock
    from gangline.cli.resources.usage import node_state
    from gangline.local.stack_sampling import LocalStackSampler
    from gangline.stacks.cluster import ClusterStackSampler

    pods = [decode_document(Document(body, {}), Pod) for body in bodies]
    state = node_state(target)
    local = await LocalStackSampler(state, native=native).sample(pods) if state is not None else ()
    stacks = {one.pod: one for one in local}
    remote = [pod for pod in pods if pod.metadata.name not in stacks]
    sampler = ClusterStackSampler(client, SystemClock(), native=native, debug_image=debug_image)
    stacks |= {one.pod: one for one in await sampler.sample(remote)}
    return tuple(stacks[pod.metadata.name] for pod in pods)


def replica_ranks(job: ServerJob, replicas: Sequence[str]) -> dict[str, int | None]:
    """The first rank of each replica, by its name; none for frameworks without ranks."""
    # Imported here: the kinds load slowly.
    from gangline.frameworks.ranks import rank_of, ranks_per_replica

    spec: Mapping[str, object] = job.body.get("spec") or {}
    processes = ranks_per_replica(spec.get("elasticPolicy"), spec.get("nprocPerNode") or spec.get("slotsPerWorker"))
    numbers = {name: (part or {}).get("replicas") for name, part in replica_specs(job.body).items()}
    counts = {name: 1 if number is None else number for name, number in numbers.items()}
    if processes is None:
        return dict.fromkeys(replicas)
    return {one: rank_of(job.resource.kind, counts, one, processes=processes) for one in replicas}


def notes(stacks: Sequence[RankStack]) -> Iterator[str]:
    """What would show more, each in one line."""
    from gangline.stacks.processes import ptrace_scope
    from gangline.stacks.pyspy import (
        INSTALL_HINT,
        NOT_ALLOWED,
        NOT_INSTALLED,
        NOT_INSTALLED_THERE,
        permission_hint,
    )

    errors = {process.error for one in stacks for process in one.processes if process.error}
    if NOT_INSTALLED in errors:
        yield f"To see the frames of Python programs: {INSTALL_HINT}"
    if NOT_ALLOWED in errors:
        yield permission_hint(ptrace_scope(), sys.platform)
    if NOT_INSTALLED_THERE in errors:
        yield "To see the frames of Python programs: add py-spy to the image (pip install py-spy), or pass --debug-image"


def report_lines(report: StacksReport, *, everything: bool = False, width: int | None = None) -> Iterator[str]:
    """The report for people. Lines are cut to the terminal's width."""
    from gangline.cli.output.stack_groups import all_lines, group_lines

    columns = width or (shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPE_WIDTH)
    colour = stdout_uses_colour()

    def styled() -> Iterator[StyledLine]:
        yield from group_lines(report.replicas, columns)
        if everything:
            yield from all_lines(report.replicas, columns)

    for line in styled():
        # Commands and source lines are the user's: they may hold control characters.
        printable = tuple(Span(printable_text(span.text), span.style) for span in line)
        yield ansi_text(printable, colour=colour).rstrip()
    if report.notes:
        yield ""
        yield from report.notes
