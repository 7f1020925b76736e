"""`-o`: objects as JSON, YAML, names, or through a template, in kubectl's format. Sends no requests."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.cli.output.tables import render

TABLE, WIDE, NAME, JSON_FORMAT, YAML = "", "wide", "name", "json", "yaml"
FORMAT_NAMES = "wide|json|yaml|name|jsonpath=…|jsonpath-file=…|custom-columns=…|custom-columns-file=…"

DRY_RUN_SUFFIXES = {"none": "", "client": " (dry run)", "server": " (server dry run)"}
"""What kubectl prints after a line about an object, by the value of --dry-run."""

_TEMPLATE_FORMATS = ("jsonpath", "jsonpath-as-json", "jsonpath-file", "custom-columns", "custom-columns-file")
_ENCODER = msgspec.json.Encoder(order="sorted")
_GO_ESCAPED = "[<>&\u2028\u2029]"


class OutputFormat(NamedTuple):
    """The value of `-o`: the format's name, and its template."""

    name: str = TABLE
    template: str = ""

    @property
    def is_table(self) -> bool:
        return self.name in (TABLE, WIDE)


def parse_format(text: str) -> OutputFormat:
    """The output format for a value of `-o`. Reads the template of a `-file` format. Raises `InputError`."""
    word, _, template = text.partition("=")
    if word in (TABLE, WIDE, NAME, JSON_FORMAT, YAML) and not template:
        return OutputFormat(word)
    if word in _TEMPLATE_FORMATS and template:
        if word.endswith("-file"):
            return OutputFormat(word.removesuffix("-file"), _read_template(template).strip())
        return OutputFormat(word, template)
    if word in _TEMPLATE_FORMATS:
        raise InputError(f"-o {word}: the template is missing; write -o {word}=TEMPLATE")
    raise InputError(f"-o {text}: is unknown; write one of {FORMAT_NAMES.replace('|', ', ')}")


def _read_template(file: str) -> str:
    try:
        return Path(file).read_text()
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}") from error


def format_objects(
    objects: Sequence[JSON], output_format: OutputFormat, *, single: bool, managed: bool = False, headers: bool = True
) -> str:
    """Objects in an output format that is no table. With `single`, one object is printed itself, not in a List."""
    bodies = [body if managed else without_managed_fields(body) for body in objects]
    if output_format.name == NAME:
        return "".join(f"{object_name(body)}\n" for body in bodies)
    if output_format.name == "custom-columns":
        return custom_columns(bodies, output_format.template, headers=headers)
    return format_value(bodies[0] if single and len(bodies) == 1 else list_object(bodies), output_format)


def format_value(value: Any, output_format: OutputFormat) -> str:
    """One value as JSON, as YAML or through a JSONPath. Raises `InputError` for an invalid template."""
    if output_format.name == JSON_FORMAT:
        return as_json(value)
    if output_format.name == YAML:
        return as_yaml(value)
    from gangline.api.jsonpath import JSONPath

    template = output_format.template
    path = JSONPath(template if "{" in template else "{" + template + "}")
    if output_format.name == "jsonpath-as-json":
        return as_json([match for part in path.find(value) for match in part])
    return path.text(value)


def list_object(bodies: Iterable[JSON]) -> JSON:
    """Several objects as a List, as kubectl prints them."""
    return {"apiVersion": "v1", "items": list(bodies), "kind": "List", "metadata": {"resourceVersion": ""}}


def as_json(value: Any) -> str:
    """JSON as kubectl prints it: indented, keys sorted, escaped as Go does."""
    text = msgspec.json.format(_ENCODER.encode(value).decode(), indent=4)
    return re.sub(_GO_ESCAPED, lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def as_yaml(value: Any) -> str:
    """YAML as kubectl prints it: keys sorted, text of several lines as a block."""
    import yaml

    text: str = yaml.dump(
        value, Dumper=_go_yaml_dumper(), sort_keys=True, default_flow_style=False, allow_unicode=True, width=10**9
    )
    return text


def _go_yaml_dumper() -> type[Any]:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes text as Go's library does: several lines as a block, double quotes where quotes are needed."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

        def represent_text(self, data: str) -> yaml.ScalarNode:
            node: yaml.ScalarNode = self.represent_scalar("tag:yaml.org,2002:str", data)
            if "\n" in data and not data.endswith("\n\n") and not re.search(r"[ \t]+\n", data):
                node.style = "|"
            elif self.resolve(  # type: ignore[no-untyped-call]
                yaml.ScalarNode, data, (True, False)
            ) != "tag:yaml.org,2002:str" or _needs_quotes(data):
                node.style = '"'
            return node

    Dumper.add_representer(str, Dumper.represent_text)
    return Dumper


def _needs_quotes(text: str) -> bool:
    """Whether another YAML parser would take a plain text for a boolean or a number."""
    return text.lower() in ("y", "n", "yes", "no", "on", "off") or bool(
        re.fullmatch(r"(?=.*\d)[-+.\d][\d_.,:eE+-]*", text)
    )


def without_managed_fields(body: JSON) -> JSON:
    """An object without managedFields, which kubectl leaves out too."""
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return body
    return {**body, "metadata": {name: value for name, value in metadata.items() if name != "managedFields"}}


def object_name(body: JSON) -> str:
    """An object's name as kubectl prints it: `tfjob.kubeflow.org/linear`."""
    group, slash, _ = str(body.get("apiVersion", "")).rpartition("/")
    kind = str(body.get("kind", "")).lower()
    return f"{kind}.{group}/{body['metadata']['name']}" if slash else f"{kind}/{body['metadata']['name']}"


def custom_columns(bodies: Sequence[JSON], template: str, *, headers: bool = True) -> str:
    """A table by a template: `NAME:.metadata.name,STATE:.status.phase`, or a line of names above a line of paths."""
    columns = list(_column_paths(template))
    rows = [[_column_text(path, body) for _, path in columns] for body in bodies]
    return render([name for name, _ in columns], rows, headers=headers)


def _column_paths(template: str) -> Iterable[tuple[str, Any]]:
    from gangline.api.jsonpath import JSONPath

    names, _, paths = template.partition("\n")
    if paths.strip():
        columns = list(zip(names.split(), paths.split(), strict=False))
    else:
        parts = [part.partition(":") for part in template.split(",")]
        columns = [(name, path) for name, _, path in parts]
    for name, path in columns:
        if not name or not path:
            raise InputError(f'custom-columns: "{template}": write NAME:.path,NAME:.path')
        yield name, JSONPath.of_field(path)


def _column_text(path: Any, body: JSON) -> str:
    values = [value for part in path.find(body) for value in part]
    return ",".join(map(_go_text, values)) if values else "<none>"


def _go_text(value: Any) -> str:
    if value is None:
        return "<nil>"
    if isinstance(value, dict | list):
        return _go_structure(value)
    from gangline.api.jsonpath import printed_value

    return printed_value(value)


def _go_structure(value: Any) -> str:
    """Maps and lists as Go's fmt prints them."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{name}:{_go_structure(value[name])}" for name in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(_go_structure, value)) + "]"
    return _go_text(value)


def sort_key(path: str) -> Callable[[JSON], Any]:
    """The sort key for `--sort-by`: objects without a value first, then numbers, then text. Raises `InputError`."""
    from gangline.api.jsonpath import JSONPath, printed_value

    json_path = JSONPath.of_field(path)

    def key(body: JSON) -> tuple[int, Any]:
        value = json_path.first_value(body)
        if value is None:
            return (0, 0)
        if isinstance(value, bool | int | float):
            return (1, value)
        return (2, _natural_key(printed_value(value)))

    return key


def _natural_key(text: str) -> list[tuple[int, int | str]]:
    """A key that compares digits as numbers: worker-10 comes after worker-9."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", text) if part]
