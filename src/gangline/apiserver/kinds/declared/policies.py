"""Validating admission policies: their expressions, compiled, and what is wrong with a policy."""

from collections.abc import Callable

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.kinds.declared.expressions import AdmissionVariables, CompilationError
from gangline.apiserver.kinds.declared.match_conditions import validate_match_conditions
from gangline.apiserver.kinds.declared.strategy import DeclaredStrategy
from gangline.apiserver.kinds.declared.webhooks import validate_rule
from gangline.apiserver.kinds.machinery import formats
from gangline.apiserver.kinds.machinery.selectors import validate_label_selector
from gangline.schema.cel.program import CelProgram
from gangline.schema.cel.types import BOOL, DYN, NULL, STRING, CelType
from gangline.schema.problems import FieldProblem, duplicate, invalid, invalid_each, required, unsupported

REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_MAX_ANNOTATIONS = 20
_NO_CHECK = "validations or auditAnnotations must contain at least one item"

ReportFunc = Callable[[str, str, CompilationError], object]
"""Called with the path and the source of each expression that cannot be compiled."""


class CompiledCheck(msgspec.Struct, frozen=True):
    """One of the `validations` of a policy."""

    expression: CelProgram
    message: CelProgram | None


class CompiledPolicy(msgspec.Struct, frozen=True):
    """The expressions of a policy as programs, in the order of the policy."""

    conditions: tuple[CelProgram, ...]
    variables: tuple[tuple[str, CelProgram], ...]
    checks: tuple[CompiledCheck, ...]
    annotations: tuple[CelProgram, ...]


class _PolicyCompiler:
    def __init__(self, spec: JSON, report: ReportFunc) -> None:
        params = spec.get("paramKind") is not None
        self._spec, self._report = spec, report
        self._with_authorizer = AdmissionVariables(params=params)
        self._messages = AdmissionVariables(params=params, authorizer=False)

    def compile(self) -> CompiledPolicy:
        spec = self._spec
        conditions = self._programs("matchConditions", "expression", BOOL)
        variables: list[tuple[str, CelProgram]] = []
        for index, variable in enumerate(spec.get("variables", ())):
            program = self._program(f"spec.variables[{index}].expression", variable.get("expression", ""))
            if program is not None:
                variables.append((variable["name"], program))
            for names in (self._with_authorizer, self._messages):
                names.declare(variable.get("name", ""), DYN if program is None else program.checked_expr.result)
        checks: list[CompiledCheck] = []
        for index, check in enumerate(spec.get("validations", ())):
            path = f"spec.validations[{index}]"
            expression = self._program(f"{path}.expression", check.get("expression", ""), BOOL)
            message = self._program(
                f"{path}.messageExpression", check.get("messageExpression", ""), STRING, messages=True
            )
            if expression is not None:
                checks.append(CompiledCheck(expression, message))
        annotations = self._programs("auditAnnotations", "valueExpression", STRING, NULL)
        return CompiledPolicy(conditions, tuple(variables), tuple(checks), annotations)

    def _programs(self, field: str, part: str, *returns: CelType) -> tuple[CelProgram, ...]:
        programs = (
            self._program(f"spec.{field}[{index}].{part}", item.get(part, ""), *returns)
            for index, item in enumerate(self._spec.get(field, ()))
        )
        return tuple(program for program in programs if program is not None)

    def _program(self, path: str, source: str, *returns: CelType, messages: bool = False) -> CelProgram | None:
        if not source.strip():
            return None
        try:
            return (self._messages if messages else self._with_authorizer).compile(source, *returns)
        except CompilationError as error:
            self._report(path, source, error)
            return None


def compile_policy(spec: JSON, report: ReportFunc = lambda path, source, error: None) -> CompiledPolicy:
    """The expressions of a policy; those that cannot be compiled are reported and left out."""
    return _PolicyCompiler(spec, report).compile()


class ValidatingPolicyStrategy(DeclaredStrategy):
    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        spec = obj.get("spec") or {}
        problems = _validate_param_kind(spec.get("paramKind"))
        constraints = spec.get("matchConstraints")
        if constraints is None:
            problems.append(required("spec.matchConstraints"))
        else:
            problems += validate_match_resources(constraints, "spec.matchConstraints")
            if not constraints.get("resourceRules"):
                problems.append(required("spec.matchConstraints.resourceRules"))
        # Their expressions are compiled with all the others below.
        problems += validate_match_conditions(
            spec.get("matchConditions", ()), "spec.matchConditions", lambda source: None
        )
        problems += _validate_variables(spec) + _validate_checks(spec) + _validate_annotations(obj, spec)

        def report(path: str, source: str, error: CompilationError) -> None:
            problems.append(invalid(path, source, str(error)))

        compile_policy(spec, report)
        return problems + [one for one in super().validate_content(obj) if not one.field.endswith(".reason")]


def validate_match_resources(config: JSON, path: str) -> list[FieldProblem]:
    """Problems of the constraints of a policy, or of the resources of a binding."""
    problems = validate_label_selector(config.get("namespaceSelector"), f"{path}.namespaceSelector")
    problems += validate_label_selector(config.get("objectSelector"), f"{path}.objectSelector")
    for field in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(config.get(field, ())):
            problems += validate_rule(rule, f"{path}.{field}[{index}]")
    return problems


def _validate_param_kind(kind: JSON | None) -> list[FieldProblem]:
    if kind is None:
        return []
    return [required(f"spec.paramKind.{name}") for name in ("apiVersion", "kind") if not kind.get(name)]


def _validate_variables(spec: JSON) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for index, variable in enumerate(spec.get("variables", ())):
        name, path = variable.get("name", ""), f"spec.variables[{index}]"
        if not name.strip():
            problems.append(required(f"{path}.name", "name is not specified"))
        elif not name.isidentifier():
            problems.append(invalid(f"{path}.name", name, "must be a valid CEL identifier"))
        if not variable.get("expression", "").strip():
            problems.append(required(f"{path}.expression", "expression is not specified"))
    return problems


def _validate_checks(spec: JSON) -> list[FieldProblem]:
    checks = spec.get("validations", ())
    if not checks and not spec.get("auditAnnotations"):
        return [required("spec.validations", _NO_CHECK), required("spec.auditAnnotations", _NO_CHECK)]
    problems: list[FieldProblem] = []
    for index, check in enumerate(checks):
        path = f"spec.validations[{index}]"
        if not check.get("expression", "").strip():
            problems.append(required(f"{path}.expression", "expression is not specified"))
        for field in ("messageExpression", "message"):
            text = check.get(field, "")
            if text and not text.strip():
                problems.append(invalid(f"{path}.{field}", text, "must be non-empty if specified"))
        message = check.get("message", "")
        if "\n" in message.strip():
            problems.append(invalid(f"{path}.message", message, "must not contain line breaks"))
        reason = check.get("reason")
        if reason is not None and reason not in REASONS:
            problems.append(unsupported(f"{path}.reason", reason, REASONS))
    return problems


def _validate_annotations(obj: JSON, spec: JSON) -> list[FieldProblem]:
    annotations, path, policy = spec.get("auditAnnotations", ()), "spec.auditAnnotations", obj["metadata"].get("name")
    problems: list[FieldProblem] = []
    if len(annotations) > _MAX_ANNOTATIONS:
        detail = f"must not have more than {_MAX_ANNOTATIONS} auditAnnotations"
        problems.append(invalid(path, annotations, detail))
    keys = [annotation.get("key", "") for annotation in annotations]
    for index, annotation in enumerate(annotations):
        here, name = f"{path}[{index}]", f"{policy}/{keys[index]}"
        problems += invalid_each(f"{here}.key", name, formats.qualified_name_errors(name))
        if not annotation.get("valueExpression", "").strip():
            problems.append(required(f"{here}.valueExpression", "valueExpression is not specified"))
        if keys[index] in keys[:index]:
            problems.append(duplicate(f"{here}.key", keys[index]))
    return problems
