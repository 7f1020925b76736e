"""Validation of `x-kubernetes-validations` in a CRD's schema: texts, compilation, and what the rules may cost."""

import math
import re
from collections.abc import Iterator

import msgspec

from gangline.schema.cel.cost import estimate_cost
from gangline.schema.cel.decl_types import MAX_REQUEST_BYTES, DeclType, decl_type
from gangline.schema.cel.field_path import FieldPathError, resolve_field_path
from gangline.schema.cel.rules import CompilationResult, compile_rule
from gangline.schema.cel.sizes import MAX_COST
from gangline.schema.crd_validation.structural_rules import JSON, unsupported_keyword
from gangline.schema.nodes import SchemaNode
from gangline.schema.problems import NO_VALUE, FieldProblem, ProblemKind, forbidden, invalid, required, unsupported

RULE_COST_LIMIT = 10_000_000
TOTAL_COST_LIMIT = 100_000_000
_MAX_COSTLIEST_RULES = 4
_RULE_REASONS = ("FieldValueRequired", "FieldValueForbidden", "FieldValueInvalid", "FieldValueDuplicate")
_COST_ADVICE = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"


class _PrintedRule(msgspec.Struct, frozen=True):
    """A rule as Go prints it in messages."""

    Rule: str
    Message: str
    MessageExpression: str
    Reason: str | None
    FieldPath: str
    OptionalOldSelf: bool | None

    @classmethod
    def from_rule(cls, rule: JSON) -> "_PrintedRule":
        get = rule.get
        return cls(
            get("rule") or "",
            get("message") or "",
            get("messageExpression") or "",
            get("reason"),
            get("fieldPath") or "",
            get("optionalOldSelf"),
        )


class CostContext:
    """How often a schema can occur in one object, for the cost of its rules."""

    def __init__(self, node: SchemaNode, *, limit: int | None) -> None:
        """`limit` is None where the number of occurrences has no bound."""
        self.node, self.max_occurrences = node, limit

    def child(self, part: SchemaNode | None) -> "CostContext | None":
        """The context of a schema directly inside this one; None without a schema."""
        if part is None:
            return None
        factor = self._max_elements()
        limit = None if self.max_occurrences is None or factor is None else min(self.max_occurrences * factor, MAX_COST)
        return CostContext(part, limit=limit)

    def _max_elements(self) -> int | None:
        if self.node.type == "object" and self.node.has_additional_properties:
            keyword = "maxProperties"
        elif self.node.type == "array":
            keyword = "maxItems"
        else:
            return 1
        most = self.node.schema.get(keyword)
        return None if most is None else max(most, 0)


def rule_text_problems(schema: JSON, path: str, context: CostContext | None) -> Iterator[FieldProblem]:
    """Problems of the rules of one schema that show without compiling them."""
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        rule_path = f"{path}.x-kubernetes-validations[{index}]"
        yield from _text_problems(rule, rule_path)
        reason = rule.get("reason")
        if reason is not None and reason not in _RULE_REASONS:
            yield unsupported(f"{rule_path}.reason", reason, sorted(_RULE_REASONS))
        yield from _field_path_problems(schema, rule.get("fieldPath") or "", f"{rule_path}.fieldPath", context)


def _text_problems(rule: JSON, path: str) -> Iterator[FieldProblem]:
    text, message = (rule.get("rule") or "").strip(), rule.get("message") or ""
    if not text:
        yield required(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        yield invalid(f"{path}.message", message, "must be non-empty if specified")
    elif re.search(r"[\n\r]", message.strip()):
        yield invalid(f"{path}.message", message, "must not contain line breaks")
    elif re.search(r"[\n\r]", text) and not message.strip():
        yield required(f"{path}.message", "message must be specified if rule contains line breaks")
    expression = rule.get("messageExpression") or ""
    if expression and not expression.strip():
        yield required(f"{path}.messageExpression", "messageExpression must be non-empty if specified")


def _field_path_problems(
    schema: JSON, field_path: str, path: str, context: CostContext | None
) -> Iterator[FieldProblem]:
    if field_path and not field_path.strip():
        yield invalid(path, field_path, "must be non-empty if specified")
    if re.search(r"[\n\r]", field_path):
        yield invalid(path, field_path, "must not contain line breaks")
    if field_path and (context is not None or not unsupported_keyword(schema)):
        try:
            resolve_field_path(field_path, context.node if context is not None else SchemaNode(schema))
        except FieldPathError:
            yield invalid(path, field_path, "must be a valid path")


class RuleValidator:
    """Compiles the rules of a whole schema, collects their problems and adds up their estimated costs."""

    def __init__(self) -> None:
        self.problems: list[FieldProblem] = []
        self._total_cost = 0
        self._costliest: list[tuple[int, str]] = []

    def validate(self, schema: JSON, path: str, context: CostContext, *, root: bool, uncorrelated: str) -> None:
        """Check the rules of one schema.

        `uncorrelated` is the path of the innermost list or map around it whose elements have no identity, so that
        rules cannot compare them with old ones; empty if there is none.
        """
        declared = decl_type(context.node, "selfType", root=root or context.node.embedded)
        rules_path = f"{path}.x-kubernetes-validations"
        if declared is None:
            reason = "unable to convert structural schema to CEL declarations"
            detail = (
                f"internal error: failed to construct type information for x-kubernetes-validations rules: {reason}"
            )
            self.problems.append(FieldProblem(ProblemKind.INTERNAL, rules_path, NO_VALUE, detail))
            return
        for index, rule in enumerate(schema["x-kubernetes-validations"]):
            compiled, rule_path = compile_rule(rule, declared.type), f"{rules_path}[{index}]"
            self._check_rule_cost(compiled, declared, f"{rule_path}.rule", context)
            self._check_compilation(compiled, declared, rule_path)
            self._check_old_self(compiled, rule_path, uncorrelated)

    def _check_rule_cost(
        self, compiled: CompilationResult, declared: DeclType, path: str, context: CostContext
    ) -> None:
        if compiled.checked_expr is None:
            return
        occurrences = context.max_occurrences
        if occurrences is None:
            occurrences = MAX_REQUEST_BYTES // (declared.min_serialized_size + 1)
        cost = min(estimate_cost(compiled.checked_expr, declared) * occurrences, MAX_COST)
        self._check_cost("estimated rule cost", cost, path)

    def _check_compilation(self, compiled: CompilationResult, declared: DeclType, path: str) -> None:
        printed = _PrintedRule.from_rule(compiled.rule)
        if compiled.error:
            self.problems.append(invalid(f"{path}.rule", printed, compiled.error))
        if compiled.message_error:
            self.problems.append(invalid(f"{path}.messageExpression", printed, compiled.message_error))
        elif compiled.message_expr is not None:
            cost = estimate_cost(compiled.message_expr, declared)
            self._check_cost("estimated messageExpression cost", cost, f"{path}.messageExpression")

    def _check_old_self(self, compiled: CompilationResult, path: str, uncorrelated: str) -> None:
        optional = compiled.rule.get("optionalOldSelf")
        if compiled.uses_old_self:
            if uncorrelated:
                detail = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelated}"
                self.problems.append(invalid(f"{path}.rule", compiled.rule.get("rule"), detail))
        elif optional is not None:
            detail = "may not be set if oldSelf is not used in rule"
            self.problems.append(invalid(f"{path}.optionalOldSelf", optional, detail))

    def _check_cost(self, name: str, cost: int, path: str) -> None:
        if cost > RULE_COST_LIMIT:
            self.problems.append(forbidden(path, _cost_exceeded_message(name, cost, RULE_COST_LIMIT)))
        self._total_cost = min(self._total_cost + cost, MAX_COST)
        if cost >= TOTAL_COST_LIMIT // 100:
            costs = sorted([*self._costliest, (cost, path)], key=lambda entry: -entry[0])
            self._costliest = costs[:_MAX_COSTLIEST_RULES]

    def total_cost_problems(self, path: str) -> list[FieldProblem]:
        """Problems of a schema whose rules together cost too much; the costliest rules first."""
        if self._total_cost <= TOTAL_COST_LIMIT:
            return []
        share = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
        name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        message = _cost_exceeded_message(name, self._total_cost, TOTAL_COST_LIMIT)
        return [*(forbidden(rule_path, share) for _, rule_path in self._costliest), forbidden(path, message)]


def _cost_exceeded_message(name: str, cost: int, limit: int) -> str:
    factor = cost / limit
    text = "more than 100x" if factor > 100 else f"{factor:f}x" if factor < 1.5 else f"{_one_decimal(factor)}x"
    return f"{name} exceeds budget by factor of {text} {_COST_ADVICE}"


def _one_decimal(factor: float) -> str:
    return f"{factor:.1f}" if math.isfinite(factor) else "+Inf"
