"""`gangline check`: mistakes in files, found without a server."""

import sys

import click

from gangline.base.errors import InputError
from gangline.cli.flags.commands import cli_command
from gangline.cli.manifests.files import STDIN, file_text, files_in


@cli_command()
@click.argument("files", nargs=-1, metavar="FILE...", type=click.Path())
@click.option("-f", "--filename", "more", multiple=True, metavar="FILE", help="A file or folder; - is stdin.")
@click.option("-R", "--recursive", is_flag=True, help="Look into folders below those given.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to print.")
def check(files: tuple[str, ...], more: tuple[str, ...], recursive: bool, output: str) -> int:
    r"""Find mistakes in files of training jobs, without a server.

    Each is told with file, line, field, and what to write: types, unknown fields, everything that an API server
    with our definitions would refuse, of the job and of its pods, and what could never run. Other kinds of object are
    only read.

    \b
      gangline check job.yaml
      gangline check -R jobs/ -o json

    Exit codes: 0 no mistakes, 1 mistakes.
    """
    # Imported here: schemas and their rules take a while to load.
    from gangline.cli.manifests.lint import check_text, findings_json
    from gangline.cli.output.formats import as_json as json_text

    given = files + more
    names = [file for name in given for file in files_in(name, recursive=recursive)]
    if not names:
        raise InputError("name a file, a folder, or - for standard input")
    found = {name: check_text(file_text(name), name if name != STDIN else "stdin") for name in names}
    # One among others in a folder may be empty; a file that somebody names may not.
    every = not any(checked.has_content for checked in found.values())
    found = {
        name: checked.with_empty_finding() if every or name in given else checked for name, checked in found.items()
    }
    findings = tuple(finding for checked in found.values() for finding in checked.findings)
    if output == "json":
        sys.stdout.write(json_text(findings_json(findings)))
        return 1 if findings else 0
    for finding in findings:
        click.echo(str(finding))
    for name, checked in found.items():
        if not checked.findings:
            click.echo(_clean_summary(name, checked.jobs, checked.other_objects), err=True)
    return 1 if findings else 0


def _clean_summary(name: str, jobs: int, others: int) -> str:
    told = f"{name}: {jobs} job{'s' if jobs != 1 else ''}, no mistakes"
    return f"{told}; {others} other object{'s' if others != 1 else ''} not looked at" if others else told
