"""The schema of one version of a custom resource, prepared once and used for every request.

`Structural.of(schema)` reads it; `prepare`, `validate` and `validate_status` are what a request needs. All are pure:
they change the object they are given, where they say so, and nothing else.
"""

from typing import Any

import msgspec

from gangline.schema.cel.rules import rules_of
from gangline.schema.problems import Problem, ProblemKind
from gangline.schema.structural import defaulting, embedded_objects, fast_path, list_types
from gangline.schema.structural.correlation import Pair
from gangline.schema.structural.nodes import Node
from gangline.schema.structural.pruning import Pruner
from gangline.schema.structural.validation import validate as careful_walk

_BLOCKING = (
    ProblemKind.NOT_SUPPORTED,
    ProblemKind.REQUIRED,
    ProblemKind.TOO_LONG,
    ProblemKind.TOO_MANY,
    ProblemKind.TYPE_INVALID,
)
_NOT_CHECKED = Problem(
    ProblemKind.INVALID,
    "<nil>",
    None,
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


class Verdict(msgspec.Struct, frozen=True):
    """What validation found. No problems: the object may be stored."""

    problems: list[Problem]
    warnings: list[str]
    """Sentences for `Warning:` headers: rules that fail on values that did not change."""


_FINE = Verdict([], [])


class Structural:
    """A compiled schema."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._defaults = defaulting.of(node)
        self._pruner = Pruner(node, root=True, nulls=True)
        self._embedded = node.has_embedded
        self._surely_valid = fast_path.compile_check(node)
        self._rules = rules_of(node, root=True)
        self._status = node.properties.get("status")

    @classmethod
    def of(cls, schema: dict[str, Any]) -> "Structural":
        """From `openAPIV3Schema`, which `check_crd_schema` has found no problem with."""
        return cls(Node(schema))

    @property
    def has_rules(self) -> bool:
        """Whether there are CEL rules, whose outcome may be a warning."""
        return self._rules is not None

    def prepare(self, obj: dict[str, Any]) -> list[str]:
        """Default, prune, drop nulls, make embedded metadata well formed: in place, in the server's order.

        Returns the paths of what was dropped, for `unknown field "spec.x"`. Idempotent. Raises `MetadataError`.
        """
        self.default(obj)
        return self.prune(obj)

    def default(self, obj: dict[str, Any]) -> None:
        """Fill in defaults, in place. A null that is not allowed is replaced where there is a default."""
        if self._defaults is not None:
            self._defaults.fill(obj)

    def prune(self, obj: dict[str, Any]) -> list[str]:
        """Drop unknown fields, and nulls that are neither allowed nor have a default: in place.

        Returns the paths of unknown fields. Nulls in lists stay, and are then invalid. Raises `MetadataError`.
        """
        dropped = sorted(self._pruner.walk(obj))
        return dropped + embedded_objects.coerce(obj, self.node) if self._embedded else dropped

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None = None) -> Verdict:
        """All that is wrong with a new object, or with an update of an old one.

        Metadata of the object itself is not looked at; that is the same for all kinds.
        """
        pair = Pair(obj, old, self.node) if old is not None else None
        problems: list[Problem] = []
        if not self._surely_valid(obj):
            problems += careful_walk(obj, self.node, pair=pair)
            problems += embedded_objects.validate_embedded(obj, self.node)
            problems += self._doubles(obj, old)
        return self._ruled(obj, old, pair, problems)

    def validate_status(self, obj: dict[str, Any], old: dict[str, Any]) -> Verdict:
        """The same for an update of the status, of which nothing else can have changed."""
        pair = Pair(obj, old, self.node)
        problems: list[Problem] = []
        if "status" in obj and self._status is not None and not self._surely_valid(obj):
            problems += careful_walk(obj["status"], self._status, prefix="status", pair=pair.field("status"))
            problems += self._doubles(obj, old)
        return self._ruled(obj, old, pair, problems)

    def _doubles(self, obj: dict[str, Any], old: dict[str, Any] | None) -> list[Problem]:
        found = list_types.validate_lists(obj, self.node)
        return found if not (found and old is not None and list_types.validate_lists(old, self.node)) else []

    def _ruled(
        self, obj: dict[str, Any], old: dict[str, Any] | None, pair: Pair | None, problems: list[Problem]
    ) -> Verdict:
        if self._rules is None:
            return Verdict(problems, []) if problems else _FINE
        if any(problem.kind in _BLOCKING for problem in problems):
            return Verdict([*problems, _NOT_CHECKED], [])
        outcome = self._rules.run(obj, old, pair=pair)
        return Verdict(problems + outcome.problems, outcome.warnings)
