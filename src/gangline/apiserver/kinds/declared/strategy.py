"""The strategy of kinds whose rules are data."""

from typing import Any

from gangline.api.meta import JSON
from gangline.apiserver.kinds.declared import rules as declared
from gangline.apiserver.kinds.declared.rules import KindRules
from gangline.apiserver.kinds.machinery.strategy import Strategy
from gangline.schema.problems import FieldProblem


class DeclaredStrategy(Strategy):
    """The strategy of one kind: the published schema says what it has, its rules say what is valid.

    Kinds with rules that are no data derive from it.
    """

    def __init__(self, definition: str, rules: KindRules, *, namespaced: bool, status: bool) -> None:
        """`definition` is the kind's name in the published schemas."""
        # Set on the instance: each kind has its own.
        self.struct = definition.removeprefix("io.k8s.api.")  # type: ignore[misc]
        self.namespaced = namespaced  # type: ignore[misc]
        self.has_status = status  # type: ignore[misc]
        self.has_generation = bool(rules.generation)  # type: ignore[misc]
        self.name_errors = declared.FORMATS[rules.name_format]  # type: ignore[misc]
        super().__init__()
        self._definition, self._rules = definition, rules

    def set_defaults(self, obj: JSON) -> None:
        declared.set_defaults(self._rules, obj)

    def prepare_for_create(self, obj: JSON, now: str) -> None:
        super().prepare_for_create(obj, now)
        metadata = obj["metadata"]
        if self._rules.generation_on_update_only:
            metadata.pop("generation", None)
        if self._rules.finalizer and self._rules.finalizer not in metadata.get("finalizers", ()):
            metadata["finalizers"] = [*metadata.get("finalizers", ()), self._rules.finalizer]

    def generation_fields(self, obj: JSON) -> Any:
        return [obj.get(name) for name in self._rules.generation]

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        return [*declared.validate_fields(self._rules, obj), *declared.validate_choices(self._definition, obj)]

    def validate_transition(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return list(declared.validate_change(self._rules, obj, old))
