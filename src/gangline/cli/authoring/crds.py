"""`gangline crds`: the custom resource definitions, to pipe into kubectl."""

import importlib.util
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.api.scheduling import PODGROUPS, QUEUES
from gangline.base.errors import InputError
from gangline.cli.flags.commands import cli_command

_KIND_NAMES = (*(kind.kind for kind in TRAINING_KINDS), PODGROUPS.kind, QUEUES.kind)
_YAML_WIDTH = 100_000
# A collection of so many characters goes on one line.
_MAX_FLOW_LENGTH = 90
# How deep in a definition the fields of a template's pod are.
_POD_FIELDS_DEPTH = 16
_UNFOLDED_DEPTH = 1000


@cli_command()
@click.option("--described", is_flag=True, help="With descriptions, for kubectl explain. Needs apply --server-side.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    type=click.Choice(_KIND_NAMES, case_sensitive=False),
    help=f"Only this kind; may be given several times. One of {', '.join(_KIND_NAMES)}.",
)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def crds(described: bool, kinds: tuple[str, ...], output: str) -> None:
    r"""Print the custom resource definitions: of the training jobs, and of PodGroups and Queues.

    \b
      gangline crds | kubectl apply -f -
      gangline crds --described | kubectl apply --server-side -f -

    Exit codes: 0; 1 a kind that is not known.
    """
    # Imported here: no other command needs it.
    from gangline.schema.crds.gang_crds import GANG_RESOURCES, gang_crd
    from gangline.schema.crds.job_crds import crd

    made = {kind.kind: partial(crd, kind) for kind in TRAINING_KINDS}
    made |= {resource.kind: partial(gang_crd, resource) for resource in GANG_RESOURCES}
    found = [make(described=described) for name, make in made.items() if not kinds or name in kinds]
    text = as_json(found) if output == "json" else as_yaml(found, folded=not described)
    click.echo(text, nl=False)


def as_json(definitions: Sequence[JSON]) -> str:
    """Compact JSON, in one line: one definition as it is, several as a List."""
    listed = {"apiVersion": "v1", "kind": "List", "items": definitions}
    return msgspec.json.encode(definitions[0] if len(definitions) == 1 else listed).decode() + "\n"


def as_yaml(definitions: Sequence[JSON], *, folded: bool = True) -> str:
    """One document for each definition.

    What is `folded` has each field of Kubernetes' own types on one line, however long: written out, indentation
    would be most of the text.
    """
    deepest = _POD_FIELDS_DEPTH if folded else _UNFOLDED_DEPTH
    return "---\n".join(_yaml_document(definition, deepest) for definition in definitions)


def _yaml_document(definition: JSON, deepest: int) -> str:
    node = _Representer(sort_keys=False).represent_data(definition)
    _fold(node, 0, deepest)
    text: str = yaml.serialize(node, Dumper=yaml.CSafeDumper, width=_YAML_WIDTH, allow_unicode=True)
    return text


class _Representer(yaml.representer.SafeRepresenter):
    def ignore_aliases(self, data: Any) -> bool:
        """Write shared parts out: some readers of manifests do not follow anchors."""
        return True


def _fold(node: yaml.Node, depth: int, deepest: int) -> int:
    """Put short collections, and all from a depth on, on one line. Returns the length of such a line."""
    if isinstance(node, yaml.MappingNode):
        parts = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
        parts = node.value
    else:
        return len(node.value)
    length = sum(_fold(part, depth + 1, deepest) + 2 for part in parts)
    node.flow_style = length <= _MAX_FLOW_LENGTH or depth >= deepest
    return length


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
