"""`gangline record`: one job with its history and its faults in one file, to be played on another machine."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import click

from gangline import __version__
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.base.files import write_private
from gangline.base.invocation import own_command_line
from gangline.cli.connect.run_work import run_async
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.exit_codes import NOT_FOUND
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.durations import duration_option
from gangline.cli.flags.server_options import server_options
from gangline.cli.jobs.why import with_cpu_usage, with_stacks
from gangline.kube.client import Client
from gangline.replay.bundle import CodeFile, JobBundle
from gangline.why.diagnosis.case import JobSnapshot

CODE_LIMIT = 64 * 2**20
"""The largest folder that is packed."""


@cli_command()
@click.argument("job", metavar="[KIND/]NAME", shell_complete=completed_by("jobs"))
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The file to write.  [default: NAME.bundle]",
)
@click.option(
    "--code",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    help="Pack this folder as the code of the job.  [default: what gangline shipped]",
)
@duration_option("--hung-after", "1m", "A job without log lines and CPU use for this time hangs.")
@server_options
def record(job: str, file: Path | None, folder: Path | None, hung_after: timedelta, server: ServerOptions) -> int:
    r"""Record a job in one file: its spec, its history, its faults with their steps and times.

    \b
      gangline record bert --context prod          writes bert.bundle
      gangline run bert.bundle                     the same team with the same faults, on this machine
      gangline record bert -o night.bundle --code .

    The bundle has the job, its pods, events, the ends of its logs, the ConfigMaps that its pods use, the code that
    gangline shipped, and what `gangline why` says. It only reads, and never a Secret: secrets are recorded by name, and
    values that look like secrets are left out. What is left out is listed here and in the bundle, a zip file.

    Exit codes: 0 written; 102 no such job; 1 an error, and nothing was written.
    """
    code = _folder_files(folder) if folder is not None else None

    async def work(client: Client, target: ServerTarget) -> int:
        from gangline.replay.bundle_file import encode_bundle
        from gangline.replay.recording import Recording, RecordRequest
        from gangline.why.collect import JobNotFound

        async def enrich(case: JobSnapshot) -> JobSnapshot:
            return await with_stacks(target, await with_cpu_usage(client, target, case))

        request = RecordRequest(job, target.object_namespace, __version__, code, hung_after)
        try:
            bundle = await Recording(client, request, SystemClock(), enrich).bundle()
        except JobNotFound as error:
            click.echo(f"error: {error}", err=True)
            return NOT_FOUND
        path = file or Path(f"{bundle.manifest.name}.bundle")
        data = encode_bundle(bundle)
        write_private(path, data)
        for line in record_lines(bundle, path, len(data)):
            click.echo(line)
        return 0

    return run_async(server, work, missing=NOT_FOUND, as_it_was=True)


def record_lines(bundle: JobBundle, path: Path, size: int) -> Iterator[str]:
    """What was recorded, what was left out, and what to do with it."""
    from gangline.replay.comparison import fault_text, verdict_text
    from gangline.sdk.ship.archive import size_text

    manifest = bundle.manifest
    files = f", {len(bundle.code)} files of code" if bundle.code else ""
    yield f"{path}: {manifest.kind} {manifest.name}, {len(bundle.pods)} pods{files}, {size_text(size)}"
    yield f"verdict:  {verdict_text(bundle.verdict)}"
    for fault in bundle.faults:
        yield f"fault:    {fault_text(fault)}{' (a consequence)' if fault.is_consequence else ''}"
    if not bundle.faults:
        yield "fault:    none"
    for left_out in manifest.left_out:
        yield f"left out: {left_out.what}: {left_out.why}"
    yield f"play it:  {own_command_line('run', str(path))}"


def _folder_files(folder: Path) -> Mapping[str, CodeFile]:
    """The files of a folder, as `gangline run --context` would ship them. Raises `InputError` for credentials."""
    from gangline.sdk.ship.archive import list_files
    from gangline.sdk.ship.inspection import inspect_files, named_files

    files = list_files(folder.resolve(), CODE_LIMIT)
    refused = inspect_files(files).refused
    if refused:
        raise InputError(
            f"{folder}: is not packed, because it contains what looks like credentials: {named_files(refused)}; "
            "leave them out with .gitignore or .ganglineignore"
        )
    return {item.path: CodeFile(files.content(item), item.mode) for item in files.files}
