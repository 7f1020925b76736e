"""`gangline crd FILE`: the definitions of the kinds that a custom operator has."""

import importlib.util
import sys
from pathlib import Path

import click

from gangline.api.kubeflow.training import JobKind
from gangline.base.errors import InputError
from gangline.cli.flags.verb import cli_command


@cli_command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--described", is_flag=True, help="With descriptions, for kubectl explain. Needs apply --server-side.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def crd(file: Path, described: bool, output: str) -> None:
    r"""Print the custom resource definitions of the kinds of job in a Python file.

    Every `JobKind` that the file holds by a name gets one. The file is run, but not as the main program.

    \b
      gangline crd relay_operator.py | kubectl apply -f -

    Exit codes: 0; 1 an error in the file.
    """
    from gangline.cli.authoring.crds import as_json, as_yaml
    from gangline.schema.crds.job_crds import crd as definition

    found = [definition(kind, described=described) for kind in kinds_in(file)]
    text = as_json(found) if output == "json" else as_yaml(found, folded=not described)
    click.echo(text, nl=False)


def kinds_in(file: Path) -> list[JobKind]:
    """The kinds that a file defines, in its order. Runs it. Raises `InputError`."""
    if not file.is_file():
        raise InputError(f"{file}: no such file")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise InputError(f"{file}: not a Python file; write the one in which your JobKind is")
    module = importlib.util.module_from_spec(spec)
    # Its neighbours are its modules, as when it is run; and structs look their own module up by name.
    sys.path.insert(0, str(file.parent.resolve()))
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"{file}: cannot be imported: {type(error).__name__}: {error}") from error
    found = [value for value in vars(module).values() if isinstance(value, JobKind)]
    if not found:
        raise InputError(f"{file}: holds no JobKind; write one, such as RELAYJOB = JobKind(...)")
    return found
