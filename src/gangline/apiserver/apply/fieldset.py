"""Sets of fields in the form Kubernetes writes them down: `FieldsV1`.

A set is a tree of nested dicts. A key names a field (`f:spec`), a list element by its key fields
(`k:{"name":"a"}`) or by its value (`v:"x"`). A node without children is a member; one with children is a member only
if it holds `"."`. The root is never a member, so `{}` is the empty set.

Sets are values: no function here changes its arguments, and results share parts with them. Never change one.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from gangline.schema.go_text import value_text

Fields: TypeAlias = dict[str, Any]
"""A set, or a node of one. Values are nodes again (a recursive alias is beyond mypy's reach here)."""

LEAF: Fields = {}
"""A member without children. Shared by all sets: it must stay empty."""

SELF = "."

_TEXT = msgspec.json.Encoder(order="sorted")
_ESCAPED = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def is_member(node: Fields) -> bool:
    return not node or SELF in node


def union(left: Fields, right: Fields) -> Fields:
    """What is in either."""
    if not left or not right:
        return left or right
    joined = dict(left)
    for key, node in right.items():
        joined[key] = _joined(joined[key], node) if key in joined else node
    return joined


def _joined(left: Fields, right: Fields) -> Fields:
    if left is right:
        return left
    if not left or not right:
        node = left or right
        return node if is_member(node) else {SELF: LEAF, **node}
    return union(left, right)


def difference(left: Fields, right: Fields) -> Fields:
    """What is in `left` and not in `right`. Members stay where only their parent is in `right`."""
    if not right:
        return left
    rest = dict(left)
    for key, node in right.items():
        if key in rest and key != SELF:
            _put(rest, key, _reduced(rest[key], node))
    return rest


def _reduced(left: Fields, right: Fields) -> Fields | None:
    """A node less another; None when nothing is left."""
    member = is_member(left) and not is_member(right)
    children = difference(left, right)
    return _node(children, member)


def _node(children: Fields, member: bool) -> Fields | None:
    """A node of these children (its own `"."` is ignored) and this membership."""
    if SELF in children and not member:
        children = {key: node for key, node in children.items() if key != SELF}
    elif member and children and SELF not in children:
        children = {SELF: LEAF, **children}
    if len(children) > (SELF in children):
        return children
    return LEAF if member else None


def _put(fields: Fields, key: str, node: Fields | None) -> None:
    if node is None:
        del fields[key]
    else:
        fields[key] = node


def without(left: Fields, right: Fields) -> Fields:
    """What is in `left`, less the members of `right` and all below them."""
    rest = dict(left)
    for key, node in right.items():
        if key in rest and key != SELF:
            if is_member(node):
                del rest[key]
            else:
                _put(rest, key, _node(without(rest[key], node), is_member(rest[key])))
    return rest


def intersection(left: Fields, right: Fields) -> Fields:
    """What is in both."""
    both: Fields = {}
    for key, node in left.items():
        other = right.get(key)
        if other is not None and key != SELF:
            kept = _node(intersection(node, other), is_member(node) and is_member(other))
            if kept is not None:
                both[key] = kept
    return both


def has(fields: Fields, *path: str) -> bool:
    """Whether the field at this path of keys (`"f:spec", "f:replicas"`) is a member."""
    for key in path:
        found = fields.get(key)
        if found is None:
            return False
        fields = found
    return is_member(fields)


def at(*path: str) -> Fields:
    """The set of one field."""
    fields = LEAF
    for key in reversed(path):
        fields = {key: fields}
    return fields


def paths(fields: Fields, prefix: str = "") -> Iterator[str]:
    """All members as Kubernetes prints them (`.spec.ports[port=80].name`): at each level first the members, sorted."""
    keys = sorted((key for key in fields if key != SELF), key=_rank)
    for key in keys:
        if is_member(fields[key]):
            yield prefix + shown(key)
    for key in keys:
        yield from paths(fields[key], prefix + shown(key))


def _rank(key: str) -> tuple[Any, ...]:
    kind, rest = key[0], key[2:]
    if kind == "f":
        return (0, rest)
    if kind == "k":
        return (
            1,
            [(name, isinstance(value, str), value) for name, value in sorted(json.loads(rest).items())],
        )
    value = json.loads(rest)
    return (2, isinstance(value, str), value)


def shown(key: str) -> str:
    """One step of a path as Kubernetes prints it."""
    kind, rest = key[0], key[2:]
    if kind == "f":
        return f".{rest}"
    if kind == "k":
        told = (f"{name}={value_text(value)}" for name, value in sorted(json.loads(rest).items()))
        return f"[{','.join(told)}]"
    return f"[={value_text(json.loads(rest))}]" if kind == "v" else f"[{rest}]"


def key_of(values: Mapping[str, Any]) -> str:
    """The key of a list element told apart by these fields."""
    return f"k:{_text(values)}"


def value_of(value: Any) -> str:
    """The key of an element of a set."""
    return f"v:{_text(value)}"


def _text(value: Any) -> str:
    """JSON as Go writes it: sorted, with the characters escaped that HTML minds."""
    return _TEXT.encode(value).decode().translate(_ESCAPED)


def decoded(fields: Any) -> Fields:
    """A set from what a client sent, its keys spelled as we spell them. Raises ValueError with the reason."""
    if fields is None:
        return {}
    return _decoded(fields)[0] or {}


def _decoded(node: Any) -> tuple[Fields, bool]:
    """Children, and whether the node says that it is a member."""
    if not isinstance(node, dict):
        raise ValueError(f"expected an object of fields, found {value_text(node)}")
    children: Fields = {}
    for key, value in node.items():
        if key == SELF:
            continue
        spelled = _spelled(key)
        if spelled is not None:
            below, member = _decoded(value)
            # Neither a member nor with children is what remains when all keys below are of an unknown kind.
            children[spelled] = {SELF: LEAF, **below} if member and below else below
    return children, SELF in node or not children


def _spelled(key: str) -> str | None:
    """The canonical form of a key; None for kinds that a later Kubernetes may know."""
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
    return key_of(value) if kind == "k" else value_of(value)
