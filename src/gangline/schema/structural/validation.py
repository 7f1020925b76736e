"""Validation of values against a schema, with kube-apiserver's messages: the careful walk.

Errors have kube-apiserver's order where it has one; where its order is random, fields are sorted by name. Alternatives
(anyOf, oneOf) report the best match, which is found by counting the checks that passed, as in kube-openapi.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gangline.schema.correlation import CorrelatedValue, json_equal
from gangline.schema.go_text import json_text, number_text, quoted_text
from gangline.schema.nodes import SchemaNode
from gangline.schema.problems import FieldProblem, ProblemKind, invalid, required
from gangline.schema.regex import PatternError

_MAX_SAFE_INTEGER = float(2**53 - 1)
_INTEGER_TOLERANCE = 1e-9


class WalkResult:
    """The errors of one walk without repetitions, and the number of checks that passed."""

    __slots__ = ("match_count", "problems")

    def __init__(self) -> None:
        self.problems: dict[str, FieldProblem | None] = {}
        """By message. None for an error without a field, such as that of anyOf."""
        self.match_count = 0

    def add_problem(self, sentence: str, problem: FieldProblem | None) -> None:
        self.problems.setdefault(sentence, problem)

    def merge(self, other: "WalkResult") -> None:
        for sentence, problem in other.problems.items():
            self.problems.setdefault(sentence, problem)
        self.match_count += other.match_count


def validate(
    value: Any, node: SchemaNode, *, prefix: str = "", pair: CorrelatedValue | None = None
) -> list[FieldProblem]:
    """All problems of a value. With a pair, problems of unchanged values are tolerated."""
    return list(_prefixed_problems(_ratcheted_result(value, node, "", pair), prefix))


def _prefixed_problems(result: WalkResult, prefix: str) -> Iterator[FieldProblem]:
    for sentence, problem in result.problems.items():
        if problem is None:
            yield invalid(prefix or "<nil>", "", sentence)
            continue
        name = problem.field.removeprefix(".")
        field = f"{prefix}.{name}" if prefix and name else prefix or name or "<nil>"
        yield FieldProblem(problem.kind, field, problem.value, problem.detail)


def _ratcheted_result(value: Any, node: SchemaNode, path: str, pair: CorrelatedValue | None) -> WalkResult:
    result = _walk_value(value, node, path, pair)
    if result.problems and pair is not None and pair.is_unchanged:
        result.problems = {}
    return result


def _walk_value(value: Any, node: SchemaNode, path: str, pair: CorrelatedValue | None) -> WalkResult:
    result = WalkResult()
    if value is None:
        _check_null(result, node, path)
        _check_enum(result, value, node, path)
        return result
    if node.types or node.format_check is not None:
        result.match_count += 1 + _check_type(result, value, node, path)
    result.merge(_check_junctors(value, node, path))
    result.match_count += 1
    if isinstance(value, str):
        _check_text(result, value, node, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(result, value, node, path)
        result.match_count += 2
    elif isinstance(value, list):
        _check_list(result, value, node, path, pair)
        result.match_count += 2
    _check_enum(result, value, node, path)
    result.match_count += 1
    if isinstance(value, dict):
        _check_object(result, value, node, path, pair)
        result.match_count += 1
    result.match_count += 1
    return result


def _add_invalid(result: WalkResult, path: str, value: Any, sentence: str) -> None:
    result.add_problem(sentence, invalid(path, value, sentence))


def _add_wrong_type(result: WalkResult, path: str, expected: str, actual: str) -> None:
    sentence = f"{path} in body must be of type {expected}: {quoted_text(actual)}"
    result.add_problem(sentence, FieldProblem(ProblemKind.TYPE_INVALID, path, actual, sentence))


def _check_null(result: WalkResult, node: SchemaNode, path: str) -> None:
    result.match_count += 1
    if node.types and not node.nullable:
        result.match_count -= 1
        _add_wrong_type(result, path, ",".join(node.types), "null")


def _check_type(result: WalkResult, value: Any, node: SchemaNode, path: str) -> int:
    """Check the type. Returns 1 when it is right, else 0."""
    actual, actual_format = json_type(value)
    is_whole = isinstance(value, float) and is_integral(value) and "integer" in node.types
    fits = actual in node.types or is_whole or (actual == "integer" and "number" in node.types)
    textual = isinstance(value, str | list)
    if node.format_check is not None and not textual and not fits and actual_format != node.format:
        _add_wrong_type(result, path, node.format, actual_format)
        return 0
    numeric = "number" in node.types or "integer" in node.types
    if fits or (not numeric and node.format_check is not None and textual):
        return 1
    _add_wrong_type(result, path, ",".join(node.types), actual)
    return 0


def json_type(value: Any) -> tuple[str, str]:
    """The names of a value's type and format."""
    match value:
        case bool():
            return "boolean", ""
        case str():
            return "string", ""
        case int():
            return "integer", "int64"
        case float():
            return "number", "float64"
        case list():
            return "array", ""
        case _:
            return "object", ""


def is_integral(value: float) -> bool:
    """Whether a float counts as an integer: within the safe range of JSON, and off by almost nothing."""
    if not -_MAX_SAFE_INTEGER <= value <= _MAX_SAFE_INTEGER:
        return False
    nearest = float(int(value))
    if value == nearest:
        return True
    if nearest == 0 or value < 0:
        return False
    return abs(value - nearest) / (abs(value) + abs(nearest)) < _INTEGER_TOLERANCE


def _check_text(result: WalkResult, value: str, node: SchemaNode, path: str) -> None:
    if not _check_length(result, value, node, path) and node.pattern:
        pattern = node.compiled_pattern()
        if isinstance(pattern, PatternError):
            _add_invalid(
                result, path, value, f"{path} in body should match '{node.pattern}, but pattern is invalid: {pattern}'"
            )
        elif not pattern.matches(value):
            _add_invalid(result, path, value, f"{path} in body should match '{node.pattern}'")
    result.match_count += 1
    if node.format_check is not None:
        if not node.format_check(value):
            sentence = f"{path} in body must be of type {node.format}: {quoted_text(value)}"
            result.add_problem(sentence, FieldProblem(ProblemKind.TYPE_INVALID, path, value, sentence))
        result.match_count += 1


def _check_length(result: WalkResult, value: str, node: SchemaNode, path: str) -> bool:
    """Check the length. Returns whether it is wrong: kube-apiserver then skips the pattern."""
    least, most = node.schema.get("minLength"), node.schema.get("maxLength")
    if most is not None and len(value) > most:
        sentence = f"{path} in body should be at most {most} chars long"
        detail = f"may not be more than {most} byte{'s' if most != 1 else ''}" if most >= 0 else "value is too long"
        result.add_problem(sentence, FieldProblem(ProblemKind.TOO_LONG, path, value, detail))
        return True
    if least is not None and len(value) < least:
        _add_invalid(result, path, value, f"{path} in body should be at least {least} chars long")
        return True
    return False


def _check_number(result: WalkResult, value: float, node: SchemaNode, path: str) -> None:
    """Check bounds. Integers are compared with bounds cut to integers, as in kube-apiserver."""
    keyword = node.schema.get
    if (factor := keyword("multipleOf")) is not None:
        _check_multiple(result, value, factor, path)
    if (low := keyword("minimum")) is not None:
        low = int(low) if isinstance(value, int) else float(low)
        if keyword("exclusiveMinimum") and value <= low:
            _add_invalid(result, path, value, f"{path} in body should be greater than {number_text(low)}")
        elif value < low:
            _add_invalid(result, path, value, f"{path} in body should be greater than or equal to {number_text(low)}")
    if (high := keyword("maximum")) is not None:
        high = int(high) if isinstance(value, int) else float(high)
        if keyword("exclusiveMaximum") and value >= high:
            _add_invalid(result, path, value, f"{path} in body should be less than {number_text(high)}")
        elif value > high:
            _add_invalid(result, path, value, f"{path} in body should be less than or equal to {number_text(high)}")


def _check_multiple(result: WalkResult, value: float, factor: float, path: str) -> None:
    factor = int(factor) if isinstance(value, int) else float(factor)
    if factor <= 0:
        _add_invalid(
            result, path, factor, f"factor MultipleOf declared for {path} must be positive: {number_text(factor)}"
        )
    elif isinstance(value, int):
        if value % factor:
            _add_invalid(result, path, value, f"{path} in body should be a multiple of {number_text(factor)}")
    elif not is_integral(1 / factor * value if factor < 1 else value / factor):
        _add_invalid(result, path, value, f"{path} in body should be a multiple of {number_text(factor)}")


def _check_list(
    result: WalkResult, value: list[Any], node: SchemaNode, path: str, pair: CorrelatedValue | None
) -> None:
    if node.items is not None:
        for index, part in enumerate(value):
            below = pair.item(index) if pair is not None else None
            result.merge(_ratcheted_result(part, node.items, f"{path}[{index}]", below))
    _check_size(result, len(value), node.schema.get("minItems"), node.schema.get("maxItems"), path, "items")


def _check_enum(result: WalkResult, value: Any, node: SchemaNode, path: str) -> None:
    if not node.enum or any(_matches_enum_value(value, allowed) for allowed in node.enum):
        return
    supported = [
        quoted_text(allowed_value if isinstance(allowed_value, str) else json_text(allowed_value))
        for allowed_value in node.enum
    ]
    sentence = f"{path} in body should be one of {node.enum}"
    result.add_problem(
        sentence, FieldProblem(ProblemKind.NOT_SUPPORTED, path, value, f"supported values: {', '.join(supported)}")
    )


def _matches_enum_value(value: Any, allowed: Any) -> bool:
    """Whether a value equals one of an enum. Go converts first: 1.5 equals the 1 of an enum of integers."""
    if value is None or allowed is None:
        return False
    numbers = (int, float)
    if value.__class__ in numbers and allowed.__class__ in numbers:
        return bool(allowed.__class__(value) == allowed)
    return json_equal(value, allowed)


def _check_object(
    result: WalkResult, value: Mapping[str, Any], node: SchemaNode, path: str, pair: CorrelatedValue | None
) -> None:
    least, most = node.schema.get("minProperties"), node.schema.get("maxProperties")
    _check_size(result, len(value), least, most, path, "properties")
    if node.rejects_additional:
        for name in sorted(value):
            if name not in node.properties:
                _add_invalid(result, path, name, f"{path}.{name} in body is a forbidden property")
    elif node.additional_properties is not None:
        for name in sorted(value):
            if name not in node.properties:
                below = _field_pair(pair, path, name)
                result.merge(_ratcheted_result(value[name], node.additional_properties, f"{path}.{name}", below))
    for name in sorted(node.properties):
        if name in value:
            inner = f"{path}.{name}" if path else name
            result.merge(_ratcheted_result(value[name], node.properties[name], inner, _field_pair(pair, path, name)))
    for name in node.required:
        if name not in value:
            result.add_problem(f"{path}.{name} in body is required", required(f"{path}.{name}"))


def _check_size(result: WalkResult, size: int, least: int | None, most: int | None, path: str, unit: str) -> None:
    if least is not None and size < least:
        _add_invalid(result, path, size, f"{path} in body should have at least {least} {unit}")
    if most is not None and size > most:
        detail = f"must have at most {most} item{'s' if most != 1 else ''}"
        problem = FieldProblem(ProblemKind.TOO_MANY, path, size, detail)
        result.add_problem(f"{path} in body should have at most {most} {unit}", problem)


def _field_pair(pair: CorrelatedValue | None, path: str, name: str) -> CorrelatedValue | None:
    # Old and new object were converted to one version, which hides changes of these two.
    if pair is None or (path == "" and name in ("kind", "apiVersion")):
        return None
    return pair.field(name)


def _check_junctors(value: Any, node: SchemaNode, path: str) -> WalkResult:
    """Check alternatives and negations. Problems of unchanged values are not tolerated inside."""
    result = WalkResult()
    if node.any_of:
        _check_any_of(result, value, node.any_of, path)
    if node.one_of:
        _check_one_of(result, value, node.one_of, path)
    if node.all_of:
        part_results = [_walk_value(value, part, path, None) for part in node.all_of]
        for part_result in part_results:
            result.merge(part_result)
        valid = sum(not part_result.problems for part_result in part_results)
        if valid != len(part_results):
            none = ". None validated" if not valid else ""
            result.add_problem(f"{quoted_text(path)} must validate all the schemas (allOf){none}", None)
    if node.not_ is not None and not _walk_value(value, node.not_, path, None).problems:
        result.add_problem(f"{quoted_text(path)} must not validate the schema (not)", None)
    result.match_count += 1
    return result


def _check_any_of(result: WalkResult, value: Any, options: Sequence[SchemaNode], path: str) -> None:
    best: WalkResult | None = None
    for option in options:
        option_result = _walk_value(value, option, path, None)
        if not option_result.problems:
            result.merge(option_result)
            return
        if best is None or option_result.match_count > best.match_count:
            best = option_result
    result.add_problem(f"{quoted_text(path)} must validate at least one schema (anyOf)", None)
    if best is not None:
        result.merge(best)


def _check_one_of(result: WalkResult, value: Any, options: Sequence[SchemaNode], path: str) -> None:
    best: WalkResult | None = None
    valid: list[WalkResult] = []
    for option in options:
        option_result = _walk_value(value, option, path, None)
        if not option_result.problems:
            valid.append(option_result)
        elif not valid and (best is None or option_result.match_count > best.match_count):
            best = option_result
    if len(valid) == 1:
        result.merge(valid[0])
        return
    count_text = f"Found {len(valid)} valid alternatives" if valid else "Found none valid"
    result.add_problem(f"{quoted_text(path)} must validate one and only one schema (oneOf). {count_text}", None)
    if not valid and best is not None:
        result.merge(best)
