"""Sets of fields in Kubernetes' `FieldsV1` form.

A set is a tree of nested dicts. A key names a field (`f:spec`), a list element by its key fields (`k:{"name":"a"}`)
or by its value (`v:"x"`). A node without children is a member; a node with children is a member only if it holds
`"."`. The root is never a member, so `{}` is the empty set.

Sets are immutable values: no function here changes its arguments, and results share parts with them.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from gangline.schema.go_text import value_text

FieldSet: TypeAlias = dict[str, Any]
"""A set, or a node of a set. Values are nodes again (mypy cannot express the recursive alias here)."""

LEAF: FieldSet = {}
"""A member without children. Shared by all sets, so it must stay empty."""

SELF = "."

_SORTED_ENCODER = msgspec.json.Encoder(order="sorted")
_HTML_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def is_member(node: FieldSet) -> bool:
    return not node or SELF in node


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """The members of either set."""
    if not left or not right:
        return left or right
    joined = dict(left)
    for key, node in right.items():
        joined[key] = _node_union(joined[key], node) if key in joined else node
    return joined


def _node_union(left: FieldSet, right: FieldSet) -> FieldSet:
    if left is right:
        return left
    if not left or not right:
        node = left or right
        return node if is_member(node) else {SELF: LEAF, **node}
    return union(left, right)


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """The members of `left` that are not in `right`. A member stays if only its parent is in `right`."""
    if not right:
        return left
    rest = dict(left)
    for key, node in right.items():
        if key in rest and key != SELF:
            _set_node(rest, key, _node_difference(rest[key], node))
    return rest


def _node_difference(left: FieldSet, right: FieldSet) -> FieldSet | None:
    """The difference of two nodes; None if it is empty."""
    member = is_member(left) and not is_member(right)
    children = difference(left, right)
    return _make_node(children, member)


def _make_node(children: FieldSet, member: bool) -> FieldSet | None:
    """A node with these children and this membership. A `"."` in `children` is ignored."""
    if SELF in children and not member:
        children = {key: node for key, node in children.items() if key != SELF}
    elif member and children and SELF not in children:
        children = {SELF: LEAF, **children}
    if len(children) > (SELF in children):
        return children
    return LEAF if member else None


def _set_node(fields: FieldSet, key: str, node: FieldSet | None) -> None:
    if node is None:
        del fields[key]
    else:
        fields[key] = node


def recursive_difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """The members of `left` without the members of `right` and everything below those."""
    rest = dict(left)
    for key, node in right.items():
        if key in rest and key != SELF:
            if is_member(node):
                del rest[key]
            else:
                _set_node(rest, key, _make_node(recursive_difference(rest[key], node), is_member(rest[key])))
    return rest


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    """The members of both sets."""
    both: FieldSet = {}
    for key, node in left.items():
        other = right.get(key)
        if other is not None and key != SELF:
            shared = _make_node(intersection(node, other), is_member(node) and is_member(other))
            if shared is not None:
                both[key] = shared
    return both


def has_field(fields: FieldSet, *path: str) -> bool:
    """Whether the field at this path of keys (`"f:spec", "f:replicas"`) is a member."""
    for key in path:
        node = fields.get(key)
        if node is None:
            return False
        fields = node
    return is_member(fields)


def path_set(*path: str) -> FieldSet:
    """The set of one field, given by its path of keys."""
    fields = LEAF
    for key in reversed(path):
        fields = {key: fields}
    return fields


def field_paths(fields: FieldSet, prefix: str = "") -> Iterator[str]:
    """The paths of all members as Kubernetes prints them (`.spec.ports[port=80].name`).

    Sorted; at each level the members come first.
    """
    keys = sorted((key for key in fields if key != SELF), key=_key_order)
    for key in keys:
        if is_member(fields[key]):
            yield prefix + path_element_text(key)
    for key in keys:
        yield from field_paths(fields[key], prefix + path_element_text(key))


def _key_order(key: str) -> tuple[Any, ...]:
    kind, rest = key[0], key[2:]
    if kind == "f":
        return (0, rest)
    if kind == "k":
        return (1, [(name, isinstance(value, str), value) for name, value in sorted(json.loads(rest).items())])
    value = json.loads(rest)
    return (2, isinstance(value, str), value)


def path_element_text(key: str) -> str:
    """One step of a path as Kubernetes prints it."""
    kind, rest = key[0], key[2:]
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        parts = (f"{name}={value_text(value)}" for name, value in sorted(json.loads(rest).items()))
        return f"[{','.join(parts)}]"
    return f"[={value_text(json.loads(rest))}]" if kind == "v" else f"[{rest}]"


def key_path_element(values: Mapping[str, Any]) -> str:
    """The set key of a list element that is identified by these fields."""
    return f"k:{_go_json(values)}"


def value_path_element(value: Any) -> str:
    """The set key of a list element that is identified by its value."""
    return f"v:{_go_json(value)}"


def _go_json(value: Any) -> str:
    """JSON as Go encodes it: keys sorted, HTML characters escaped."""
    return _SORTED_ENCODER.encode(value).decode().translate(_HTML_ESCAPES)


def decode_field_set(fields: Any) -> FieldSet:
    """The set in fieldsV1 that a client sent, with canonical keys. Raises `ValueError` with the reason."""
    if fields is None:
        return {}
    return _decode_node(fields)[0] or {}


def _decode_node(node: Any) -> tuple[FieldSet, bool]:
    """The children of a node, and whether the node is a member."""
    if not isinstance(node, dict):
        raise ValueError(f"expected an object of fields, found {value_text(node)}")
    children: FieldSet = {}
    for key, value in node.items():
        if key == SELF:
            continue
        canonical = _canonical_key(key)
        if canonical is not None:
            below, member = _decode_node(value)
            # A node that is no member and has no children remains if all keys below it are of an unknown kind.
            children[canonical] = {SELF: LEAF, **below} if member and below else below
    return children, SELF in node or not children


def _canonical_key(key: str) -> str | None:
    """The canonical form of a key; None for kinds of keys that a later Kubernetes may add."""
    if len(key) < 2:
        raise ValueError("key must be 2 characters long:")
    if key[1] != ":":
        raise ValueError(f"missing colon: {key}")
    kind, rest = key[0], key[2:]
    if kind == "f":
        return key
    if kind == "i":
        return f"i:{int(rest)}"
    if kind not in "kv":
        return None
    try:
        value = msgspec.json.decode(rest)
    except msgspec.DecodeError as error:
        raise ValueError(f"bad key {key}: {error}") from error
    if kind == "k" and not isinstance(value, dict):
        raise ValueError(f"bad key {key}: not an object")
    return key_path_element(value) if kind == "k" else value_path_element(value)
