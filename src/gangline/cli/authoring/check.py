"""`gangline check`: find mistakes in files, without a server."""

import sys

import click

from gangline.base.errors import InputError
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.file_options import file_options
from gangline.cli.manifests.files import STDIN, file_text, files_in


@cli_command()
@file_options("FILE...")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="text for people, json for editors.",
)
def check(files: tuple[str, ...], more: tuple[str, ...], recursive: bool, output: str) -> int:
    r"""Find mistakes in job files. Needs no cluster.

    \b
      gangline check job.yaml
      gangline check -R jobs/              all files of a folder
      gangline check job.yaml -o json      for editors

    Each mistake is printed with its file, line and field, and with what to write instead: wrong types, unknown fields,
    everything that a server would refuse, and jobs that could never run. Objects that are no jobs are not checked.

    Exit codes: 0 no mistakes; 1 mistakes.
    """
    # Imported here: schemas and their rules load slowly.
    from gangline.cli.manifests.lint import check_text, findings_json
    from gangline.cli.output.formats import as_json as json_text

    arguments = files + more
    file_names = [file for name in arguments for file in files_in(name, recursive=recursive)]
    if not file_names:
        raise InputError("name a file, a folder, or - for standard input")
    results = {name: check_text(file_text(name), name if name != STDIN else "stdin") for name in file_names}
    # A file in a folder may be empty if another one is not; a file that is named may not be empty.
    all_empty = not any(result.has_content for result in results.values())
    results = {
        name: result.with_empty_finding() if all_empty or name in arguments else result
        for name, result in results.items()
    }
    findings = tuple(finding for result in results.values() for finding in result.findings)
    if output == "json":
        sys.stdout.write(json_text(findings_json(findings)))
        return 1 if findings else 0
    for finding in findings:
        click.echo(str(finding))
    for name, result in results.items():
        if not result.findings:
            click.echo(_clean_summary(name, result.jobs, result.other_objects), err=True)
    return 1 if findings else 0


def _clean_summary(name: str, jobs: int, others: int) -> str:
    summary = f"{name}: {jobs} job{'s' if jobs != 1 else ''}, no mistakes"
    return f"{summary}; {others} other object{'s' if others != 1 else ''} not looked at" if others else summary
