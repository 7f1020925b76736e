"""`gangline plan`: shows the objects that a job in a file would create, without creating them."""

import click

from gangline.base.errors import InputError
from gangline.cli.connect.run_work import run_blocking
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.file_options import file_options
from gangline.cli.flags.server_options import server_options
from gangline.cli.manifests.files import read_files
from gangline.cli.manifests.ignored_fields import print_ignored_fields
from gangline.cli.output import tables
from gangline.cli.plan.objects import GangMode, PlanTarget, job_documents, planned_objects
from gangline.kube.client import Client

EXIT_SAME, EXIT_DIFFERENT, EXIT_ERROR = 0, 1, 2


@cli_command()
@file_options("FILE...")
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["tree", "yaml", "json", "name"]),
    default="tree",
    show_default=True,
    help="Form of the output; yaml and json have the complete objects.",
)
@click.option("--diff", is_flag=True, help="Compare with what is on the server now.")
@click.option(
    "--fit",
    is_flag=True,
    help="Print whether the jobs fit on the nodes now, and what is missing if not; without a server, on this machine.",
)
@click.option(
    "--gang",
    is_flag=True,
    help="Treat every job as a gang, whose pods start together or not at all.  [default: jobs with a schedulingPolicy]",
)
@server_options
def plan(
    files: tuple[str, ...],
    more: tuple[str, ...],
    recursive: bool,
    form: str,
    diff: bool,
    fit: bool,
    gang: bool,
    server: ServerOptions,
) -> int:
    r"""Preview what the jobs in files would create, without creating anything.

    \b
      gangline plan job.yaml                   the pods, services and other objects of the job
      gangline plan job.yaml -o yaml | less    these objects in full
      gangline plan job.yaml --diff            what would change on the server
      gangline plan job.yaml --fit             whether there is room for it now

    No server is needed, except for --diff. With --fit a FILE may also be the name of a job on the server. A gang also
    has a PodGroup; with --diff only if --gang is given or the server is a plane of this machine, because the operator
    of a cluster may use another scheduler.

    Exit codes: 0 printed; 1 an error. With --diff: 0 everything is as planned, 1 something differs, 2 an error. With --fit: 0
    the jobs fit, 100 they do not.
    """
    if fit and diff:
        raise InputError("--fit and --diff cannot be combined; leave one of them out")
    if fit:
        # Imported here: the scheduler's engine takes a while to load.
        from gangline.cli.plan.fit import print_fit

        return print_fit(files + more, server, recursive=recursive, form=form)
    names = files + more
    try:
        if not names:
            raise InputError("name a file, a folder, or - for standard input")
        jobs = job_documents(read_files(names, recursive=recursive), ", ".join(names))
        target = PlanTarget(server.namespace or "", gangs=GangMode.ALL if gang else GangMode.REQUESTED)
        plans = [planned_objects(job, target) for job in jobs]
        print_ignored_fields([document for document, _ in jobs])
    except InputError as error:
        click.echo(f"error: {error}", err=True)
        return EXIT_ERROR if diff else 1
    if not diff:
        from gangline.cli.plan.show import print_plan

        print_plan(plans, form)
        return 0
    from gangline.cli.plan.diff import diff_job

    async def work(client: Client, server_target: ServerTarget) -> int:
        lines = [line for job in jobs for line in await diff_job(client, job, server_target, gang=gang)]
        tables.write_stdout("".join(f"{line}\n" for line in lines))
        return EXIT_DIFFERENT if any(not line.startswith("  ") for line in lines) else EXIT_SAME

    return run_blocking(server, work, missing=EXIT_ERROR, failed=EXIT_ERROR)
