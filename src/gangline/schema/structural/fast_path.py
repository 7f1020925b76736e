"""Whether a value is certainly valid: one compiled function per schema, for the many objects that are.

False means "validate carefully": the walk of `validation.py` then decides and reports problems. Rare or odd cases
return False here, which keeps the fast path simple.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from gangline.schema.nodes import SchemaNode
from gangline.schema.regex import Re2Pattern

ValuePredicate: TypeAlias = Callable[[Any], bool]
_PYTHON_TYPES: dict[str, type] = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list}
_NUMBER_TYPES = (int, float)
_UNCHECKED_KEYWORDS = frozenset(
    {"type", "description", "title", "default", "format", "nullable", "example", "externalDocs"}
)


def compile_check(node: SchemaNode) -> ValuePredicate:
    """A function that returns whether a value is certainly valid, by list types and embedded resources, too."""
    check = _node_check(node)
    if isinstance(check, type):
        return lambda value: value.__class__ is check
    return check


def _node_check(node: SchemaNode) -> ValuePredicate | type:
    """The check of a node. A class stands for "exactly of this class", which callers test without a call."""
    plain = _PYTHON_TYPES.get(node.type)
    if plain in (str, int, bool) and not node.nullable and node.format_check is None and _has_only_type(node):
        return plain
    checks = _node_checks(node)
    if node.nullable and not node.enum:
        inner = _conjunction(checks)
        return lambda value: value is None or inner(value)
    return _conjunction(checks)


def _has_only_type(node: SchemaNode) -> bool:
    return not node.int_or_string and all(name in _UNCHECKED_KEYWORDS or name.startswith("x-") for name in node.schema)


def _conjunction(checks: list[ValuePredicate]) -> ValuePredicate:
    if not checks:
        return lambda value: True
    if len(checks) == 1:
        return checks[0]
    first, *rest = checks
    then = _conjunction(rest)
    return lambda value: first(value) and then(value)


def _node_checks(node: SchemaNode) -> list[ValuePredicate]:
    if node.embedded:
        return [_embedded_check(node)]
    checks: list[ValuePredicate] = []
    if node.int_or_string:
        checks.append(lambda value: value.__class__ is str or value.__class__ is int)
    elif node.type == "object" or (
        not node.type and (node.properties or node.has_additional_properties or node.required)
    ):
        checks.append(_object_check(node))
    elif node.type == "array":
        checks.append(_array_check(node))
    elif node.type == "number":
        checks.append(lambda value: value.__class__ is float or value.__class__ is int)
    elif node.type:
        kind = _PYTHON_TYPES.get(node.type, object)
        checks.append(lambda value: value.__class__ is kind)
    return checks + _bound_checks(node) + _junctor_checks(node)


def _bound_checks(node: SchemaNode) -> list[ValuePredicate]:
    keyword = node.schema.get
    checks: list[ValuePredicate] = []
    if node.enum:
        allowed = {(value.__class__, value) for value in node.enum if not isinstance(value, dict | list)}
        checks.append(lambda value: value.__class__ not in (dict, list) and (value.__class__, value) in allowed)
    if (least := keyword("minLength")) is not None:
        checks.append(lambda value: value.__class__ is not str or len(value) >= least)
    if (most := keyword("maxLength")) is not None:
        checks.append(lambda value: value.__class__ is not str or len(value) <= most)
    if node.pattern:
        pattern = node.compiled_pattern()
        matches: ValuePredicate = pattern.matches if isinstance(pattern, Re2Pattern) else lambda value: False
        checks.append(lambda value: value.__class__ is not str or matches(value))
    if (fits := node.format_check) is not None:
        checks.append(lambda value: value.__class__ is str and fits(value))
    checks += _number_checks(node)
    return checks + _size_checks(node)


def _number_checks(node: SchemaNode) -> list[ValuePredicate]:
    keyword = node.schema.get
    checks: list[ValuePredicate] = []
    if (low := keyword("minimum")) is not None:
        if low != int(low):
            # An integer is compared with a bound cut to an integer, so 0 passes a minimum of 0.5.
            checks.append(lambda value: value.__class__ is float and value > low)
        elif keyword("exclusiveMinimum"):
            checks.append(lambda value: value.__class__ not in _NUMBER_TYPES or value > low)
        else:
            checks.append(lambda value: value.__class__ not in _NUMBER_TYPES or value >= low)
    if (high := keyword("maximum")) is not None:
        if high != int(high):
            checks.append(lambda value: value.__class__ is float and value < high)
        elif keyword("exclusiveMaximum"):
            checks.append(lambda value: value.__class__ not in _NUMBER_TYPES or value < high)
        else:
            checks.append(lambda value: value.__class__ not in _NUMBER_TYPES or value <= high)
    if (factor := keyword("multipleOf")) is not None:
        checks.append(lambda value: value.__class__ is int and factor >= 1 and value % int(factor) == 0)
    return checks


def _size_checks(node: SchemaNode) -> list[ValuePredicate]:
    checks: list[ValuePredicate] = []
    for kind, low, high in ((list, "minItems", "maxItems"), (dict, "minProperties", "maxProperties")):
        least, most = node.schema.get(low), node.schema.get(high)
        if least is not None or most is not None:
            checks.append(_size_check(kind, least or 0, most))
    return checks


def _size_check(kind: type[Any], least: int, most: int | None) -> ValuePredicate:
    if most is None:
        return lambda value: value.__class__ is not kind or len(value) >= least
    return lambda value: value.__class__ is not kind or least <= len(value) <= most


def _junctor_checks(node: SchemaNode) -> list[ValuePredicate]:
    checks = [compile_check(part) for part in node.all_of]
    if node.any_of and not (node.int_or_string and [part.types for part in node.any_of] == [("integer",), ("string",)]):
        options = [compile_check(part) for part in node.any_of]
        checks.append(lambda value: any(option(value) for option in options))
    if node.one_of or node.not_ is not None:
        # Here "not certainly valid" would count as valid, so the careful walk must decide.
        checks.append(lambda value: False)
    return checks


def _object_check(node: SchemaNode) -> ValuePredicate:
    fields = {name: _node_check(part) for name, part in node.properties.items()}
    additional = _node_check(node.additional_properties) if node.additional_properties is not None else None
    required, closed = tuple(node.required), node.rejects_additional

    def check(value: Any) -> bool:
        if value.__class__ is not dict:
            return False
        for name in required:
            if name not in value:
                return False
        for name, part in value.items():
            expected = fields.get(name, additional)
            if part.__class__ is expected:
                continue
            if expected is None:
                if closed:
                    return False
            elif expected.__class__ is type or not expected(part):
                return False
        return True

    return check


def _array_check(node: SchemaNode) -> ValuePredicate:
    expected = _node_check(node.items) if node.items is not None else object
    unique = _uniqueness_check(node)

    def check(value: Any) -> bool:
        if value.__class__ is not list:
            return False
        for part in value:
            if part.__class__ is expected:
                continue
            if expected is object:
                continue
            if expected.__class__ is type or not expected(part):
                return False
        return len(value) < 2 or unique is None or unique(value)

    return check


def _uniqueness_check(node: SchemaNode) -> ValuePredicate | None:
    """The check of sets of strings, and of maps keyed by strings and integers. Others are validated carefully."""
    if node.list_type == "set":
        return lambda value: len(set(value)) == len(value) if {str} == set(map(type, value)) else False
    if node.list_type == "map" and len(node.list_keys) == 1:
        return _unique_key_check(node.list_keys[0])
    if node.list_type == "map" and node.list_keys:
        return _unique_keys_check(node.list_keys)
    return None


def _unique_key_check(name: str) -> ValuePredicate:
    def check(value: Any) -> bool:
        keys = set()
        for part in value:
            key = part.get(name) if part.__class__ is dict else None
            if not (key.__class__ is str or key.__class__ is int) or key in keys:
                return False
            keys.add(key)
        return True

    return check


def _unique_keys_check(names: tuple[str, ...]) -> ValuePredicate:
    def check(value: Any) -> bool:
        keys = set()
        for part in value:
            key = tuple([part.get(name) for name in names]) if part.__class__ is dict else (None,)
            if not {str, int}.issuperset(map(type, key)) or key in keys:
                return False
            keys.add(key)
        return True

    return check


def _embedded_check(node: SchemaNode) -> ValuePredicate:
    """Embedded resources are rare: those with only kind and apiVersion pass, all others are validated carefully."""
    inner = _object_check(node)
    bounds = _conjunction(_bound_checks(node) + _junctor_checks(node))

    def check(value: Any) -> bool:
        if value.__class__ is not dict:
            return False
        version, kind = value.get("apiVersion"), value.get("kind")
        if version.__class__ is not str or kind.__class__ is not str:
            return False
        is_typed = version.isalnum() and kind.isalpha() and kind.isascii() and len(kind) < 64
        return is_typed and value.get("metadata", {}) == {} and inner(value) and bounds(value)

    return check
