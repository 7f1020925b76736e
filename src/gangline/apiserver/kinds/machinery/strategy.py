"""What the registry asks of a kind, as kube-apiserver's create, update and status strategies.

`Strategy` alone serves a kind without rules of its own; subclasses say what differs. It holds two parts: `metadata`
validates metadata, `status` serves the status subresource.

On create the registry decodes the object, calls `normalize`, writes managedFields, runs its admission (limits,
priority), sets uid, creationTimestamp and name, and calls `prepare_for_create` and `validate`. On update it decodes,
calls `normalize`, writes managedFields, restores metadata that clients may leave out, and calls `prepare_for_update`
and `validate_update`; for the status subresource it calls these two of `status`. Fields that the `prepare_for_...`
methods set belong to no field manager.

All methods change the new object in place and never the old one. Parts of the old object may end up shared with the
new one.
"""

from typing import Any, ClassVar

from gangline.api.meta import JSON
from gangline.apiserver.errors import NamedKind
from gangline.apiserver.kinds.machinery import formats
from gangline.apiserver.kinds.machinery.canonical import Canonicalizer, canonicalizer
from gangline.apiserver.kinds.machinery.metadata import CoreMetadataRules, MetadataRules
from gangline.schema.problems import FieldProblem


class StatusStrategy:
    """Rules of a kind's status subresource. Stateless and shared."""

    def __init__(self, metadata: MetadataRules) -> None:
        self.metadata = metadata

    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        """Restore what an update of the status may not change: all fields but status and metadata."""
        for name in {*obj, *old} - {"status", "metadata"}:
            restore_field(obj, old, name)

    def validate_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        """All problems of an object with a changed status."""
        return [*self.metadata.validate_common_update(obj, old), *self.validate_kind_update(obj, old)]

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        """Problems that the kind itself reports, beside those that are reported for every kind."""
        return [*self.metadata.validate_update(obj, old), *self.validate_status(obj, old)]

    def validate_status(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        """Problems of the changed status itself."""
        return []


class Strategy:
    """Rules of one kind. Stateless and shared."""

    struct: ClassVar[str] = ""
    """The kind's Go struct in Kubernetes' API, `core.v1.Pod`. Without one, objects stay as clients send them."""
    namespaced: ClassVar[bool] = True
    has_status: ClassVar[bool] = False
    """Whether status is a subresource: updates of the object keep the status, creation resets it."""
    revalidates_on_update: ClassVar[bool] = False
    """Whether an update is also validated as a new object, which reports problems of metadata twice."""
    has_generation: ClassVar[bool] = False
    """Whether metadata.generation starts at 1 and grows by one with every changed spec."""
    name_errors: "ClassVar[staticmethod[[str], tuple[str, ...]]]" = staticmethod(formats.dns_subdomain_errors)
    """What is wrong with a name of an object of this kind."""
    problems_kind: ClassVar[NamedKind | None] = None
    """The kind that errors of validation name, where it is not that of the URL."""
    metadata_rules: ClassVar[type[MetadataRules]] = CoreMetadataRules
    status_strategy: ClassVar[type[StatusStrategy]] = StatusStrategy

    def __init__(self) -> None:
        self._canonicalizer: Canonicalizer | None = canonicalizer(self.struct) if self.struct else None
        self.metadata = self.metadata_rules(self.name_errors, namespaced=self.namespaced)
        self.status = self.status_strategy(self.metadata)

    def part(self, subresource: str) -> StatusStrategy | None:
        """The rules of a subresource other than status that shows the object itself; None if it is none."""
        return None

    def normalize(self, obj: JSON) -> None:
        """Make a decoded object what the server would store. Raises `QuantityError` for an invalid quantity."""
        if self._canonicalizer is not None:
            self._canonicalizer.canonicalize(obj)
        self.set_defaults(obj)

    def set_defaults(self, obj: JSON) -> None:
        """Set the kind's own defaults on a canonical object."""

    def prepare_for_create(self, obj: JSON, now: str) -> None:
        """Set fields that only the server sets. `now` is the creation time; metadata already has its name and uid."""
        if self.has_generation:
            obj["metadata"]["generation"] = 1
        if self.has_status:
            obj["status"] = self._initial_status()

    def _initial_status(self) -> JSON:
        return self._canonicalizer.field_canonicalizer("status").zero_value() if self._canonicalizer is not None else {}

    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        """Restore what an update of the object may not change. Increment the generation if the spec changed."""
        if self.has_status:
            restore_field(obj, old, "status")
        if self.has_generation:
            changed = self.generation_fields(obj) != self.generation_fields(old)
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + changed

    def generation_fields(self, obj: JSON) -> Any:
        """The fields whose change increments the generation."""
        return obj.get("spec")

    def validate(self, obj: JSON) -> list[FieldProblem]:
        """All problems of a new object."""
        return [*self.metadata.validate(obj), *self.validate_content(obj)]

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        """Problems outside of metadata, of a new or a changed object."""
        return []

    def validate_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        """All problems of a changed object. As in kube-apiserver, several layers report those of metadata."""
        return [*self.metadata.validate_common_update(obj, old), *self.validate_kind_update(obj, old)]

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        """Problems that the kind itself reports, beside those that are reported for every kind."""
        problems = self.metadata.validate_update(obj, old)
        problems += self.validate(obj) if self.revalidates_on_update else self.validate_content(obj)
        return problems + self.validate_transition(obj, old)

    def validate_transition(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        """Problems of the change from `old` to `obj`, besides those of the object itself."""
        return []

    def warnings(self, obj: JSON, old: JSON | None) -> list[str]:
        """Texts for `Warning` headers. `old` is None on create."""
        return []


def restore_field(obj: JSON, old: JSON, name: str) -> None:
    """Make a field what it is in `old`, where it may be absent."""
    if name in old:
        obj[name] = old[name]
    else:
        obj.pop(name, None)
