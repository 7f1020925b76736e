"""Match conditions of webhooks and policies."""

from collections.abc import Callable, Sequence

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats
from gangline.schema.problems import FieldProblem, duplicate, invalid, invalid_each, required, too_many

_MAX_CONDITIONS = 64


def validate_match_conditions(
    conditions: Sequence[JSON], path: str, compile_source: Callable[[str], object] | None = None
) -> list[FieldProblem]:
    """Problems of match conditions. Without `compile_source` they are those of a webhook."""
    if not conditions:
        return []
    # Loaded with the first condition: CEL is large, and most configurations do without.
    from gangline.apiserver.kinds.declared.expressions import CompilationError, condition_program

    compile_condition = compile_source or condition_program
    problems = [too_many(path, len(conditions), _MAX_CONDITIONS)] if len(conditions) > _MAX_CONDITIONS else []
    names: set[str] = set()
    for index, condition in enumerate(conditions):
        here, name = f"{path}[{index}]", condition.get("name", "")
        source = (condition.get("expression") or "").strip()
        if not source:
            problems.append(required(f"{here}.expression"))
        else:
            try:
                compile_condition(source)
            except CompilationError as error:
                problems.append(invalid(f"{here}.expression", source, str(error)))
        if not name:
            problems.append(required(f"{here}.name"))
        else:
            problems += invalid_each(f"{here}.name", name, formats.qualified_name_errors(name))
        if name and name in names:
            problems.append(duplicate(f"{here}.name", name))
        names.add(name)
    return problems
