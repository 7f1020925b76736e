"""The strategy of custom resources, made from their schema."""

from functools import cached_property
from typing import Any

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery.metadata import MetadataRules
from gangline.apiserver.kinds.machinery.strategy import StatusStrategy, Strategy
from gangline.schema.go_text import quoted_text
from gangline.schema.problems import FieldProblem, invalid
from gangline.schema.structural.schema import StructuralSchema, compiled_schema

_MAX_REPLICAS = 2**31 - 1


class CustomResourceStrategy(Strategy):
    """The strategy of one version of a custom resource."""

    has_generation = True
    metadata_rules = MetadataRules

    def __init__(
        self, schema: JSON, *, status: bool, namespaced: bool, replicas: tuple[tuple[str, ...], ...] = ()
    ) -> None:
        """`replicas` are the paths of the desired and actual replicas, if the kind has the `scale` subresource."""
        # Set on the instance: each custom kind has its own.
        self.has_status = status  # type: ignore[misc]
        self.namespaced = namespaced  # type: ignore[misc]
        super().__init__()
        self.status = CustomResourceStatusStrategy(self)
        self._replica_paths = replicas
        self._raw_schema = schema

    @cached_property
    def _schema(self) -> StructuralSchema:
        # Compiled with the first object: a server has many definitions, most of them unused.
        return compiled_schema(self._raw_schema)

    def default_and_prune(self, obj: JSON) -> list[str]:
        """Default and prune in place. Returns the paths of the dropped fields."""
        return self._schema.prepare(obj)

    def prepare_for_create(self, obj: JSON, now: str) -> None:
        obj["metadata"]["generation"] = 1
        if self.has_status:
            obj.pop("status", None)

    def generation_fields(self, obj: JSON) -> Any:
        excluded = ("metadata", "status") if self.has_status else ("metadata",)
        return {name: value for name, value in obj.items() if name not in excluded}

    def warnings(self, obj: JSON, old: JSON | None) -> list[str]:
        finalizer_warnings = _unqualified_finalizer_warnings(obj["metadata"], (old or {}).get("metadata") or {})
        if old is None or not self._schema.has_rules:
            return finalizer_warnings
        return [*finalizer_warnings, *self._schema.validate(obj, old).warnings]

    def validate(self, obj: JSON) -> list[FieldProblem]:
        return [*self.metadata.validate(obj), *self._content_problems(obj)]

    def validate_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return [*self.metadata.validate_update(obj, old), *self._content_problems(obj, old)]

    def _content_problems(self, obj: JSON, old: JSON | None = None) -> list[FieldProblem]:
        return [*self._schema.validate(obj, old).problems, *self._scale_problems(obj)]

    def _scale_problems(self, obj: JSON) -> list[FieldProblem]:
        return [problem for steps in self._replica_paths for problem in _replicas_problems(obj, steps)]

    def status_problems(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        """Problems of a changed status by the schema, and of the replicas that `scale` shows."""
        return [*self._schema.validate_status(obj, old).problems, *self._scale_problems(obj)]


class CustomResourceStatusStrategy(StatusStrategy):
    """The strategy of the status subresource of one version of a custom resource."""

    def __init__(self, resource: CustomResourceStrategy) -> None:
        super().__init__(resource.metadata)
        self._resource = resource

    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        super().prepare_for_update(obj, old)
        # Metadata stays as it was, except for the record of field managers.
        managed = obj["metadata"].get("managedFields")
        obj["metadata"] = {name: value for name, value in old["metadata"].items() if name != "managedFields"}
        if managed:
            obj["metadata"]["managedFields"] = managed

    def validate_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return [*self.metadata.validate_update(obj, old), *self._resource.status_problems(obj, old)]


def _replicas_problems(obj: JSON, steps: tuple[str, ...]) -> list[FieldProblem]:
    replicas: Any = obj
    for step in steps:
        replicas = replicas.get(step) if isinstance(replicas, dict) else None
    if not isinstance(replicas, int) or isinstance(replicas, bool) or 0 <= replicas <= _MAX_REPLICAS:
        return []  # The schema reports a wrong type.
    limit = "a non-negative integer" if replicas < 0 else f"less than or equal to {_MAX_REPLICAS}"
    return [invalid(f".{'.'.join(steps)}", replicas, f"should be {limit}")]


def _unqualified_finalizer_warnings(new: JSON, old: JSON) -> list[str]:
    """Warnings about new finalizers without a domain, which another controller could use as well."""
    added = {*new.get("finalizers", ())} - {*old.get("finalizers", ()), "orphan", "foregroundDeletion"}
    return [
        f"metadata.finalizers: {quoted_text(name)}: prefer a domain-qualified finalizer name "
        "to avoid accidental conflicts with other finalizer writers"
        for name in sorted(added)
        if "/" not in name
    ]
