"""The values of an installation from the flags: `-f values.yaml`, `--set a.b=c` as in Helm, `--scope`, `--with`. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import yaml

from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.install.value_fields import value_fields

COMPONENTS = ("scheduler", "dashboard")
"""What `--with` can add."""
_SCOPE_HELP = "write --scope cluster, or --scope namespace=team-a,team-b"
_STEP = re.compile(r"((?:\\.|[^.\[\]\\])+)|\[(\d+)\]")
_SECRET_NAME = re.compile(r"password|passwd|token|secret|credential|api_?key|private_?key", re.IGNORECASE)


class ValueFlags(NamedTuple):
    """The flags that say what is installed."""

    files: Sequence[tuple[str, JSON]] = ()
    assignments: Sequence[str] = ()
    scope: str = ""
    components: str = ""
    image: str = ""


def given_values(flags: ValueFlags) -> JSON:
    """The values that the flags give, by the names of the chart; later flags win. Raises `InputError`."""
    values: JSON = {}
    for name, content in flags.files:
        if not isinstance(content, dict):
            raise InputError(f"{name}: expected a mapping of values, as in values.yaml of the chart")
        values = merged(values, content)
    if flags.scope:
        values = merged(values, {"watchNamespaces": list(scope_namespaces(flags.scope))})
    for component in filter(None, flags.components.split(",")):
        if component not in COMPONENTS:
            raise InputError(f'--with: there is no component "{component}"; write {" or ".join(COMPONENTS)}')
        values = merged(values, {component: {"enabled": True}})
    if flags.image:
        values = merged(values, {"image": image_values(flags.image)})
    for text in flags.assignments:
        for assignment in split_assignments(text):
            values = _assigned(values, assignment)
    return values


def scope_namespaces(scope: str) -> tuple[str, ...]:
    """The namespaces of `--scope`: none for the whole cluster. Raises `InputError`."""
    if scope == "cluster":
        return ()
    word, equals, names = scope.partition("=")
    namespaces = tuple(filter(None, (name.strip() for name in names.split(","))))
    if word not in ("namespace", "namespaces") or not equals or not namespaces:
        raise InputError(f'--scope: "{scope}" is no scope; {_SCOPE_HELP}')
    return tuple(dict.fromkeys(namespaces))


def image_values(reference: str) -> JSON:
    """The values of an image reference: `registry.example:5000/team/gangline:0.1.0@sha256:...`."""
    name, _, digest = reference.partition("@")
    head, slash, rest = name.partition("/")
    has_registry = bool(slash) and ("." in head or ":" in head or head == "localhost")
    registry, path = (head, rest) if has_registry else ("", name)
    repository, _, tag = path.partition(":")
    if not repository or repository != repository.strip() or " " in reference:
        raise InputError(f'--image: "{reference}" is no image; write one such as registry.example/gangline:0.1.0')
    return {"registry": registry, "repository": repository, "tag": tag, "digest": digest}


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> JSON:
    """Values with others on top, as Helm merges them: mappings by key, all else replaced, by null too."""
    result = dict(base)
    for name, value in over.items():
        before = result.get(name)
        if isinstance(value, Mapping):
            result[name] = merged(before if isinstance(before, Mapping) else {}, value)
        else:
            result[name] = value
    return result


def settled(values: Mapping[str, Any], path: str = "") -> JSON:
    """Values without those that are null, which are at their default.

    Within a mapping such as podSecurityContext null stays, for it removes what the default has there:
    `podSecurityContext.runAsUser=null`.
    """
    keeps_nulls = _is_in_mapping(path)
    return {
        name: settled(value, f"{path}.{name}" if path else name) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if value is not None or keeps_nulls
    }


def _is_in_mapping(path: str) -> bool:
    """Whether what is below this path is no value of its own, but an entry of one."""
    fields = value_fields()
    while path and path not in fields:
        path = path.rpartition(".")[0]
    return bool(path) and fields[path].type == "map"


def missing_values(values: Mapping[str, Any], given: Mapping[str, Any]) -> JSON:
    """Those of some values that are not given, block by block."""
    inner = {
        name: missing_values(value, given[name])
        for name, value in values.items()
        if isinstance(value, Mapping) and isinstance(given.get(name), Mapping)
    }
    missing = {name: value for name, value in values.items() if name not in given}
    return missing | {name: value for name, value in inner.items() if value}


def split_assignments(text: str) -> list[str]:
    """`a=1,b={x,y}` as its assignments. A comma in braces, brackets or after a backslash does not divide."""
    parts, depth, current = [], 0, ""
    characters = iter(text)
    for character in characters:
        if character == "\\":
            following = next(characters, "")
            current += following if following == "," else f"\\{following}"
            continue
        depth += (character in "{[") - (character in "}]")
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [*parts, current]


def _assigned(values: JSON, assignment: str) -> JSON:
    path, equals, text = assignment.partition("=")
    # As in Helm, a backslash takes the next character as it is: nodeSelector.kubernetes\.io/os=linux.
    steps: list[str | int] = [re.sub(r"\\(.)", r"\1", name) or int(index) for name, index in _STEP.findall(path)]
    if not equals or not steps or isinstance(steps[0], int):
        raise InputError(f'--set: "{assignment}" is no assignment; write NAME=VALUE, such as logLevel=debug')
    return merged(values, _nested(values, steps, _typed(text)))


def _nested(base: Any, steps: Sequence[str | int], value: Any) -> Any:
    if not steps:
        return value
    first, *rest = steps
    if isinstance(first, int):
        items = list(base) if isinstance(base, list | tuple) else []
        items += [None] * (first + 1 - len(items))
        before, inner = items[first], _nested(items[first], rest, value)
        both = isinstance(before, Mapping) and isinstance(inner, Mapping)
        items[first] = merged(before, inner) if both else inner
        return items
    below = base.get(first) if isinstance(base, Mapping) else None
    return {first: _nested(below, rest, value)}


def _typed(text: str) -> Any:
    """A value as Helm reads it: `true`, `3`, `null`, `{a,b}` as a list; JSON for more; else text."""
    if text.startswith("{") and text.endswith("}") and not text[1:].lstrip().startswith('"'):
        return [_typed(part) for part in split_assignments(text[1:-1]) if part]
    if text in ("true", "false", "null") or re.fullmatch(r"-?(0|[1-9]\d*)", text) or text[:1] in ("{", "["):
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError:
            return text
    return text


def secret_problem(values: Mapping[str, Any]) -> str:
    """Which value looks like a secret, which must not be recorded; empty if none does."""
    for index, body in enumerate(values.get("extraObjects") or ()):
        if isinstance(body, Mapping) and body.get("kind") == "Secret":
            return (
                f"extraObjects[{index}]: is a Secret; values are kept readable in the cluster, so create it with"
                " kubectl and name it in the values"
            )
    for path, entries in _environments(values):
        for index, entry in enumerate(entries):
            if isinstance(entry, Mapping) and entry.get("value") and _SECRET_NAME.search(str(entry.get("name", ""))):
                return (
                    f"{path}[{index}]: {entry['name']} looks like a secret; values are kept readable in the cluster,"
                    " so write valueFrom.secretKeyRef instead of value"
                )
    return ""


def _environments(values: Mapping[str, Any]) -> Iterable[tuple[str, Sequence[Any]]]:
    yield "extraEnv", values.get("extraEnv") or ()
    for component in COMPONENTS:
        inner = values.get(component)
        if isinstance(inner, Mapping):
            yield f"{component}.extraEnv", inner.get("extraEnv") or ()


def values_text(values: JSON) -> str:
    """Values in one line: `scheduler.enabled=true, image.tag=0.2.0`."""
    return ", ".join(f"{path}={msgspec.json.encode(value).decode()}" for path, value in _leaves(values)) or "none"


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
