"""`-o`: objects as JSON, YAML, names, or through a template. Text in, text out; the server is not asked here."""

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

_TEMPLATE_FORMATS = ("jsonpath", "jsonpath-as-json", "jsonpath-file", "custom-columns", "custom-columns-file")
_ENCODER = msgspec.json.Encoder(order="sorted")
_GO_ESCAPED = re.compile("[<>&\u2028\u2029]")


class OutputFormat(NamedTuple):
    """What `-o` asks for: a word, and the template after it."""

    name: str = TABLE
    template: str = ""

    @property
    def is_table(self) -> bool:
        return self.name in (TABLE, WIDE)


def parse_format(text: str) -> OutputFormat:
    """What was written after `-o`. Raises `InputError`."""
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
    objects: Sequence[JSON], how: OutputFormat, *, single: bool, managed: bool = False, headers: bool = True
) -> str:
    """Objects as asked for; `single` is one that was named, and is not put into a list."""
    bodies = [body if managed else without_managed_fields(body) for body in objects]
    if how.name == NAME:
        return "".join(f"{object_name(body)}\n" for body in bodies)
    if how.name == "custom-columns":
        return custom_columns(bodies, how.template, headers=headers)
    whole = bodies[0] if single and len(bodies) == 1 else list_object(bodies)
    return format_value(whole, how)


def format_value(body: Any, how: OutputFormat) -> str:
    """One value as JSON, as YAML or through a JSONPath. Raises `InputError` for a template that cannot be used."""
    if how.name == JSON_FORMAT:
        return as_json(body)
    if how.name == YAML:
        return as_yaml(body)
    from gangline.api.jsonpath import JSONPath

    template = JSONPath(how.template if "{" in how.template else "{" + how.template + "}")
    if how.name == "jsonpath-as-json":
        found = [value for part in template.find(body) for value in part]
        return as_json(found)
    return template.text(body)


def list_object(bodies: Iterable[JSON]) -> JSON:
    """Several objects as one, as kubectl has it."""
    return {"apiVersion": "v1", "items": list(bodies), "kind": "List", "metadata": {"resourceVersion": ""}}


def as_json(value: Any) -> str:
    """Indented, keys sorted, and escaped as Go does."""
    text = msgspec.json.format(_ENCODER.encode(value).decode(), indent=4)
    return _GO_ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def as_yaml(value: Any) -> str:
    """Keys sorted; text of several lines as a block."""
    import yaml

    text: str = yaml.dump(
        value,
        Dumper=_go_yaml_dumper(),
        sort_keys=True,
        default_flow_style=False,
        allow_unicode=True,
        width=10**9,
    )
    return text


def _go_yaml_dumper() -> type[Any]:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes text as Go's library does: blocks for lines, double quotes where quotes are needed."""

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
    """Text that other YAML readers take for something else."""
    return text.lower() in ("y", "n", "yes", "no", "on", "off") or bool(
        re.fullmatch(r"(?=.*\d)[-+.\d][\d_.,:eE+-]*", text)
    )


def without_managed_fields(body: JSON) -> JSON:
    """Without the record of who owns which field, which is long and helps few."""
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return body
    return {**body, "metadata": {name: value for name, value in metadata.items() if name != "managedFields"}}


def object_name(body: JSON) -> str:
    """`tfjob.kubeflow.org/linear`."""
    group, slash, _ = str(body.get("apiVersion", "")).rpartition("/")
    kind = str(body.get("kind", "")).lower()
    return f"{kind}.{group}/{body['metadata']['name']}" if slash else f"{kind}/{body['metadata']['name']}"


def custom_columns(bodies: Sequence[JSON], template: str, *, headers: bool = True) -> str:
    """A table of what paths find: `NAME:.metadata.name,STATE:.status.phase`; or two lines, as in a file."""
    columns = list(_column_paths(template))
    rows = [[_column_text(path, body) for _, path in columns] for body in bodies]
    return render([name for name, _ in columns], rows, headers=headers)


def _column_paths(template: str) -> Iterable[tuple[str, Any]]:
    from gangline.api.jsonpath import JSONPath

    names, _, paths = template.partition("\n")
    if paths.strip():
        written = list(zip(names.split(), paths.split(), strict=False))
    else:
        parts = [part.partition(":") for part in template.split(",")]
        written = [(name, path) for name, _, path in parts]
    for name, path in written:
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
    """Structures as Go prints them."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{name}:{_go_structure(value[name])}" for name in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(_go_structure, value)) + "]"
    return _go_text(value)


def sort_key(path: str) -> Callable[[JSON], Any]:
    """The key for `--sort-by`: numbers among themselves, then text; what has no value comes first. Raises `InputError`."""
    from gangline.api.jsonpath import JSONPath, printed_value

    wanted = JSONPath.of_field(path)

    def key(body: JSON) -> tuple[int, Any]:
        value = wanted.first_value(body)
        if value is None:
            return (0, 0)
        if isinstance(value, bool | int | float):
            return (1, value)
        return (2, _natural_key(printed_value(value)))

    return key


def _natural_key(text: str) -> list[tuple[int, int | str]]:
    """So that worker-10 comes after worker-9."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"(\d+)", text) if part]
