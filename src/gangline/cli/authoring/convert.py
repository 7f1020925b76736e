"""`gangline convert`: jobs as TrainJobs of Kubeflow Trainer v2, for users who migrate to it."""

from pathlib import Path

import click

from gangline.base.errors import InputError
from gangline.cli.flags.commands import cli_command


@cli_command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option(
    "--to",
    "target",
    type=click.Choice(["trainjob"]),
    default="trainjob",
    show_default=True,
    help="Kind to convert to.",
)
@click.option(
    "--runtime",
    default="",
    metavar="NAME",
    help="Name of the TrainingRuntime to use.  [default: that of the framework]",
)
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="Form of the output."
)
def convert(files: tuple[Path, ...], target: str, runtime: str, output: str) -> int:
    r"""Convert job files to TrainJobs of Kubeflow Trainer v2, and print them.

    \b
      gangline convert pytorchjob.yaml | kubectl apply -f -
      gangline convert tfjob.yaml --runtime my-tensorflow

    Fields that a TrainJob does not have are listed on standard error, with where to set them instead.

    Exit codes: 0 converted; 1 an error, such as a job that a TrainJob cannot express.
    """
    import json

    import yaml

    from gangline.cli.manifests.jobs import read_jobs
    from gangline.sdk.build.trainjob import to_trainjob
    from gangline.sdk.job import Job

    jobs = [(file, body) for file in files for _, body in read_jobs(file)]
    for number, (file, body) in enumerate(jobs):
        try:
            converted = to_trainjob(Job(body), runtime)
        except InputError as error:
            raise InputError(f"{file}: {error}") from None
        for note in converted.notes:
            click.echo(f"note: {file}: {note}", err=True)
        if output == "json":
            click.echo(json.dumps(converted.body))
            continue
        click.echo("---\n" if number else "", nl=False)
        click.echo(yaml.safe_dump(converted.body, sort_keys=False, allow_unicode=True), nl=False)
    return 0
