"""The schema of one version of a custom resource, compiled once and used for every request.

`StructuralSchema.from_schema` compiles it; `prepare`, `validate` and `validate_status` serve requests. All are pure,
except that they change the object where their docstring says so.
"""

from functools import lru_cache
from typing import Any

import msgspec

from gangline.schema.cel.rules import compile_rules
from gangline.schema.correlation import CorrelatedValue
from gangline.schema.nodes import SchemaNode
from gangline.schema.problems import FieldProblem, ProblemKind, invalid
from gangline.schema.structural import defaulting, embedded_objects, fast_path, list_types
from gangline.schema.structural.pruning import Pruner
from gangline.schema.structural.validation import validate as careful_walk

_BLOCKING_KINDS = (
    ProblemKind.NOT_SUPPORTED,
    ProblemKind.REQUIRED,
    ProblemKind.TOO_LONG,
    ProblemKind.TOO_MANY,
    ProblemKind.TYPE_INVALID,
)
_RULES_NOT_CHECKED = invalid(
    "<nil>",
    None,
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


class ValidationResult(msgspec.Struct, frozen=True):
    """The result of validation. Without problems, the object may be stored."""

    problems: list[FieldProblem]
    warnings: list[str]
    """Texts for `Warning` headers: rules that fail on unchanged values."""


_VALID = ValidationResult([], [])


class StructuralSchema:
    """A compiled schema."""

    def __init__(self, node: SchemaNode) -> None:
        self.node = node
        self._default_filler = defaulting.default_filler(node)
        self._pruner = Pruner(node, root=True, nulls=True)
        self._has_embedded = node.has_embedded
        self._is_surely_valid = fast_path.compile_check(node)
        self._compiled_rules = compile_rules(node, root=True)
        self._status_node = node.properties.get("status")

    @classmethod
    def from_schema(cls, schema: dict[str, Any]) -> "StructuralSchema":
        """Compile an `openAPIV3Schema` in which `check_crd_schema` finds no problem."""
        return cls(SchemaNode(schema))

    @property
    def has_rules(self) -> bool:
        """Whether there are CEL rules, which may cause warnings."""
        return self._compiled_rules is not None

    def prepare(self, obj: dict[str, Any]) -> list[str]:
        """Default, prune, drop nulls and make embedded metadata well formed, in place and in kube-apiserver's order.

        Returns the paths of dropped fields, for `unknown field "spec.x"`. Idempotent. Raises `MetadataError`.
        """
        self.default(obj)
        return self.prune(obj)

    def default(self, obj: dict[str, Any]) -> None:
        """Fill in defaults in place. A null that is not allowed is replaced by the default."""
        if self._default_filler is not None:
            self._default_filler.fill(obj)

    def prune(self, obj: dict[str, Any]) -> list[str]:
        """Drop unknown fields, and nulls that are not allowed and have no default, in place.

        Returns the paths of unknown fields. Nulls in lists are kept, and are then invalid. Raises `MetadataError`.
        """
        dropped = sorted(self._pruner.prune(obj))
        return dropped + embedded_objects.coerce_metadata(obj, self.node) if self._has_embedded else dropped

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None = None) -> ValidationResult:
        """All problems of a new object, or of an update of `old`.

        Metadata of the object itself is not validated here, because it is the same for all kinds.
        """
        pair = CorrelatedValue(obj, old, self.node) if old is not None else None
        problems: list[FieldProblem] = []
        if not self._is_surely_valid(obj):
            problems += careful_walk(obj, self.node, pair=pair)
            problems += embedded_objects.validate_embedded(obj, self.node)
            problems += self._duplicate_problems(obj, old)
        return self._with_rule_results(obj, old, pair, problems)

    def validate_status(self, obj: dict[str, Any], old: dict[str, Any]) -> ValidationResult:
        """All problems of an update of the status, which changes nothing else."""
        pair = CorrelatedValue(obj, old, self.node)
        problems: list[FieldProblem] = []
        if "status" in obj and self._status_node is not None and not self._is_surely_valid(obj):
            problems += careful_walk(obj["status"], self._status_node, prefix="status", pair=pair.field("status"))
            problems += self._duplicate_problems(obj, old)
        return self._with_rule_results(obj, old, pair, problems)

    def _duplicate_problems(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[FieldProblem]:
        problems = list_types.duplicate_problems(obj, self.node)
        return problems if not (problems and old is not None and list_types.duplicate_problems(old, self.node)) else []

    def _with_rule_results(
        self,
        obj: dict[str, Any],
        old: dict[str, Any] | None,
        pair: CorrelatedValue | None,
        problems: list[FieldProblem],
    ) -> ValidationResult:
        if self._compiled_rules is None:
            return ValidationResult(problems, []) if problems else _VALID
        if any(problem.kind in _BLOCKING_KINDS for problem in problems):
            return ValidationResult([*problems, _RULES_NOT_CHECKED], [])
        outcome = self._compiled_rules.run(obj, old, pair=pair)
        return ValidationResult(problems + outcome.problems, outcome.warnings)


def compiled_schema(schema: dict[str, Any]) -> StructuralSchema:
    """`StructuralSchema.from_schema`, compiled once for equal schemas: `gangline run` checks a job as its plane does."""
    return _compiled_schema(msgspec.json.encode(schema))


@lru_cache(maxsize=16)
def _compiled_schema(text: bytes) -> StructuralSchema:
    return StructuralSchema.from_schema(msgspec.json.decode(text))
