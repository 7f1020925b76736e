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
from gangline.apiserver.kinds.machinery.canonical import Shape, shape
from gangline.schema.problems import Problem


class Kind:
    """Rules of one kind. Stateless and shared."""

    struct: ClassVar[str] = ""
    """Its struct in Kubernetes' API, `core.v1.Pod`; without one, objects stay as they come."""
    namespaced: ClassVar[bool] = True
    has_status: ClassVar[bool] = False
    """Whether status is a subresource: an update of the object keeps it, creation empties it."""
    validated_whole: ClassVar[bool] = False
    """Whether an update is validated like a new object too, so that problems of metadata are told twice."""
    generation: ClassVar[bool] = False
    """Whether a changed spec counts up metadata.generation, which starts at 1."""
    created_by_update: ClassVar[bool] = False
    """Whether a PUT of an object that is not there creates it."""
    updated_blindly: ClassVar[bool] = True
    """Whether a PUT may leave out the resourceVersion."""

    def name_check(self, name: str) -> tuple[str, ...]:
        """What is wrong with an object's name. Nothing, for a good one."""
        return formats.dns_subdomain(name)

    def __init__(self) -> None:
        self._shape: Shape | None = shape(self.struct) if self.struct else None

    def defaults(self, obj: JSON) -> None:
        """Make a decoded object what the server would store. Raises `QuantityError` for an unreadable amount."""
        if self._shape is not None:
            self._shape.fit(obj)
        self.set_defaults(obj)

    def set_defaults(self, obj: JSON) -> None:
        """The kind's own defaults, on an object that has its shape."""

    def create(self, obj: JSON, now: str) -> None:
        """Fields only the server sets. `now` is the creation time; metadata.uid and name are there."""
        if self.generation:
            obj["metadata"]["generation"] = 1
        if self.has_status:
            obj["status"] = self.first_status()

    def first_status(self) -> JSON:
        return self._shape.part("status").empty() if self._shape is not None else {}

    def update(self, obj: JSON, old: JSON) -> None:
        """Keep what an update of the object may not touch; count up the generation when the spec changed."""
        if self.has_status:
            take(obj, old, "status")
        if self.generation:
            changed = self.spec_of(obj) != self.spec_of(old)
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + changed

    def spec_of(self, obj: JSON) -> Any:
        """What must change for the generation to count up."""
        return obj.get("spec")

    def update_status(self, obj: JSON, old: JSON) -> None:
        """Keep what an update of the status may not touch: all but status and metadata."""
        for name in {*obj, *old} - {"status", "metadata"}:
            take(obj, old, name)

    def validate(self, obj: JSON) -> list[Problem]:
        """Problems of a new object."""
        return [*self.validate_metadata(obj), *self.check(obj)]

    def validate_metadata(self, obj: JSON) -> list[Problem]:
        meta = obj["metadata"]
        found = metadata.validate(meta, self.name_check, namespaced=self.namespaced)
        if "finalizers" in meta:
            found += metadata.unqualified_finalizers(meta["finalizers"], "metadata.finalizers")
        return found

    def check(self, obj: JSON) -> list[Problem]:
        """Problems besides those of metadata, whether the object is new or changed."""
        return []

    def validate_update(self, obj: JSON, old: JSON) -> list[Problem]:
        """Problems of a changed object. Those of metadata are told by every layer that looks, as on a real server."""
        return [*self._validate_common(obj, old), *self.validate_change(obj, old)]

    def validate_status_update(self, obj: JSON, old: JSON) -> list[Problem]:
        """Problems of an object with a changed status."""
        return [*self._validate_common(obj, old), *self.validate_status_change(obj, old)]

    def _validate_common(self, obj: JSON, old: JSON) -> list[Problem]:
        new, before = obj["metadata"], old["metadata"]
        found = metadata.validate(new, formats.path_segment, namespaced=self.namespaced)
        return found + metadata.validate_update(new, before)

    def validate_change(self, obj: JSON, old: JSON) -> list[Problem]:
        """What the kind itself says about a change."""
        found = self.validate_metadata_update(obj, old)
        found += self.validate(obj) if self.validated_whole else self.check(obj)
        return found + self.check_update(obj, old)

    def validate_metadata_update(self, obj: JSON, old: JSON) -> list[Problem]:
        found = metadata.validate_update(obj["metadata"], old["metadata"])
        if "finalizers" in obj["metadata"]:
            found += metadata.unqualified_finalizers(obj["metadata"]["finalizers"], "metadata.finalizers")
        return found

    def check_update(self, obj: JSON, old: JSON) -> list[Problem]:
        """Problems of the change, besides those of the object itself."""
        return []

    def validate_status_change(self, obj: JSON, old: JSON) -> list[Problem]:
        """What the kind itself says about a change of the status."""
        return [*self.validate_metadata_update(obj, old), *self.check_status(obj, old)]

    def check_status(self, obj: JSON, old: JSON) -> list[Problem]:
        """Problems of a changed status."""
        return []

    def warnings(self, obj: JSON, old: JSON | None) -> list[str]:
        """Texts for Warning headers. `old` is None on create."""
        return []


def take(obj: JSON, old: JSON, name: str) -> None:
    """Make a field what it was before, present or not."""
    if name in old:
        obj[name] = old[name]
    else:
        obj.pop(name, None)
