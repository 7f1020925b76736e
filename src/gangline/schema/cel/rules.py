"""`x-kubernetes-validations`: the rules of a schema, compiled once and run on every write."""

from contextlib import suppress
from typing import Any

import msgspec

from gangline.schema.cel.checker import CheckedExpr, InstantiationError, check_expression
from gangline.schema.cel.decl_types import DeclType, decl_type, with_object_meta
from gangline.schema.cel.field_path import FieldPathError, resolve_field_path
from gangline.schema.cel.program import CelProgram, CostLimitExceeded, ErrorValue
from gangline.schema.cel.syntax import ExpressionError
from gangline.schema.cel.types import CelType, optional_type
from gangline.schema.cel.values import NO_SUCH_OVERLOAD, OPTIONAL_NONE, CelError, CelOptional, as_cel_value
from gangline.schema.correlation import CorrelatedValue, elements_by_key, list_map_key
from gangline.schema.nodes import SchemaNode
from gangline.schema.problems import FieldProblem, ProblemKind, invalid

CALL_COST_LIMIT = 1_000_000
COST_BUDGET = 10_000_000
_MAX_MESSAGE_BYTES = 5 * 1024
_REASON_KINDS = {
    "FieldValueForbidden": ProblemKind.FORBIDDEN,
    "FieldValueRequired": ProblemKind.REQUIRED,
    "FieldValueDuplicate": ProblemKind.DUPLICATE,
}
_BUDGET_EXCEEDED_MESSAGE = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)


class CostBudgetExceeded(CelError):
    """The rules of one object exceeded the cost budget. The problems found before are kept."""


class CompilationResult(msgspec.Struct, frozen=True, eq=False):
    """A rule that can be run, or the errors that prevent it."""

    rule: dict[str, Any]
    checked_expr: CheckedExpr | None = None
    message_expr: CheckedExpr | None = None
    error: str = ""
    message_error: str = ""

    @property
    def uses_old_self(self) -> bool:
        return self.checked_expr is not None and "oldSelf" in self.checked_expr.variables


def compile_rule(rule: dict[str, Any], declared_type: CelType) -> CompilationResult:
    """Check a rule against the type of its schema. Errors are part of the result."""
    old = optional_type(declared_type) if rule.get("optionalOldSelf") else declared_type
    variables = {"self": declared_type, "oldSelf": old}
    text = rule.get("rule") or ""
    if not text.strip():
        return CompilationResult(rule)
    checked, error = _check_result_type(text, variables, "bool", "cel expression must evaluate to a bool")
    if checked is None:
        return CompilationResult(rule, error=error)
    expression = rule.get("messageExpression") or ""
    if not expression:
        return CompilationResult(rule, checked)
    message, message_error = _check_result_type(
        expression, variables, "string", "messageExpression must evaluate to a string", "messageExpression "
    )
    return CompilationResult(rule, checked, message, message_error=message_error)


def _check_result_type(
    text: str, variables: dict[str, CelType], expected: str, otherwise: str, prefix: str = ""
) -> tuple[CheckedExpr | None, str]:
    try:
        checked = check_expression(text, variables)
    except InstantiationError as error:
        return None, f"{prefix or 'program '}instantiation failed: {error}"
    except ExpressionError as error:
        return None, f"{prefix}compilation failed: {error}"
    return (checked, "") if checked.result.kind == expected else (None, otherwise)


class _RunnableRule:
    """One compiled rule."""

    def __init__(self, compiled: CompilationResult, node: SchemaNode) -> None:
        self.rule = compiled.rule
        self.uses_old_self = compiled.uses_old_self
        self.optional_old_self = bool(compiled.rule.get("optionalOldSelf"))
        self.error = compiled.error
        self.program = CelProgram(compiled.checked_expr, CALL_COST_LIMIT) if compiled.checked_expr else None
        self.message_program = CelProgram(compiled.message_expr, CALL_COST_LIMIT) if compiled.message_expr else None
        self.field_path = ""
        if compiled.rule.get("fieldPath"):
            try:
                self.field_path = resolve_field_path(compiled.rule["fieldPath"], node)
            except FieldPathError:
                self.field_path = ""

    @property
    def display_text(self) -> str:
        return str(self.rule.get("message") or self.rule.get("rule") or "").strip()

    @property
    def failure_message(self) -> str:
        message = str(self.rule.get("message") or "")
        return message.strip() if message else f"failed rule: {self.display_text}"


class RuleResult:
    """The problems and warnings of the rules of one object, and the remaining cost budget."""

    def __init__(self, budget: int = COST_BUDGET) -> None:
        self.problems: list[FieldProblem] = []
        self.warnings: list[str] = []
        self.remaining_budget = budget

    def spend(self, work: int, path: str, kind: str) -> None:
        """Take a cost from the budget. Raises `CostBudgetExceeded`, after adding the problem."""
        if work > self.remaining_budget:
            self.problems.append(invalid(path or "<nil>", kind, _BUDGET_EXCEEDED_MESSAGE))
            raise CostBudgetExceeded(_BUDGET_EXCEEDED_MESSAGE)
        self.remaining_budget -= work


class _Ratcheting:
    """Whether the value of a rule changed. A failed rule on an unchanged value is a warning only."""

    __slots__ = ("correlation", "nearest_parent")

    def __init__(self, pair: CorrelatedValue | None, nearest: CorrelatedValue | None = None) -> None:
        self.correlation, self.nearest_parent = pair, nearest

    def field(self, name: str) -> "_Ratcheting":
        if self.correlation is None:
            return self
        if self.nearest_parent is None and name in ("apiVersion", "kind"):
            return _Ratcheting(None)
        return _Ratcheting(self.correlation.field(name), self.correlation)

    def item(self, index: int) -> "_Ratcheting":
        return self if self.correlation is None else _Ratcheting(self.correlation.item(index), self.correlation)

    @property
    def is_unchanged(self) -> bool:
        reference = self.correlation or self.nearest_parent
        return reference is not None and reference.is_unchanged


class CompiledRules:
    """The rules of a schema node and of all nodes inside."""

    def __init__(self, node: SchemaNode, declared: DeclType | None, *, root: bool) -> None:
        self._node = node
        self._view_node = with_object_meta(node) if root else node
        rules = node.rules if declared is not None else []
        self._own_rules = (
            [_RunnableRule(compile_rule(rule, declared.type), node) for rule in rules] if declared is not None else []
        )
        self._field_rules = {
            name: below for name, part in node.properties.items() if (below := compile_rules(part)) is not None
        }
        self._additional_rules = compile_rules(node.additional_properties)
        self._item_rules = compile_rules(node.items)
        self._uses_old_self = any(rule.uses_old_self for rule in self._own_rules)

    @property
    def is_empty(self) -> bool:
        return not (self._own_rules or self._field_rules or self._additional_rules or self._item_rules)

    def run(self, value: Any, old: Any = None, *, pair: CorrelatedValue | None = None, path: str = "") -> RuleResult:
        """Run all rules on a value and, on an update, on the value it replaces."""
        outcome = RuleResult()
        with suppress(CostBudgetExceeded):
            self.descend(value, old, _Ratcheting(pair), path, outcome)
        return outcome

    def descend(self, value: Any, old: Any, change: _Ratcheting, path: str, outcome: RuleResult) -> None:
        """Run the rules of this node, then those inside.

        Raises `CostBudgetExceeded`; the problems found before are in `outcome`.
        """
        if value is None:
            return
        if self._own_rules:
            self._run_own_rules(value, old, change, path, outcome)
        if isinstance(value, dict):
            self._run_fields(value, old if isinstance(old, dict) else {}, change, path, outcome)
        elif isinstance(value, list) and self._item_rules is not None:
            old_parts = elements_by_key(old, self._node) if isinstance(old, list) else {}
            for index, part in enumerate(value):
                old_part = old_parts.get(list_map_key(part, self._node)) if old_parts else None
                self._item_rules.descend(part, old_part, change.item(index), f"{path}[{index}]", outcome)

    def _run_fields(
        self, value: dict[str, Any], old: dict[str, Any], change: _Ratcheting, path: str, outcome: RuleResult
    ) -> None:
        if self._additional_rules is not None:
            for name in sorted(value):
                self._additional_rules.descend(
                    value[name], old.get(name), change.field(name), f"{path}[{name}]", outcome
                )
        for name in sorted(self._field_rules.keys() & value.keys()):
            inner = f"{path}.{name}" if path else name
            self._field_rules[name].descend(value[name], old.get(name), change.field(name), inner, outcome)

    def _run_own_rules(self, value: Any, old: Any, change: _Ratcheting, path: str, outcome: RuleResult) -> None:
        if outcome.remaining_budget <= 0:
            outcome.spend(1, path, self._node.type)
        scope: dict[str, Any] = {"self": self._cel_value(value)}
        old_value = self._cel_value(old) if old is not None and self._uses_old_self else None
        for rule in self._own_rules:
            if rule.error:
                self._add_invalid(outcome, path, f"rule compile error: {rule.error}")
                continue
            if rule.program is None or (rule.uses_old_self and old is None and not rule.optional_old_self):
                continue
            if rule.uses_old_self:
                scope["oldSelf"] = (
                    old_value
                    if not rule.optional_old_self
                    else OPTIONAL_NONE
                    if old is None
                    else CelOptional(old_value)
                )
            self._run_rule(rule, scope, change, path, outcome)

    def _cel_value(self, value: Any) -> Any:
        try:
            return as_cel_value(value, self._view_node)
        except CelError as error:
            return ErrorValue(error)

    def _add_invalid(self, outcome: RuleResult, path: str, detail: str) -> None:
        outcome.problems.append(invalid(path or "<nil>", self._node.type, detail))

    def _run_rule(
        self, rule: _RunnableRule, scope: dict[str, Any], change: _Ratcheting, path: str, outcome: RuleResult
    ) -> None:
        assert rule.program is not None
        try:
            result, work = rule.program.run(scope)
        except CostLimitExceeded as error:
            sentence = f"'{error}': no further validation rules will be run due to call cost exceeds limit for rule"
            self._add_invalid(outcome, path, f"{sentence}: {rule.display_text}")
            raise CostBudgetExceeded(str(error)) from None
        except CelError as error:
            self._add_invalid(outcome, path, _evaluation_error(str(error), rule.display_text))
            return
        outcome.spend(work, path, self._node.type)
        if result is True:
            return
        problem_path = f"{path}.{rule.field_path}" if path and rule.field_path else f"{path}{rule.field_path}"
        problem = self._rule_problem(rule, scope, problem_path, outcome)
        if not rule.uses_old_self and change.is_unchanged:
            outcome.warnings.append(str(problem))
        else:
            outcome.problems.append(problem)

    def _rule_problem(self, rule: _RunnableRule, scope: dict[str, Any], path: str, outcome: RuleResult) -> FieldProblem:
        detail = (
            _message_text(rule.message_program, scope, outcome) if rule.message_program else ""
        ) or rule.failure_message
        kind = _REASON_KINDS.get(rule.rule.get("reason") or "", ProblemKind.INVALID)
        if kind is ProblemKind.DUPLICATE:
            detail = ""
        return FieldProblem(kind, path or "<nil>", self._node.type, detail)


def _evaluation_error(error: str, rule: str) -> str:
    if error.startswith(NO_SUCH_OVERLOAD):
        signature = "call arguments did not match a supported operator, function or macro signature for rule"
        return f"'{error}': {signature}: {rule}"
    return f"{error} evaluating rule: {rule}"


def _message_text(message: CelProgram, scope: dict[str, Any], outcome: RuleResult) -> str:
    """The result of a message expression; empty when it fails, is too long or has several lines."""
    try:
        text, work = message.run(scope)
    except CelError:
        return ""
    outcome.remaining_budget -= work
    text = text.strip() if isinstance(text, str) else ""
    return "" if len(text.encode()) > _MAX_MESSAGE_BYTES or "\n" in text else text


def compile_rules(node: SchemaNode | None, *, root: bool = False) -> CompiledRules | None:
    """The compiled rules of a schema; None when it has no rules."""
    if node is None or not node.has_rules:
        return None
    root = root or node.embedded
    rules = CompiledRules(node, decl_type(node, "selfType", root=root), root=root)
    return None if rules.is_empty else rules
