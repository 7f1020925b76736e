"""`gangline crds` and `gangline crd`: print custom resource definitions, to pipe into kubectl."""

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
# A collection of at most this many characters is written on one line.
_MAX_FLOW_LENGTH = 90
# The depth of the pod's fields, below a replica's template, in a definition.
_POD_FIELDS_DEPTH = 16
_UNFOLDED_DEPTH = 1000


@cli_command()
@click.option(
    "--described",
    is_flag=True,
    help="Include descriptions of all fields, for kubectl explain; apply them with --server-side.",
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    type=click.Choice(_KIND_NAMES, case_sensitive=False),
    help=f"Print only this kind; may be repeated: {', '.join(_KIND_NAMES)}.  [default: all]",
)
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="Form of the output."
)
def crds(described: bool, kinds: tuple[str, ...], output: str) -> None:
    r"""Print the definitions (CRDs) that a cluster needs for training jobs.

    \b
      gangline crds | kubectl apply -f -                                    install or update them
      gangline crds --kind PyTorchJob | kubectl apply -f -                  one of them
      gangline crds --described | kubectl apply --server-side -f -          with descriptions

    Exit codes: 0 printed; 1 an unknown kind.
    """
    # Imported here: no other command needs them.
    from gangline.schema.crds.gang_crds import GANG_RESOURCES, gang_crd
    from gangline.schema.crds.job_crds import crd

    builders = {kind.kind: partial(crd, kind) for kind in TRAINING_KINDS}
    builders |= {resource.kind: partial(gang_crd, resource) for resource in GANG_RESOURCES}
    definitions = [build(described=described) for name, build in builders.items() if not kinds or name in kinds]
    text = as_json(definitions) if output == "json" else as_yaml(definitions, folded=not described)
    click.echo(text, nl=False)


def as_json(definitions: Sequence[JSON]) -> str:
    """Compact JSON in one line: one definition itself, several as a List."""
    list_object = {"apiVersion": "v1", "kind": "List", "items": definitions}
    return msgspec.json.encode(definitions[0] if len(definitions) == 1 else list_object).decode() + "\n"


def as_yaml(definitions: Sequence[JSON], *, folded: bool = True) -> str:
    """A YAML document for each definition.

    With `folded`, each field of Kubernetes' own types is on one line, however long: with one line for each nested
    field, most of the text would be indentation.
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
        """Repeat shared parts instead of using anchors, which some readers of manifests do not follow."""
        return True


def _fold(node: yaml.Node, depth: int, deepest: int) -> int:
    """Put collections that are short, or at least `deepest` deep, on one line. Returns the length of the node's text."""
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
@click.option(
    "--described",
    is_flag=True,
    help="Include descriptions of all fields, for kubectl explain; apply them with --server-side.",
)
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True, help="Form of the output."
)
def crd(file: Path, described: bool, output: str) -> None:
    r"""Print the definitions (CRDs) of the job kinds in the Python file of your own operator.

    \b
      gangline crd relay_operator.py | kubectl apply -f -

    The file is imported, and every `JobKind` at its top level gets a definition. See docs/custom-operators.md.

    Exit codes: 0 printed; 1 an error in the file.
    """
    from gangline.schema.crds.job_crds import crd as definition

    definitions = [definition(kind, described=described) for kind in kinds_in(file)]
    text = as_json(definitions) if output == "json" else as_yaml(definitions, folded=not described)
    click.echo(text, nl=False)


def kinds_in(file: Path) -> list[JobKind]:
    """The job kinds that a Python file defines, in its order. Executes the file. Raises `InputError`."""
    if not file.is_file():
        raise InputError(f"{file}: no such file; give the Python file that defines your JobKind")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise InputError(f"{file}: not a Python file; give the one that defines your JobKind")
    module = importlib.util.module_from_spec(spec)
    # As for a script, its folder is on the path; and structs look up their own module by name.
    sys.path.insert(0, str(file.parent.resolve()))
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"{file}: cannot be imported: {type(error).__name__}: {error}") from error
    kinds = [value for value in vars(module).values() if isinstance(value, JobKind)]
    if not kinds:
        raise InputError(f"{file}: holds no JobKind; write one, such as RELAYJOB = JobKind(...)")
    return kinds
