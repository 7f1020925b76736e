"""Write docs/reference: commands, fields, labels, conditions, events, exit codes, variables, the Python API.

A test finds drift, and what has no explanation.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from gangline.api.kubeflow.kinds import JOB_APIS
from gangline.api.scheduling import PODGROUPS, QUEUES
from gangline.cli import exit_codes
from gangline.cli.main import COMMAND_SECTIONS, cli
from gangline.schema.crds.gang_crds import gang_crd
from gangline.schema.crds.job_crds import crd_schema

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
PACKAGES = ("gangline", "gangline.operator", "gangline.testing")
OURS = (".gangline.dev/", "training.kubeflow.org/", "scheduling.k8s.io/")
NOTE = "<!-- Written by hack/reference.py: make reference. Do not edit. -->\n"


def pages() -> dict[str, str]:
    """Name of each page, and its text."""
    return {
        "commands.md": NOTE + "\n".join(commands()) + "\n",
        "values.md": NOTE + "\n".join(values()) + "\n",
        "fields.md": NOTE + "\n".join(fields()) + "\n",
        "labels.md": NOTE + "\n".join(labels()) + "\n",
        "python.md": NOTE + "\n".join(python()) + "\n",
    }


# Commands


def commands() -> Iterator[str]:
    yield "# Commands and flags\n"
    yield "Every command, as its `--help` has it. [The command line](../cli.md) explains what they share.\n"
    root = click.Context(cli, info_name="gangline")
    for section, names in COMMAND_SECTIONS.items():
        yield f"## {section}\n"
        for name in names:
            command = cli.get_command(root, name)
            if command is None:
                raise LookupError(f"there is no command {name}")
            yield from _command(command, click.Context(command, info_name=name, parent=root))


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    yield f"### {context.command_path}\n"
    summary, _, rest = inspect.cleandoc(command.help or "").partition("\n\n")
    yield f"{' '.join(summary.split())}\n"
    yield f"```text\n{' '.join([context.command_path, *command.collect_usage_pieces(context)])}"
    if rest.strip():
        yield "\n" + rest.replace("\b\n", "").rstrip()
    yield "```\n"
    records = [each.get_help_record(context) for each in command.get_params(context)]
    rows = [(flag, " ".join(what.split())) for flag, what in filter(None, records) if what.strip()]
    if rows:
        yield "| flag | what |\n| --- | --- |"
        yield from (f"| `{flag.replace('|', ',')}` | {_cell(what)} |" for flag, what in rows)
        yield ""
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _command(inner, click.Context(inner, info_name=name, parent=context))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


# Values: conditions, events, exit codes, variables

EVENTS = {
    "<K>Created": "The operator has accepted the job.",
    "<K>Restarting": "A replica failed, and it or the whole team is replaced.",
    "<K>Suspended": "The job was suspended.",
    "<K>Resumed": "The job was resumed.",
    "<K>Succeeded": "The job has ended well.",
    "<K>Failed": "The job has failed.",
    "SuccessfulCreatePod": "Pods were created, all that were created together in one event.",
    "SuccessfulDelete<what>": "A pod or service was deleted.",
    "SuccessfulDeleteJob": "The job was deleted, because its time to live was over.",
    "FailedCreate<what>": "The server did not let the operator create an object.",
    "FailedDelete<what>": "The server did not let the operator delete an object.",
    "ErrResourceExists": "An object of somebody else has the name that a member of the job needs.",
    "ExitedWithCode": "A container failed, with this exit code.",
    "ValidationError": "An MPIJob of v2beta1 has a mistake.",
    "FieldIgnored": "A field of the job has no effect.",
    "SetPodTemplateRestartPolicy": "The restart policy of a pod template was replaced by that of the replica.",
    "SetPodTemplateSchedulerName": "A template names another scheduler, so its pods are not placed with the gang.",
    "PodsLeftRunning": "The job has ended, and its clean-up policy leaves pods running.",
    "PodStillTerminating": "A pod of the last round does not end, and the next round waits for it.",
    "NodeAvoided": "New pods of the job stay away from a node, because of failures there.",
    "NodeForgiven": "A node is used again, because no place was left without it.",
    "RestartedInPlace": "The programs were started again in the same pods.",
    "InPlaceRestartFailed": "A restart in place took too long, so new pods are created.",
    "JobStalled": "The job runs and makes no progress.",
    "JobMovesAgain": "A stalled job makes progress again.",
    "MissingRights": "The operator cannot serve a kind yet, because it lacks rights.",
    "GangSchedulerMissing": "The job requests a gang scheduler that the operator does not use.",
    "GangTimeout": "The gang has waited for `scheduleTimeoutSeconds`.",
    "Scheduled": "Members of a gang were placed together. On the PodGroup, as all below.",
    "Preempted": "Members of the gang are evicted for another gang.",
    "MakingRoom": "Pods of others are evicted for this gang.",
    "Refused": "The gang can never be placed as it is written. The message says why.",
    "Undone": "A start that stayed incomplete was undone.",
    "ScheduleTimeout": "The gang has waited for longer than its time to be placed.",
    "PodGroupMissing": "Pods name a group that does not exist.",
    "PriorityClassMissing": "The group names a PriorityClass that does not exist.",
}
"""Reasons of events. `<K>` is the kind of the job, `<what>` the kind of an object."""
EXIT_CODES = {
    0: "success",
    1: "an error of input or use, in one line on standard error",
    3: "of `why`: nothing is wrong with the job",
    100: "the job failed",
    101: "the job did not finish in time",
    102: "there is no such job",
    103: "the job was deleted before it had ended",
    130: "interrupted by Ctrl-C",
}
VARIABLES = {
    "KUBECONFIG": "Your kubeconfig, as for kubectl.",
    "GANGLINE_KUBECONFIG": "A kubeconfig that comes before `KUBECONFIG`.",
    "GANGLINE_HOME": "The folder of local planes, runs and their records, instead of `~/.local/state/gangline`.",
    "GANGLINE_GPUS": "The GPUs of this machine, instead of those that are detected: `none`, `nvidia=4`, `amd=2`.",
    "GANGLINE_DOCS_URL": "The address of this site. `why` then prints links to its pages.",
    "GANGLINE_IMAGE": "The operator's own image; set in its deployment.",
    "GANGLINE_NOTIFICATIONS": "The text of a file for notifications; set in the operator's deployment.",
    "GANGLINE_PORTABLE": "With 1 a local node uses only what every system has. For tests.",
}
"""Variables that people set. Those that a process gets from its node are in docs/node.md."""


def values() -> Iterator[str]:
    yield "# Conditions, events, exit codes, variables\n"
    yield "The values that programs match on. `<K>` stands for the kind of a job, such as `PyTorchJob`.\n"
    yield "## Conditions of a job\n"
    yield "`status.conditions` of a job. [Every transition](transitions.md) says when each one comes, with its reason.\n"
    yield "| type | what |\n| --- | --- |"
    yield from (f"| `{name}` | {what} |" for name, what in conditions().items())
    yield "\n## Events\n"
    yield "| reason | what |\n| --- | --- |"
    yield from (f"| `{reason}` | {what} |" for reason, what in EVENTS.items())
    yield "\nThe operator also repeats what Kubernetes says about a pod that cannot start, with that reason"
    yield "(`ImagePullBackOff`, `Unschedulable` and others). Each [phase of a gang](gangs.md#transitions) is an event, too.\n"
    yield "## Exit codes\n"
    yield "| code | what |\n| --- | --- |"
    yield from (f"| {code} | {EXIT_CODES[code]} |" for code in sorted(known_exit_codes()))
    yield "\n## Environment variables\n"
    yield "| variable | what |\n| --- | --- |"
    yield from (f"| `{name}` | {what} |" for name, what in VARIABLES.items())
    yield "\nA process of a job gets [others from its node](../node.md#paths). Flags of the operator are in"
    yield "[Commands and flags](commands.md), metrics in [Monitoring](../monitoring.md)."


def conditions() -> dict[str, str]:
    """Every type of condition, and the text below it."""
    tree = ast.parse((ROOT / "src/gangline/api/kubeflow/training.py").read_text())
    (found,) = (each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == "ConditionType")
    types: dict[str, str] = {}
    for each, after in zip(found.body, [*found.body[1:], None], strict=True):
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant):
            types[str(each.value.value)] = " ".join(_text(after).split())
    return types


def known_exit_codes() -> set[int]:
    """The exit codes that the commands have."""
    return {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}


def event_reasons() -> set[str]:
    """The reasons of events that stand in the source as texts."""
    found: set[str] = set()
    for file in sorted((ROOT / "src" / "gangline").rglob("*.py")):
        text = file.read_text()
        found.update(re.findall(r'JobEvent\(\s*"(\w+)"', text))
        found.update(re.findall(r'_events\.record\([^"]*?"(\w+)"', text))
    return found


# Fields


def fields() -> Iterator[str]:
    yield "# Fields\n"
    yield "Every field of every kind, as `kubectl explain` has them after `gangline crds --described`."
    yield "A pod template is Kubernetes' own and is left out.\n"
    for kind in JOB_APIS:
        yield f"## {kind.scheme.replace('.', ' ')}\n"
        yield f"`{kind.model.API_VERSION}`, resource `{kind.plural}`; replica types {', '.join(kind.types)};"
        yield f"the container that trains is `{kind.container}`.\n"
        yield from _table(crd_schema(kind, described=True)["properties"])
    for resource in (PODGROUPS, QUEUES):
        body = gang_crd(resource, described=True)
        yield f"## {resource.kind}\n"
        short = ", ".join(f"`{name}`" for name in body["spec"]["names"].get("shortNames", ()))
        yield f"`{resource.api_version}`, resource `{resource.plural}`, short {short}.\n"
        yield from _table(body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"])


def _table(properties: dict[str, Any]) -> Iterator[str]:
    yield "| field | type | what |"
    yield "| --- | --- | --- |"
    for part in ("spec", "status"):
        for path, found in _walk(part, properties.get(part) or {}):
            yield f"| `{path}` | {_type(found)} | {_what(found)} |"
    yield ""


def _walk(path: str, found: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, inner in (found.get("properties") or {}).items():
        below = f"{path}.{name}"
        yield below, inner
        if name in ("template", "metrics", "ledger", "labelSelector"):
            continue
        if "properties" in inner:
            yield from _walk(below, inner)
        elif "properties" in (inner.get("additionalProperties") or {}):
            yield from _walk(f"{below}.*", inner["additionalProperties"])
        elif "properties" in (inner.get("items") or {}):
            yield from _walk(f"{below}[]", inner["items"])


def _type(found: dict[str, Any]) -> str:
    if found.get("x-kubernetes-int-or-string"):
        return "quantity"
    kind = str(found.get("type", "any"))
    if kind == "array":
        return f"list of {_type(found.get('items') or {})}"
    return "map" if kind == "object" and "additionalProperties" in found else kind


def _what(found: dict[str, Any]) -> str:
    parts = [" ".join(str(found.get("description", "")).split())]
    if "enum" in found:
        parts.append("One of " + ", ".join(f"`{value}`" for value in found["enum"] if value) + ".")
    if "default" in found and found["default"] not in ({}, ""):
        parts.append(f"Default `{found['default']}`.")
    bounds = [
        f"at least {found['minimum']}" if "minimum" in found else "",
        f"at most {found['maximum']}" if "maximum" in found else "",
    ]
    if any(bounds):
        parts.append(", ".join(bound for bound in bounds if bound).capitalize() + ".")
    return " ".join(part for part in parts if part).replace("|", "\\|")


# Labels


def labels() -> Iterator[str]:
    yield "# Labels, annotations, gates\n"
    yield "| key | what |"
    yield "| --- | --- |"
    for key, what in sorted(keys().items()):
        yield f"| `{key}` | {what} |"


def keys() -> dict[str, str]:
    """Every key of ours and what it means, from the constants and the texts below them."""
    found: dict[str, str] = {}
    source = ROOT / "src" / "gangline"
    for file in sorted(source.rglob("*.py")):
        if file.is_relative_to(source / "cli"):
            continue  # has some of them a second time, because it must start fast
        text = file.read_text()
        if not any(start in text for start in OURS):
            continue
        body = ast.parse(text).body
        for each, after in zip(body, [*body[1:], None], strict=True):
            key = _constant(each)
            if any(start in key for start in OURS) and not found.get(key):
                found[key] = " ".join(_text(after).split())
    return found


def _constant(each: ast.stmt) -> str:
    if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str):
        return each.value.value if "/" in each.value.value else ""
    return ""


def _text(each: ast.stmt | None) -> str:
    if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str):
        return each.value.value
    return ""


# Python


def python() -> Iterator[str]:
    yield "# The Python API\n"
    yield "The names below are public: see [versioning](../versioning.md). Everything else may change."
    for package in PACKAGES:
        yield f"\n## {package}"
        module = import_module(package)
        for name in module.__all__:
            yield from _entry(name, getattr(module, name))


def _entry(name: str, found: Any) -> Iterator[str]:
    yield f"\n### {name}\n"
    if inspect.isclass(found) or inspect.isfunction(found):
        yield f"```text\n{_signature(name, found)}\n```\n"
    text = _first(found)
    if text:
        yield text
    if inspect.isclass(found) and not issubclass(found, Exception):
        methods = [
            f"- `{_short(method, inner)}`: {_first(inner) or '…'}"
            for method, inner in _members(found).items()
            if inspect.isfunction(inner) and not method.startswith("_") and _first(inner)
        ]
        if methods:
            yield "\n" + "\n".join(methods)


def _members(found: type) -> dict[str, Any]:
    """Its own, and those of its parts: classes of the same package, in files of their own."""
    package = found.__module__.rpartition(".")[0]
    parts = [part for part in found.__mro__ if part is found or part.__module__.rpartition(".")[0] == package]
    members: dict[str, Any] = {}
    for name, inner in (each for part in parts for each in vars(part).items()):
        members.setdefault(name, inner)
    return members


def _first(found: Any) -> str:
    """The first paragraph of what it says about itself."""
    text = inspect.getdoc(found) if (inspect.isclass(found) or inspect.isfunction(found)) else ""
    return " ".join((text or "").split("\n\n")[0].split())


def _signature(name: str, found: Any) -> str:
    try:
        written = str(inspect.signature(found))
    except (TypeError, ValueError):
        return name
    return "\n".join(textwrap.wrap(f"{name}{_clean(written)}", 100, subsequent_indent="    "))


def _short(name: str, found: Any) -> str:
    parameters = [str(each.name) for each in inspect.signature(found).parameters.values() if each.name != "self"]
    return f"{name}({', '.join(parameters)})"


def _clean(written: str) -> str:
    for start in (
        "gangline.api.kubeflow.training.",
        "gangline.api.meta.",
        "gangline.jobs.framework.",
        "collections.abc.",
        "typing.",
    ):
        written = written.replace(start, "")
    return re.sub(r"<([\w.]+) object at 0x[0-9a-f]+>", r"\1()", written)


if __name__ == "__main__":
    REFERENCE.mkdir(exist_ok=True)
    for page, text in pages().items():
        (REFERENCE / page).write_text(text)
