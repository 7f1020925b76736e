"""`x-kubernetes-validations`: the rules of a schema, compiled once, run on every write."""

from contextlib import suppress
from typing import Any

import msgspec

from gangline.schema.cel.check import Checked, NotRunnable, check
from gangline.schema.cel.declare import Declared, declared, with_meta
from gangline.schema.cel.evaluate import Failed, Program, TooExpensive
from gangline.schema.cel.field_path import FieldPathError, field_path
from gangline.schema.cel.syntax import ExpressionError
from gangline.schema.cel.types import Type, optional_of
from gangline.schema.cel.values import NO_OVERLOAD, NOTHING, CelError, Optional, view
from gangline.schema.problems import Problem, ProblemKind
from gangline.schema.structural.correlation import Pair, key_of, keyed
from gangline.schema.structural.nodes import Node

CALL_LIMIT = 1_000_000
BUDGET = 10_000_000
_LONGEST_MESSAGE = 5 * 1024
_REASONS = {
    "FieldValueForbidden": ProblemKind.FORBIDDEN,
    "FieldValueRequired": ProblemKind.REQUIRED,
    "FieldValueDuplicate": ProblemKind.DUPLICATE,
}
_OUT_OF_BUDGET = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)


class OutOfBudget(CelError):
    """The rules of one object have cost too much. What was found so far stands."""


class Compiled(msgspec.Struct, frozen=True, eq=False):
    """A rule that can be run, or the mistakes that keep it from it."""

    rule: dict[str, Any]
    checked: Checked | None = None
    message: Checked | None = None
    mistake: str = ""
    message_mistake: str = ""

    @property
    def uses_old(self) -> bool:
        return self.checked is not None and "oldSelf" in self.checked.names


def compile_rule(rule: dict[str, Any], declared_type: Type) -> Compiled:
    """Check a rule against the type of its schema. Mistakes are told in the result."""
    old = optional_of(declared_type) if rule.get("optionalOldSelf") else declared_type
    variables = {"self": declared_type, "oldSelf": old}
    text = rule.get("rule") or ""
    if not text.strip():
        return Compiled(rule)
    checked, mistake = _checked(text, variables, "bool", "cel expression must evaluate to a bool")
    if checked is None:
        return Compiled(rule, mistake=mistake)
    expression = rule.get("messageExpression") or ""
    if not expression:
        return Compiled(rule, checked)
    message, wrong = _checked(
        expression, variables, "string", "messageExpression must evaluate to a string", "messageExpression "
    )
    return Compiled(rule, checked, message, message_mistake=wrong)


def _checked(
    text: str, variables: dict[str, Type], wanted: str, otherwise: str, prefix: str = ""
) -> tuple[Checked | None, str]:
    try:
        found = check(text, variables)
    except NotRunnable as error:
        return None, f"{prefix or 'program '}instantiation failed: {error}"
    except ExpressionError as error:
        return None, f"{prefix}compilation failed: {error}"
    return (found, "") if found.result.kind == wanted else (None, otherwise)


class _Rule:
    """One rule, ready to run."""

    def __init__(self, compiled: Compiled, node: Node) -> None:
        self.said = compiled.rule
        self.uses_old = compiled.uses_old
        self.optional_old = bool(compiled.rule.get("optionalOldSelf"))
        self.mistake = compiled.mistake
        self.program = Program(compiled.checked, CALL_LIMIT) if compiled.checked else None
        self.message = Program(compiled.message, CALL_LIMIT) if compiled.message else None
        self.path = ""
        if compiled.rule.get("fieldPath"):
            try:
                self.path = field_path(compiled.rule["fieldPath"], node)
            except FieldPathError:
                self.path = ""

    @property
    def shown(self) -> str:
        return str(self.said.get("message") or self.said.get("rule") or "").strip()

    @property
    def complaint(self) -> str:
        message = str(self.said.get("message") or "")
        return message.strip() if message else f"failed rule: {self.shown}"


class Outcome:
    """What the rules of one object found, and what is left to spend."""

    def __init__(self, budget: int = BUDGET) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self.budget = budget

    def spend(self, work: int, path: str, kind: str) -> None:
        if work > self.budget:
            self.problems.append(Problem(ProblemKind.INVALID, path or "<nil>", kind, _OUT_OF_BUDGET))
            raise OutOfBudget(_OUT_OF_BUDGET)
        self.budget -= work


class _Change:
    """Whether what a rule complains about is new. Rules tolerate, with a warning, what was there before."""

    __slots__ = ("nearest", "pair")

    def __init__(self, pair: Pair | None, nearest: Pair | None = None) -> None:
        self.pair, self.nearest = pair, nearest

    def field(self, name: str) -> "_Change":
        if self.pair is None:
            return self
        if self.nearest is None and name in ("apiVersion", "kind"):
            return _Change(None)
        return _Change(self.pair.field(name), self.pair)

    def item(self, index: int) -> "_Change":
        return self if self.pair is None else _Change(self.pair.item(index), self.pair)

    @property
    def none(self) -> bool:
        reference = self.pair or self.nearest
        return reference is not None and reference.equal


class Rules:
    """The rules of a schema node and of everything below that has any."""

    def __init__(self, node: Node, found: Declared | None, *, root: bool) -> None:
        self._node = node
        self._seen = with_meta(node) if root else node
        own = node.rules if found is not None else []
        self._own = [_Rule(compile_rule(rule, found.type), node) for rule in own] if found is not None else []
        self._fields = {
            name: below for name, part in node.properties.items() if (below := rules_of(part)) is not None
        }
        self._additional = rules_of(node.additional)
        self._items = rules_of(node.items)
        self._uses_old = any(rule.uses_old for rule in self._own)

    @property
    def empty(self) -> bool:
        return not (self._own or self._fields or self._additional or self._items)

    def run(self, value: Any, old: Any = None, *, pair: Pair | None = None, path: str = "") -> Outcome:
        """Run all rules on a value and, on an update, the one it replaces."""
        outcome = Outcome()
        with suppress(OutOfBudget):
            self.descend(value, old, _Change(pair), path, outcome)
        return outcome

    def descend(self, value: Any, old: Any, change: _Change, path: str, outcome: Outcome) -> None:
        """Run the rules here, then those below. Raises `OutOfBudget`; what was found before is in the outcome."""
        if value is None:
            return
        if self._own:
            self._run_own(value, old, change, path, outcome)
        if isinstance(value, dict):
            self._run_fields(value, old if isinstance(old, dict) else {}, change, path, outcome)
        elif isinstance(value, list) and self._items is not None:
            before = keyed(old, self._node) if isinstance(old, list) else {}
            for index, part in enumerate(value):
                was = before.get(key_of(part, self._node)) if before else None
                self._items.descend(part, was, change.item(index), f"{path}[{index}]", outcome)

    def _run_fields(
        self, value: dict[str, Any], old: dict[str, Any], change: _Change, path: str, outcome: Outcome
    ) -> None:
        if self._additional is not None:
            for name in sorted(value):
                self._additional.descend(
                    value[name], old.get(name), change.field(name), f"{path}[{name}]", outcome
                )
        for name in sorted(self._fields.keys() & value.keys()):
            inner = f"{path}.{name}" if path else name
            self._fields[name].descend(value[name], old.get(name), change.field(name), inner, outcome)

    def _run_own(self, value: Any, old: Any, change: _Change, path: str, outcome: Outcome) -> None:
        if outcome.budget <= 0:
            outcome.spend(1, path, self._node.type)
        scope: dict[str, Any] = {"self": self._viewed(value)}
        was = self._viewed(old) if old is not None and self._uses_old else None
        for rule in self._own:
            if rule.mistake:
                self._tell(outcome, path, f"rule compile error: {rule.mistake}")
                continue
            if rule.program is None or (rule.uses_old and old is None and not rule.optional_old):
                continue
            if rule.uses_old:
                scope["oldSelf"] = was if not rule.optional_old else NOTHING if old is None else Optional(was)
            self._run_rule(rule, scope, change, path, outcome)

    def _viewed(self, value: Any) -> Any:
        try:
            return view(value, self._seen)
        except CelError as error:
            return Failed(error)

    def _tell(self, outcome: Outcome, path: str, detail: str) -> None:
        outcome.problems.append(Problem(ProblemKind.INVALID, path or "<nil>", self._node.type, detail))

    def _run_rule(
        self, rule: _Rule, scope: dict[str, Any], change: _Change, path: str, outcome: Outcome
    ) -> None:
        assert rule.program is not None
        try:
            result, work = rule.program.run(scope)
        except TooExpensive as error:
            sentence = (
                f"'{error}': no further validation rules will be run due to call cost exceeds limit for rule"
            )
            self._tell(outcome, path, f"{sentence}: {rule.shown}")
            raise OutOfBudget(str(error)) from None
        except CelError as error:
            self._tell(outcome, path, _failure(str(error), rule.shown))
            return
        outcome.spend(work, path, self._node.type)
        if result is True:
            return
        where = f"{path}.{rule.path}" if path and rule.path else f"{path}{rule.path}"
        problem = self._complaint(rule, scope, where, outcome)
        if not rule.uses_old and change.none:
            outcome.warnings.append(str(problem))
        else:
            outcome.problems.append(problem)

    def _complaint(self, rule: _Rule, scope: dict[str, Any], path: str, outcome: Outcome) -> Problem:
        detail = (_worded(rule.message, scope, outcome) if rule.message else "") or rule.complaint
        kind = _REASONS.get(rule.said.get("reason") or "", ProblemKind.INVALID)
        if kind is ProblemKind.DUPLICATE:
            detail = ""
        return Problem(kind, path or "<nil>", self._node.type, detail)


def _failure(told: str, rule: str) -> str:
    if told.startswith(NO_OVERLOAD):
        signature = "call arguments did not match a supported operator, function or macro signature for rule"
        return f"'{told}': {signature}: {rule}"
    return f"{told} evaluating rule: {rule}"


def _worded(message: Program, scope: dict[str, Any], outcome: Outcome) -> str:
    """What the message expression says; empty when it fails or says nothing of use."""
    try:
        text, work = message.run(scope)
    except CelError:
        return ""
    outcome.budget -= work
    text = text.strip() if isinstance(text, str) else ""
    return "" if len(text.encode()) > _LONGEST_MESSAGE or "\n" in text else text


def rules_of(node: Node | None, *, root: bool = False) -> Rules | None:
    """The rules of a schema; None when there are none."""
    if node is None or not node.has_rules:
        return None
    root = root or node.embedded
    rules = Rules(node, declared(node, "selfType", root=root), root=root)
    return None if rules.empty else rules
