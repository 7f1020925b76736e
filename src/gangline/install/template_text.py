"""Writes a tree of nodes as text: a Helm template, or plain YAML where the tree depends on nothing.

What Helm makes of the text is what `gangline.install.evaluate` makes of the tree; a test plays random values through both.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import yaml

from gangline.install.evaluate import own_keys
from gangline.install.nodes import (
    Above,
    AppVersion,
    Both,
    Condition,
    Contains,
    Either,
    Equal,
    Extended,
    FileField,
    FileText,
    ForEach,
    Item,
    Joined,
    Matches,
    Named,
    Node,
    Not,
    Note,
    NumberText,
    OneOf,
    ReleaseField,
    Required,
    Shortened,
    Spread,
    Text,
    Value,
    When,
)
from gangline.install.value_fields import value_type

_MAX_LINE = 110
_PLAIN = re.compile(r"(?:--)?[A-Za-z/][\w./:@=%-]*(?: [\w./@=%-]+)*")
_FUNCTIONS = {"string": " | quote", "integer": " | int", "boolean": "", "scalar": " | toYaml"}


def documents_text(nodes: Iterable[Node]) -> str:
    """Objects as the documents of one file."""
    return "\n".join(_documents(nodes, ".")) + "\n"


def plain_text(nodes: Iterable[Node]) -> str:
    """Objects that depend on nothing, as the documents of a file that is no template."""
    return "\n".join(_documents(nodes, "")) + "\n"


def definitions_text(nodes: Iterable[Named]) -> str:
    """The named templates that the nodes use, as a file of helpers."""
    return "\n".join("\n".join([*_definition(named), ""]) for named in nodes)


def requirements_text(requirements: Iterable[Required]) -> str:
    """A template that fails with the message of a requirement that is not met."""
    lines = (
        line
        for one in requirements
        for line in (
            _action(f"if not {_argument_condition(one.condition, '.')}"),
            _action(f"fail {json.dumps(one.message)}"),
            _action("end"),
        )
    )
    return "\n".join(lines) + "\n"


def named_nodes(nodes: Iterable[Any]) -> dict[str, Named]:
    """All named nodes in a tree by their names, those that others use before them."""
    found: dict[str, Named] = {}
    for node in nodes:
        if isinstance(node, Mapping):
            found |= named_nodes(node.values())
        elif isinstance(node, Sequence) and not isinstance(node, str):
            found |= named_nodes(node)
        elif hasattr(node, "__dataclass_fields__"):
            found |= named_nodes(vars(node).values())
        if isinstance(node, Named):
            found.setdefault(node.name, node)
    return found


def _definition(named: Named) -> Iterator[str]:
    yield f'{{{{- define "{named.name}" -}}}}'
    if _is_mapping(named):
        yield from _block(named.node, 0, ".")
        yield _action("end")
    else:
        yield from _body(named.node)
        yield "{{- end -}}"


def _body(node: Node) -> Iterator[str]:
    """The text of a named string: without any space around its parts."""
    if isinstance(node, Text) and any(isinstance(part, Either) and not _is_default(part) for part in node.parts):
        for part in node.parts:
            yield from _body(part)
    elif isinstance(node, Either) and not _is_default(node):
        yield f"{{{{- if {_condition(node.condition, '.')} -}}}}"
        yield from _body(node.node)
        if node.otherwise != "":
            yield "{{- else -}}"
            yield from _body(node.otherwise)
        yield "{{- end -}}"
    else:
        yield f"{{{{- {_expression(node, '.')} -}}}}"


def _documents(nodes: Iterable[Node], root: str) -> Iterator[str]:
    for condition, group in groupby(nodes, _condition_of):
        if condition is None:
            yield from (line for node in group for line in _document(node, root))
        else:
            yield from _conditional(condition, _documents(map(_unconditional, group), root), 0, root)


def _document(node: Node, root: str) -> Iterator[str]:
    match node:
        case ForEach(items, inners):
            yield _action(f"range $item := {_expression(items, root)}")
            yield from _documents(inners, "$")
            yield _action("end")
        case Spread(items):
            yield from (_action(f"range {_expression(items, root)}"), "---", "{{ toYaml . }}", _action("end"))
        case _:
            yield "---"
            yield from _block(node, 0, root)


def _block(node: Node, indent: int, root: str) -> Iterator[str]:
    """A mapping or a list as lines."""
    match node:
        case Mapping():
            yield from _entries(node, indent, root)
        case Extended(own, extra):
            for mapping in own:
                yield from _block(mapping, indent, root)
            yield from _extra_entries(node, extra, indent, root)
        case Named(name, _):
            yield _action(f"include {json.dumps(name)} {root} | nindent {indent}", indent)
        case Value():
            yield _action(f"toYaml {_expression(node, root)} | nindent {indent}", indent)
        case FileField(file, key):
            field = f"({_file(file, root)} | fromYaml).{key}"
            yield _action(f"{field} | toYaml | nindent {indent}", indent)
        case Sequence():
            for condition, items in groupby(node, _condition_of):
                lines = (line for item in items for line in _item(_unconditional(item), indent, root))
                yield from lines if condition is None else _conditional(condition, lines, indent, root)
        case _:
            raise TypeError(f"no block: {node}")


def _extra_entries(node: Extended, extra: Sequence[Value], indent: int, root: str) -> Iterator[str]:
    pad = " " * indent
    keys = " ".join(json.dumps(key) for mapping in node.own for key in sorted(own_keys(mapping)))
    for at, value in enumerate(extra):
        others = f"omit {_expression(value, root)} {keys}"
        if not at:
            yield _action(f"with {others}", indent)
            yield _action(f"toYaml . | nindent {indent}", indent)
            yield _action("end", indent)
            continue
        earlier = " ".join(f"(hasKey {_expression(one, '$')} $key)" for one in extra[:at])
        earlier = earlier if at == 1 else f"(or {earlier})"
        yield _action(f"range $key, $text := {others}", indent)
        yield _action(f"if not {earlier}", indent)
        yield f"{pad}{{{{ $key | quote }}}}: {{{{ $text | quote }}}}"
        yield _action("end", indent)
        yield _action("end", indent)


def _entries(node: Mapping[str, Node], indent: int, root: str) -> Iterator[str]:
    """Neighbours that have the same condition share it."""
    for condition, entries in groupby(node.items(), lambda entry: _condition_of(entry[1])):
        lines = (line for key, inner in entries for line in _entry(key, _unconditional(inner), indent, root))
        yield from lines if condition is None else _conditional(condition, lines, indent, root)


def _conditional(condition: Condition, lines: Iterable[str], indent: int, root: str) -> Iterator[str]:
    yield _action(f"if {_condition(condition, root)}", indent)
    yield from lines
    yield _action("end", indent)


def _unconditional(node: Node) -> Node:
    return node.node if isinstance(node, When) else node


def _condition_of(node: Node) -> Condition | None:
    return node.condition if isinstance(node, When) else None


def _entry(key: str, node: Node, indent: int, root: str) -> Iterator[str]:
    pad, name = " " * indent, _literal(key)
    match node:
        case When(condition, inner):
            yield from _conditional(condition, _entry(key, inner, indent, root), indent, root)
        case Either(condition, inner, otherwise) if not _is_default(node) or not _is_scalar(inner):
            yield _action(f"if {_condition(condition, root)}", indent)
            yield from _entry(key, inner, indent, root)
            yield _action("else", indent)
            yield from _entry(key, otherwise, indent, root)
            yield _action("end", indent)
        case Note(text, inner):
            yield f"{pad}# {text}"
            yield from _entry(key, inner, indent, root)
        case FileText(file):
            yield f"{pad}{name}: |"
            yield _action(f"{_file(file, root)} | nindent {indent + 2}", indent + 2)
        case _ if _is_scalar(node):
            yield from _scalar_lines(f"{pad}{name}: ", node, indent, root)
        case _:
            flow = _flow(node)
            if flow is not None and len(pad) + len(name) + len(flow) < _MAX_LINE:
                yield f"{pad}{name}: {flow}"
            else:
                yield f"{pad}{name}:"
                yield from _block(node, indent + 2, root)


def _item(node: Node, indent: int, root: str) -> Iterator[str]:
    pad = " " * indent
    match node:
        case When(condition, inner):
            yield from _conditional(condition, _item(inner, indent, root), indent, root)
        case Either(condition, inner, otherwise) if not _is_default(node):
            yield _action(f"if {_condition(condition, root)}", indent)
            yield from _item(inner, indent, root)
            yield _action("else", indent)
            yield from _item(otherwise, indent, root)
            yield _action("end", indent)
        case ForEach(items, inners):
            yield _action(f"range $item := {_expression(items, root)}", indent)
            yield from _block(inners, indent, "$")
            yield _action("end", indent)
        case Spread(items):
            yield _action(f"with {_expression(items, root)}", indent)
            yield _action(f"toYaml . | nindent {indent}", indent)
            yield _action("end", indent)
        case Note(text, inner):
            yield f"{pad}# {text}"
            yield from _item(inner, indent, root)
        case _ if _is_scalar(node):
            yield from _scalar_lines(f"{pad}- ", node, indent, root)
        case _:
            first, *others = _block(node, indent + 2, root)
            if first.lstrip().startswith(("{{", "#")):
                raise TypeError(f"the first line of an item depends on values: {first}")
            yield f"{pad}- {first.lstrip()}"
            yield from others


def _action(text: str, indent: int = 0) -> str:
    return f"{' ' * indent}{{{{- {text} }}}}"


def _is_mapping(node: Node) -> bool:
    while isinstance(node, Named):
        node = node.node
    return isinstance(node, Mapping | Extended)


def _is_scalar(node: Node) -> bool:
    match node:
        case Value(path):
            return value_type(path) in _FUNCTIONS
        case Named(_, inner) | Note(_, inner):
            return _is_scalar(inner)
        case Mapping() | Extended() | FileField() | FileText():
            return False
        case str() | bool() | int():
            return True
        case Sequence():
            return False
        case _:
            return True


def _is_default(node: Either) -> bool:
    """Whether it is a value or, where that is empty, something else."""
    return isinstance(node.condition, Value) and node.condition == node.node


def _scalar_lines(start: str, node: Node, indent: int, root: str) -> Iterator[str]:
    if not isinstance(node, str) or "\n" not in node.strip("\n") or node[0].isspace() or node.endswith("\n\n"):
        yield start + _scalar(node, root)
        return
    yield start + ("|" if node.endswith("\n") else "|-")
    yield from (f"{' ' * (indent + 2)}{line}".rstrip(" ") for line in node.removesuffix("\n").split("\n"))


def _scalar(node: Node, root: str) -> str:
    if isinstance(node, str) and root and "{{" in node:
        raise TypeError(f"Helm would take this for a template: {node}")
    if isinstance(node, bool | int | str):
        return _literal(node)
    function = _FUNCTIONS[value_type(node.path)] if isinstance(node, Value) else " | quote"
    return f"{{{{ {_expression(node, root)}{function} }}}}"


def _literal(value: str | bool | int) -> str:
    """A scalar of YAML. Strings are quoted unless nobody could take them for something else."""
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and yaml.safe_load(value) == value and not value.endswith(":"):
        return value
    return json.dumps(value, ensure_ascii=False)


def _flow(node: Node) -> str | None:
    """A short list of literals, or an empty collection, on one line."""
    if isinstance(node, Mapping) and not node:
        return "{}"
    if isinstance(node, Sequence) and all(isinstance(item, str | int) and "\n" not in str(item) for item in node):
        return f"[{', '.join(_literal(item) for item in node if isinstance(item, str | int))}]"
    return None


def _expression(node: Node, root: str) -> str:
    """A node as an expression of Go's templates."""
    here = "" if root == "." else root
    match node:
        case str():
            return json.dumps(node, ensure_ascii=False)
        case Value(path):
            return f"{here}.Values.{path}"
        case ReleaseField(name):
            return f"{here}.Release.{name.capitalize()}"
        case AppVersion():
            return f"{here}.Chart.AppVersion"
        case Item():
            return "$item"
        case Text(parts):
            form = "".join(part.replace("%", "%%") if isinstance(part, str) else "%s" for part in parts)
            return " ".join(
                ["printf", json.dumps(form), *(_argument(part, root) for part in parts if not isinstance(part, str))]
            )
        case Joined(items):
            return f'join "," {_expression(items, root)}'
        case NumberText(number):
            return f"int {_expression(number, root)} | toString"
        case Shortened(text, length):
            return f'{_expression(text, root)} | trunc {length} | trimSuffix "-"'
        case Named(name, _):
            return f"include {json.dumps(name)} {root}"
        case Either(_, inner, otherwise) if _is_default(node):
            return f"default {_argument(otherwise, root)} {_expression(inner, root)}"
        case _:
            raise TypeError(f"no expression: {node}")


def _argument(node: Node, root: str) -> str:
    text = _expression(node, root)
    return f"({text})" if " " in text and not isinstance(node, str) else text


def _condition(condition: Condition, root: str) -> str:
    match condition:
        case Value():
            return _expression(condition, root)
        case Not(inner):
            return f"not {_argument_condition(inner, root)}"
        case Both(first, second):
            return f"and {_argument_condition(first, root)} {_argument_condition(second, root)}"
        case OneOf(first, second):
            return f"or {_argument_condition(first, root)} {_argument_condition(second, root)}"
        case Equal(node, text):
            return f"eq {_argument(node, root)} {json.dumps(text)}"
        case Contains(text, part):
            return f"contains {_argument(part, root)} {_argument(text, root)}"
        case Matches(node, pattern):
            return f"regexMatch {json.dumps(pattern)} {_argument(node, root)}"
        case Above(number, limit):
            return f"gt (int {_expression(number, root)}) {limit}"


def _argument_condition(condition: Condition, root: str) -> str:
    text = _condition(condition, root)
    return f"({text})" if " " in text else text


def _file(name: str, root: str) -> str:
    return f'{"" if root == "." else root}.Files.Get "files/{name}"'
