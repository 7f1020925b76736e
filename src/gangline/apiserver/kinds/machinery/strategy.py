"""What the registry asks of a kind. This class is a kind without rules of its own; the others say what differs.

Order on create: decode, `defaults`, managedFields, admission of the registry (limits, priority), then the registry
fills in uid, creationTimestamp and name, `create`, `validate`. On update: decode, `defaults`, managedFields, the
registry fills in what clients may leave out of metadata, `update`, `validate_update`. The same with `update_status`
for the subresource. What `create` and `update` add belongs to no field manager.

Everything works in place on the new object and never touches the old one; parts of the old one may end up shared with
the new.
"""

from typing import Any, ClassVar

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, metadata
from gangline.apiserver.kinds.machinery.canonical import Canonicalizer, canonicalizer
from gangline.schema.problems import FieldProblem


class Strategy:
    """Rules of one kind. Stateless and shared."""

    struct: ClassVar[str] = ""
    """Its struct in Kubernetes' API, `core.v1.Pod`; without one, objects stay as they come."""
    namespaced: ClassVar[bool] = True
    has_status: ClassVar[bool] = False
    """Whether status is a subresource: an update of the object keeps it, creation empties it."""
    revalidates_on_update: ClassVar[bool] = False
    """Whether an update is validated like a new object too, so that problems of metadata are told twice."""
    has_generation: ClassVar[bool] = False
    """Whether a changed spec counts up metadata.generation, which starts at 1."""
    allow_create_on_update: ClassVar[bool] = False
    """Whether a PUT of an object that is not there creates it."""
    allow_unconditional_update: ClassVar[bool] = True
    """Whether a PUT may leave out the resourceVersion."""

    def validate_name(self, name: str) -> tuple[str, ...]:
        """What is wrong with an object's name. Nothing, for a good one."""
        return formats.dns_subdomain_errors(name)

    def __init__(self) -> None:
        self._canonicalizer: Canonicalizer | None = canonicalizer(self.struct) if self.struct else None

    def normalize(self, obj: JSON) -> None:
        """Make a decoded object what the server would store. Raises `QuantityError` for an unreadable amount."""
        if self._canonicalizer is not None:
            self._canonicalizer.canonicalize(obj)
        self.set_defaults(obj)

    def set_defaults(self, obj: JSON) -> None:
        """The kind's own defaults, on an object that has its shape."""

    def prepare_for_create(self, obj: JSON, now: str) -> None:
        """Fields only the server sets. `now` is the creation time; metadata.uid and name are there."""
        if self.has_generation:
            obj["metadata"]["generation"] = 1
        if self.has_status:
            obj["status"] = self.initial_status()

    def initial_status(self) -> JSON:
        return self._canonicalizer.field_canonicalizer("status").zero_value() if self._canonicalizer is not None else {}

    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        """Keep what an update of the object may not touch; count up the generation when the spec changed."""
        if self.has_status:
            restore_field(obj, old, "status")
        if self.has_generation:
            changed = self.generation_fields(obj) != self.generation_fields(old)
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + changed

    def generation_fields(self, obj: JSON) -> Any:
        """What must change for the generation to count up."""
        return obj.get("spec")

    def prepare_for_status_update(self, obj: JSON, old: JSON) -> None:
        """Keep what an update of the status may not touch: all but status and metadata."""
        for name in {*obj, *old} - {"status", "metadata"}:
            restore_field(obj, old, name)

    def validate(self, obj: JSON) -> list[FieldProblem]:
        """Problems of a new object."""
        return [*self.validate_metadata(obj), *self.validate_content(obj)]

    def validate_metadata(self, obj: JSON) -> list[FieldProblem]:
        meta = obj["metadata"]
        found = metadata.validate_object_meta(meta, self.validate_name, namespaced=self.namespaced)
        if "finalizers" in meta:
            found += metadata.validate_core_finalizers(meta["finalizers"], "metadata.finalizers")
        return found

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        """Problems besides those of metadata, whether the object is new or changed."""
        return []

    def validate_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        """Problems of a changed object. Those of metadata are told by every layer that looks, as on a real server."""
        return [*self._validate_common_update(obj, old), *self.validate_kind_update(obj, old)]

    def validate_status_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        """Problems of an object with a changed status."""
        return [*self._validate_common_update(obj, old), *self.validate_kind_status_update(obj, old)]

    def _validate_common_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        new, before = obj["metadata"], old["metadata"]
        found = metadata.validate_object_meta(new, formats.path_segment_errors, namespaced=self.namespaced)
        return found + metadata.validate_object_meta_update(new, before)

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        """What the kind itself says about a change."""
        found = self.validate_metadata_update(obj, old)
        found += self.validate(obj) if self.revalidates_on_update else self.validate_content(obj)
        return found + self.validate_transition(obj, old)

    def validate_metadata_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        found = metadata.validate_object_meta_update(obj["metadata"], old["metadata"])
        if "finalizers" in obj["metadata"]:
            found += metadata.validate_core_finalizers(obj["metadata"]["finalizers"], "metadata.finalizers")
        return found

    def validate_transition(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        """Problems of the change, besides those of the object itself."""
        return []

    def validate_kind_status_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        """What the kind itself says about a change of the status."""
        return [*self.validate_metadata_update(obj, old), *self.validate_status(obj, old)]

    def validate_status(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        """Problems of a changed status."""
        return []

    def warnings(self, obj: JSON, old: JSON | None) -> list[str]:
        """Texts for Warning headers. `old` is None on create."""
        return []


def restore_field(obj: JSON, old: JSON, name: str) -> None:
    """Make a field what it was before, present or not."""
    if name in old:
        obj[name] = old[name]
    else:
        obj.pop(name, None)
