"""Checks an applied configuration against its type: declared fields, types of values, unique elements."""

from collections.abc import Iterator
from typing import Any

from gangline.api.meta import JSON
from gangline.apiserver.apply.fieldset import path_element_text
from gangline.apiserver.apply.walker import ListWalker, walker_of
from gangline.apiserver.patch.json_patch import go_value_text
from gangline.schema.go_text import quoted_text
from gangline.schema.typed.types import UNTYPED_DEDUCED, TypeNode, TypeShape

_SCALAR_CLASSES: dict[str, tuple[str, tuple[type, ...]]] = {
    "string": ("string", (str,)),
    "byte": ("string", (str,)),
    "integer": ("numeric (int or float)", (int, float)),
    "number": ("numeric (int or float)", (int, float)),
    "boolean": ("boolean", (bool,)),
}


def schema_errors(applied: JSON, tree: TypeNode) -> str:
    """The errors in structured-merge-diff's words; empty if there are none."""
    errors = list(_value_errors(applied, tree, ""))
    if len(errors) > 1:
        return "\n".join(["errors:", *(f"  {line}" for line in errors)])
    return errors[0] if errors else ""


def _value_errors(value: Any, tree: TypeNode, path: str) -> Iterator[str]:
    if value is None or tree.shape is TypeShape.ANY:
        return
    if tree.shape is TypeShape.SCALAR:
        yield from _scalar_errors(value, tree, path)
    elif tree.shape is TypeShape.LIST:
        yield from _list_errors(value, tree, path)
    elif not isinstance(value, dict):
        yield f"{path}: expected map, got {_go_wrapped(value)}"
    else:
        for name, item in value.items():
            below = tree.field_type(name)
            if below is None and tree.fields:
                yield f"{path}.{name}: field not declared in schema"
                return  # only the first is reported, as in Kubernetes
            yield from _value_errors(item, below or UNTYPED_DEDUCED, f"{path}.{name}")


def _list_errors(value: Any, tree: TypeNode, path: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path}: expected list, got {_go_wrapped(value)}"
        return
    walker = walker_of(tree)
    labels: set[str] = set()
    for index, item in enumerate(value):
        step = f"[{index}]"
        if isinstance(walker, ListWalker):
            try:
                label = walker.label(item)
            except ValueError as error:
                yield f"{path}: element {index}: {error}"
                return
            step = path_element_text(label)
            if label in labels:
                yield f"{path}: duplicate entries for key {step}"
            labels.add(label)
        yield from _value_errors(item, tree.element, path + step)


def _scalar_errors(value: Any, tree: TypeNode, path: str) -> Iterator[str]:
    expected, classes = _SCALAR_CLASSES.get(tree.scalar, ("any scalar", (str, int, float, bool)))
    if isinstance(value, classes) and (bool in classes or not isinstance(value, bool)):
        return
    if expected == "string":
        yield f"{path}: expected string, got &value.valueUnstructured{{Value:{_go_syntax(value)}}}"
    elif expected.startswith("numeric"):
        yield f"{path}: expected numeric (int or float), got {_go_type(value)}"
    else:
        yield f"{path}: expected {expected}, got {_go_wrapped(value)}"


def _go_wrapped(value: Any) -> str:
    """A wrapped value as Go prints it."""
    return f"&{{{go_value_text(value)}}}"


def _go_syntax(value: Any) -> str:
    """A value as Go source."""
    if isinstance(value, dict):
        members = ", ".join(f'"{key}":{_go_syntax(value[key])}' for key in sorted(value))
        return f"map[string]interface {{}}{{{members}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_go_syntax, value))}}}"
    if value is None:
        return "interface {}(nil)"
    return quoted_text(value) if isinstance(value, str) else go_value_text(value)


def _go_type(value: Any) -> str:
    names: dict[type, str] = {str: "string", bool: "bool", dict: "map[string]interface {}", list: "[]interface {}"}
    return names.get(type(value), "float64")
