"""The syntax tree of an expression.

Google's C++ parser reads the text: same grammar, same macros and nearly the same messages as kube-apiserver's. It
returns the tree as protobuf, which is decoded here. Its evaluator is not used: it copies the whole object for each
rule, does not know the types of schemas, and cannot be interrupted.
"""

import re
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec
from cel_expr_python import cel  # type: ignore[import-untyped]
from cel_expr_python.ext import ext_optional  # type: ignore[import-untyped]

from gangline.base.errors import InputError
from gangline.schema.protobuf import wire

_PARSER_ENV = cel.NewEnv(extensions=[ext_optional.ExtOptional()])
_CONSTANT_KINDS = {1: "null", 2: "bool", 3: "int", 4: "uint", 5: "double", 6: "string", 7: "bytes"}


class ExpressionError(InputError):
    """An expression has syntax or type errors. The message shows where."""


class ConstExpr(msgspec.Struct, frozen=True, eq=False):
    id: int
    kind: str
    value: Any


class IdentExpr(msgspec.Struct, frozen=True, eq=False):
    id: int
    name: str


class SelectExpr(msgspec.Struct, frozen=True, eq=False):
    id: int
    operand: "Expr"
    field: str
    test_only: bool
    """`has(a.b)` instead of `a.b`."""


class CallExpr(msgspec.Struct, frozen=True, eq=False):
    id: int
    function: str
    target: "Expr | None"
    args: "list[Expr]"


class ListExpr(msgspec.Struct, frozen=True, eq=False):
    id: int
    elements: "list[Expr]"
    optional_indices: frozenset[int]
    """Indices written as `?x`."""


class MapEntry(msgspec.Struct, frozen=True, eq=False):
    id: int
    key: "Expr"
    value: "Expr"
    optional: bool


class MapExpr(msgspec.Struct, frozen=True, eq=False):
    id: int
    message_name: str
    """The name in `Name{...}`; empty for maps."""
    entries: list[MapEntry]


class ComprehensionExpr(msgspec.Struct, frozen=True, eq=False):
    """A loop over a range with an accumulator: what macros expand to."""

    id: int
    iter_var: str
    iter_var2: str
    iter_range: "Expr"
    accu_var: str
    accu_init: "Expr"
    loop_condition: "Expr"
    loop_step: "Expr"
    result: "Expr"


Expr: TypeAlias = ConstExpr | IdentExpr | SelectExpr | CallExpr | ListExpr | MapExpr | ComprehensionExpr


class ParsedExpr(msgspec.Struct, frozen=True, eq=False):
    """A tree, and the position of each of its nodes in the text."""

    source: str
    root: Expr
    positions: dict[int, int]

    def located_error(self, node: int, sentence: str) -> str:
        """A message about a node, with its line and a mark below the position."""
        return located_error(self.source, self.positions.get(node, 0), sentence)


def located_error(source: str, offset: int, sentence: str) -> str:
    before = source[:offset]
    line = before.count("\n")
    column = offset - (before.rfind("\n") + 1)
    text = source.split("\n")[line] if source else ""
    dots = "".join("." if letter.isascii() else "\uff0e" for letter in text[:column])
    mark = "^" if column >= len(text) or text[column].isascii() else "\uff3e"
    return f"ERROR: <input>:{line + 1}:{column + 1}: {sentence}\n | {text}\n | {dots}{mark}"


@lru_cache(maxsize=512)  # A rule is parsed when its CRD is validated and when it is served.
def parse(source: str) -> ParsedExpr:
    """Parse an expression. Raises `ExpressionError`."""
    if "`" in source and (place := _backtick_offset(source)) is not None:
        raise ExpressionError(located_error(source, place, "unsupported syntax: '`'"))
    try:
        serialized = _PARSER_ENV.compile(source, disable_check=True).serialize()
    except RuntimeError as error:
        message = str(error).removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
        raise ExpressionError(_server_wording(message)) from None
    tree, positions = b"", {}
    for number, value in _message_fields(_first_field(serialized, 2)):
        if number == 2:
            tree = value
        elif number == 3:
            positions = dict(_read_position(entry) for key, entry in _message_fields(value) if key == 4)
    root = _read_expression(tree)
    for node in walk(root):
        if isinstance(node, MapExpr) and node.message_name:
            positions[node.id] += len(node.message_name)
    return ParsedExpr(source, root, positions)


def _server_wording(message: str) -> str:
    """A message of the C++ parser in the words of kube-apiserver's, where they differ."""
    message = message.replace("has() argument must be a field selection", "invalid argument to has() macro")
    return re.sub(r"\w+\(\) variable name must be a simple identifier", "argument is not an identifier", message)


def _backtick_offset(source: str) -> int | None:
    """The position of the first quoted identifier, which newer CEL has and kube-apiserver does not; None without one."""
    quote, index = "", 0
    while index < len(source):
        letter = source[index]
        if quote:
            if letter == "\\":
                index += 1
            elif letter == quote:
                quote = ""
        elif letter in "'\"":
            quote = letter
        elif letter == "`":
            return index
        index += 1
    return None


def children(node: Expr) -> list[Expr]:
    """The nodes directly inside, in the order of evaluation."""
    match node:
        case SelectExpr():
            return [node.operand]
        case CallExpr():
            return [*([node.target] if node.target is not None else []), *node.args]
        case ListExpr():
            return list(node.elements)
        case MapExpr():
            return [part for entry in node.entries for part in (entry.key, entry.value)]
        case ComprehensionExpr():
            return [node.iter_range, node.accu_init, node.loop_condition, node.loop_step, node.result]
        case _:
            return []


def walk(node: Expr) -> Iterator[Expr]:
    """The node and all nodes inside."""
    yield node
    for child in children(node):
        yield from walk(child)


def _message_fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protobuf message by number: varints as int, all others as bytes."""
    position, end = 0, len(data)
    while position < end:
        tag, position = wire.read_varint(data, position, end)
        match tag & 7:
            case wire.VARINT:
                value, position = wire.read_varint(data, position, end)
                yield tag >> 3, value
            case wire.FIXED64:
                stop = wire.fixed_end(position, end, 8)
                yield tag >> 3, data[position:stop]
                position = stop
            case wire.BYTES:
                start, position = wire.block_bounds(data, position, end)
                yield tag >> 3, data[start:position]
            case kind:
                raise ExpressionError(f"unknown kind {kind} of field in a parsed expression")


def _first_field(data: bytes, number: int) -> bytes:
    return next((value for key, value in _message_fields(data) if key == number), b"")


def _read_position(entry: bytes) -> tuple[int, int]:
    fields = dict(_message_fields(entry))
    return fields.get(1, 0), fields.get(2, 0)


def _read_expression(data: bytes) -> Expr:
    number, kind, node = 0, 0, b""
    for key, value in _message_fields(data):
        if key == 2:
            number = value
        else:
            kind, node = key, value
    parts = list(_message_fields(node))
    match kind:
        case 3:
            return _read_constant(number, parts)
        case 4:
            return IdentExpr(number, _field_text(parts, 1))
        case 5:
            return SelectExpr(
                number, _read_expression(_field_bytes(parts, 1)), _field_text(parts, 2), bool(dict(parts).get(3))
            )
        case 6:
            target = _field_bytes(parts, 1)
            args = [_read_expression(value) for key, value in parts if key == 3]
            return expand_macro(
                CallExpr(number, _field_text(parts, 2), _read_expression(target) if target else None, args)
            )
        case 7:
            elements = [_read_expression(value) for key, value in parts if key == 1]
            return ListExpr(number, elements, frozenset(_packed_indices(_field_bytes(parts, 2))))
        case 8:
            return MapExpr(number, _field_text(parts, 1), [_read_map_entry(value) for key, value in parts if key == 2])
    inner = [_read_expression(_field_bytes(parts, key)) for key in (2, 4, 5, 6, 7)]
    return ComprehensionExpr(
        number, _field_text(parts, 1), _field_text(parts, 8), inner[0], _field_text(parts, 3), *inner[1:]
    )


def _read_constant(number: int, parts: list[tuple[int, Any]]) -> ConstExpr:
    key, value = parts[0]
    kind = _CONSTANT_KINDS[key]
    match kind:
        case "null":
            value = None
        case "bool":
            value = bool(value)
        case "int":
            value = wire.to_signed(value, 64)
        case "double":
            value = struct.unpack("<d", value)[0]
        case "string":
            value = value.decode()
    return ConstExpr(number, kind, value)


def _field_bytes(parts: list[tuple[int, Any]], number: int) -> bytes:
    return next((value for key, value in parts if key == number), b"")


def _field_text(parts: list[tuple[int, Any]], number: int) -> str:
    return _field_bytes(parts, number).decode()


def _packed_indices(packed: bytes) -> Iterator[int]:
    position = 0
    while position < len(packed):
        index, position = wire.read_varint(packed, position, len(packed))
        yield index


def _read_map_entry(data: bytes) -> MapEntry:
    parts = list(_message_fields(data))
    fields = dict(parts)
    name = _field_text(parts, 2)
    key: Expr = ConstExpr(fields.get(1, 0), "string", name) if 2 in fields else _read_expression(fields[3])
    return MapEntry(fields.get(1, 0), key, _read_expression(fields[4]), bool(fields.get(5)))


_ACCUMULATOR_NAME = "@result"


def expand_macro(call: CallExpr) -> Expr:
    """A macro with two variables as a comprehension: `m.all(k, v, …)`, `transformMap` and others.

    The parser leaves these macros as calls. Any other call is returned as it is.
    """
    sizes = {
        "all": 3,
        "exists": 3,
        "existsOne": 3,
        "transformList": (3, 4),
        "transformMap": (3, 4),
        "transformMapEntry": (3, 4),
    }
    size = sizes.get(call.function)
    if call.target is None or size is None or len(call.args) not in (size if isinstance(size, tuple) else (size,)):
        return call
    first, second, *arguments = call.args
    if not (isinstance(first, IdentExpr) and isinstance(second, IdentExpr)):
        return call
    return _two_variable_comprehension(call, call.target, first.name, second.name, arguments)


def _two_variable_comprehension(
    call: CallExpr, target: Expr, first: str, second: str, arguments: list[Expr]
) -> ComprehensionExpr:
    node_id = call.id
    accumulator = IdentExpr(node_id, _ACCUMULATOR_NAME)
    yes: Expr = ConstExpr(node_id, "bool", value=True)

    def call_of(function: str, *args: Expr) -> CallExpr:
        return CallExpr(node_id, function, None, list(args))

    start: Expr
    condition: Expr = yes
    result: Expr = accumulator
    step: Expr
    last = arguments[-1]
    match call.function:
        case "all":
            start, step = yes, call_of("_&&_", accumulator, last)
            condition = call_of("@not_strictly_false", accumulator)
        case "exists":
            start, step = ConstExpr(node_id, "bool", value=False), call_of("_||_", accumulator, last)
            condition = call_of("@not_strictly_false", call_of("!_", accumulator))
        case "existsOne":
            number_one = ConstExpr(node_id, "int", 1)
            start = ConstExpr(node_id, "int", 0)
            step = call_of("_?_:_", last, call_of("_+_", accumulator, number_one), accumulator)
            result = call_of("_==_", accumulator, number_one)
        case "transformList":
            start, step = (
                ListExpr(node_id, [], frozenset()),
                call_of("_+_", accumulator, ListExpr(node_id, [last], frozenset())),
            )
        case "transformMap":
            start, step = (
                MapExpr(node_id, "", []),
                call_of("cel.@mapInsert", accumulator, IdentExpr(node_id, first), last),
            )
        case _:
            start, step = MapExpr(node_id, "", []), call_of("cel.@mapInsert", accumulator, last)
    if len(arguments) == 2:
        step = call_of("_?_:_", arguments[0], step, accumulator)
    return ComprehensionExpr(node_id, first, second, target, _ACCUMULATOR_NAME, start, condition, step, result)
