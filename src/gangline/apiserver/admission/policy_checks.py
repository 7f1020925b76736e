"""Evaluates the expressions of validating admission policies. Imports CEL, which is large."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.admission.policy_outcome import PolicyFailure, PolicyOutcome
from gangline.apiserver.admission.webhooks.conditions import evaluate_conditions
from gangline.apiserver.kinds.declared.expressions import COST_BUDGET
from gangline.apiserver.kinds.declared.policies import CompiledPolicy, compile_policy
from gangline.schema.cel.program import CelProgram
from gangline.schema.cel.values import CelError

_MAX_ANNOTATION_BYTES = 10 * 1024
_MAX_MESSAGE_BYTES = 5 * 1024


class _LazyVariables(dict[str, Any]):
    """The `variables` of a policy: each is evaluated when it is first read, so that one that nobody reads cannot fail."""

    def __init__(self, programs: Iterable[tuple[str, CelProgram]], scope: Mapping[str, Any]) -> None:
        super().__init__()
        self._programs, self._scope = dict(programs), scope

    def __contains__(self, name: object) -> bool:
        return name in self._programs

    def __getitem__(self, name: str) -> Any:
        if not super().__contains__(name):
            super().__setitem__(name, self._programs[name].run(self._scope)[0])
        return super().__getitem__(name)


@lru_cache(64)
def _compiled(spec: bytes) -> CompiledPolicy:
    return compile_policy(msgspec.json.decode(spec))


def evaluate_policy(spec: JSON, scope: dict[str, Any]) -> PolicyOutcome:
    """What a policy says about a request, whose objects are in `scope`."""
    compiled = _compiled(msgspec.json.encode(spec))
    scope = dict(scope)
    scope["variables"] = _LazyVariables(compiled.variables, scope)
    ignores = spec.get("failurePolicy") == "Ignore"
    conditions = evaluate_conditions(spec.get("matchConditions") or (), compiled.conditions, scope)
    if not conditions.matches:
        return PolicyOutcome()
    if conditions.error:
        return PolicyOutcome() if ignores else PolicyOutcome((PolicyFailure(conditions.error),))
    failures: list[PolicyFailure] = []
    budget = COST_BUDGET
    for index, (check, programs) in enumerate(zip(spec.get("validations") or (), compiled.checks, strict=True)):
        try:
            value, cost = programs.expression.run(scope)
            budget -= cost
            if budget < 0:
                raise CelError(
                    "validation failed due to running out of cost budget, no further validation rules will be run"
                )
        except CelError as error:
            if not ignores:
                text = f"expression '{check['expression']}' resulted in error: {error}"
                failures.append(PolicyFailure(text, index=index))
            continue
        if value is not True:
            message = _message(check, programs.message, scope)
            failures.append(PolicyFailure(message, check.get("reason") or "Invalid", index))
    annotations, errors = _annotations(spec, compiled, scope, ignores=ignores)
    return PolicyOutcome(tuple(failures), annotations, errors)


def _message(check: JSON, program: CelProgram | None, scope: Mapping[str, Any]) -> str:
    text = ""
    if program is not None:
        try:
            text = str(program.run(scope)[0]).strip()
        except CelError:
            text = ""
        if "\n" in text or len(text.encode()) > _MAX_MESSAGE_BYTES:
            text = ""
    return text or check.get("message", "").strip() or f"failed expression: {check['expression'].strip()}"


def _annotations(
    spec: JSON, compiled: CompiledPolicy, scope: Mapping[str, Any], *, ignores: bool
) -> tuple[tuple[tuple[str, str], ...], tuple[PolicyFailure, ...]]:
    found: list[tuple[str, str]] = []
    errors: list[PolicyFailure] = []
    for annotation, program in zip(spec.get("auditAnnotations") or (), compiled.annotations, strict=True):
        try:
            value, _ = program.run(scope)
        except CelError as error:
            if not ignores:
                errors.append(PolicyFailure(f"expression '{annotation['valueExpression']}' resulted in error: {error}"))
            continue
        if isinstance(value, str) and value.strip():
            found.append((annotation["key"], value.strip()[:_MAX_ANNOTATION_BYTES]))
    return tuple(found), tuple(errors)
