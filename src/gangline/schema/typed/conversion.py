"""What Go says of an object that does not fit into its type when it is a map already, as after a strategic patch.

kube-apiserver then converts without JSON, in other words than its decoder's (`strict_decoding`).
"""

from collections.abc import Iterator
from typing import Any

from gangline.schema.typed import scalars
from gangline.schema.typed.types import TypeNode, TypeShape

_KINDS = {str: "string", bool: "bool", int: "int64", float: "float64", list: "slice", dict: "map"}
_GO_KINDS = {"integer": "int64", "number": "float64", "boolean": "bool", "string": "string"}
_RESTORED = {TypeShape.LIST: "slice from", TypeShape.MAP: "map from", TypeShape.OBJECT: "struct from:"}


def conversion_error(obj: Any, tree: TypeNode) -> str:
    """The first value that does not fit into its type; empty when all do."""
    return next(_value_errors(obj, tree), "")


def _value_errors(value: Any, tree: TypeNode) -> Iterator[str]:
    if value is None or tree.shape is TypeShape.ANY:
        return
    if tree.shape is TypeShape.SCALAR:
        if problem := scalars.scalar_error(value, tree, "", ""):
            yield _scalar_text(value, tree) or problem
        return
    if tree.shape is TypeShape.LIST and isinstance(value, list):
        inside = [(item, tree.element) for item in value]
    elif tree.shape is TypeShape.LIST or not isinstance(value, dict):
        yield f"cannot restore {_RESTORED[tree.shape]} {_KINDS[value.__class__]}"
        return
    elif tree.shape is TypeShape.MAP:
        inside = [(item, tree.element) for item in value.values()]
    else:
        inside = [(value[name], field) for name, field in tree.fields.items() if name in value]
    for item, item_type in inside:
        yield from _value_errors(item, item_type)


def _scalar_text(value: Any, tree: TypeNode) -> str:
    """What is said of a plain scalar; empty for types with a JSON of their own, such as times and quantities."""
    go_kind = _GO_KINDS.get(tree.scalar, "")
    if not go_kind:
        return ""
    go_type = tree.go_type or go_kind
    # Go converts between numbers, and from an integer to a letter. The kind is checked only where it would convert.
    if value.__class__ in (int, float) and go_kind in ("int64", "float64"):
        return f"cannot convert {_KINDS[value.__class__]} to {go_type}"
    if value.__class__ is int and go_kind == "string":
        return f"cannot convert int64 to {go_type}"
    kind = go_type if go_kind == "int64" else go_kind
    return f"unrecognized type: {kind}"
