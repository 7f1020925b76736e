"""The rules of a custom resource, from its schema."""

from functools import cached_property
from typing import Any

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import metadata
from gangline.apiserver.kinds.machinery.strategy import Kind
from gangline.schema.go_text import quoted
from gangline.schema.problems import Problem, ProblemKind
from gangline.schema.structural.schema import Structural

_MOST_REPLICAS = 2**31 - 1


class CustomKind(Kind):
    """Rules of one version of a custom resource."""

    generation = True

    def __init__(
        self, schema: JSON, *, status: bool, namespaced: bool, replicas: tuple[tuple[str, ...], ...] = ()
    ) -> None:
        """`replicas` is where `scale` has those that are wanted and those that are, if the kind has one."""
        super().__init__()
        self._replicas = replicas
        self._said = schema
        # Set on the instance: each custom kind has its own.
        self.has_status = status  # type: ignore[misc]
        self.namespaced = namespaced  # type: ignore[misc]

    @cached_property
    def _schema(self) -> Structural:
        # Compiled with the first object: a server has many definitions, and most are of kinds nobody uses.
        return Structural.of(self._said)

    def prepared(self, obj: JSON) -> list[str]:
        """Default and prune; the paths of fields that were dropped."""
        return self._schema.prepare(obj)

    def create(self, obj: JSON, now: str) -> None:
        obj["metadata"]["generation"] = 1
        if self.has_status:
            obj.pop("status", None)

    def spec_of(self, obj: JSON) -> Any:
        left_out = ("metadata", "status") if self.has_status else ("metadata",)
        return {name: value for name, value in obj.items() if name not in left_out}

    def update_status(self, obj: JSON, old: JSON) -> None:
        super().update_status(obj, old)
        # Metadata stays as it was; only who owns what is noted.
        managed = obj["metadata"].get("managedFields")
        obj["metadata"] = {name: value for name, value in old["metadata"].items() if name != "managedFields"}
        if managed:
            obj["metadata"]["managedFields"] = managed

    def warnings(self, obj: JSON, old: JSON | None) -> list[str]:
        told = _unqualified(obj["metadata"], (old or {}).get("metadata") or {})
        if old is None or not self._schema.has_rules:
            return told
        return [*told, *self._schema.validate(obj, old).warnings]

    def validate_metadata(self, obj: JSON) -> list[Problem]:
        # Unlike with core kinds, any qualified name is fine for a finalizer.
        return metadata.validate(obj["metadata"], self.name_check, namespaced=self.namespaced)

    def validate(self, obj: JSON) -> list[Problem]:
        return [*self.validate_metadata(obj), *self._validate(obj)]

    def _validate(self, obj: JSON, old: JSON | None = None) -> list[Problem]:
        return [*self._schema.validate(obj, old).problems, *self._scale(obj)]

    def _scale(self, obj: JSON) -> list[Problem]:
        return [problem for steps in self._replicas for problem in _scaled_wrong(obj, steps)]

    def validate_update(self, obj: JSON, old: JSON) -> list[Problem]:
        return [
            *metadata.validate_update(obj["metadata"], old["metadata"]),
            *self._validate(obj, old),
        ]

    def validate_status_update(self, obj: JSON, old: JSON) -> list[Problem]:
        return [
            *metadata.validate_update(obj["metadata"], old["metadata"]),
            *self._schema.validate_status(obj, old).problems,
            *self._scale(obj),
        ]


def _scaled_wrong(obj: JSON, steps: tuple[str, ...]) -> list[Problem]:
    found: Any = obj
    for step in steps:
        found = found.get(step) if isinstance(found, dict) else None
    if not isinstance(found, int) or isinstance(found, bool) or 0 <= found <= _MOST_REPLICAS:
        return []  # of another type: the schema has said so
    limit = "a non-negative integer" if found < 0 else f"less than or equal to {_MOST_REPLICAS}"
    return [Problem(ProblemKind.INVALID, f".{'.'.join(steps)}", found, f"should be {limit}")]


def _unqualified(new: JSON, old: JSON) -> list[str]:
    """Of finalizers that are new and that another controller could choose as well."""
    added = {*new.get("finalizers", ())} - {*old.get("finalizers", ()), "orphan", "foregroundDeletion"}
    return [
        f"metadata.finalizers: {quoted(name)}: prefer a domain-qualified finalizer name "
        "to avoid accidental conflicts with other finalizer writers"
        for name in sorted(added)
        if "/" not in name
    ]
