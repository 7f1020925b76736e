"""Options of writes: patch types, field manager, dry run, deletion propagation."""

from datetime import timedelta
from enum import StrEnum

import msgspec

from gangline.api.meta import JSON
from gangline.kube.transport.api import QueryParams


class PatchType(StrEnum):
    """The content types of patches."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    """Merges lists by key. Only for built-in kinds: servers refuse it for custom resources."""
    JSON = "application/json-patch+json"


class DeletionPropagation(StrEnum):
    """When the dependents of a deleted object are deleted."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


class FieldValidation(StrEnum):
    """What the server does about unknown fields. Its default is WARN."""

    STRICT = "Strict"
    WARN = "Warn"
    IGNORE = "Ignore"


class WriteOptions(msgspec.Struct, frozen=True):
    """Query parameters of all writes of a client."""

    field_manager: str = "gangline"
    dry_run: bool = False
    field_validation: FieldValidation | None = None

    def query(self) -> QueryParams:
        pairs = [("fieldManager", self.field_manager)]
        if self.dry_run:
            pairs.append(("dryRun", "All"))
        if self.field_validation:
            pairs.append(("fieldValidation", self.field_validation.value))
        return tuple(pairs)


DEFAULT_WRITE_OPTIONS = WriteOptions()


class DeleteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a deletion: preconditions, propagation, grace period."""

    uid: str | None = None
    resource_version: str | None = None
    propagation: DeletionPropagation | None = None
    grace: timedelta | None = None
    dry_run: bool = False

    def body(self) -> JSON:
        body: JSON = {"apiVersion": "v1", "kind": "DeleteOptions"}
        fields = {"uid": self.uid, "resourceVersion": self.resource_version}
        preconditions = {name: value for name, value in fields.items() if value is not None}
        if preconditions:
            body["preconditions"] = preconditions
        if self.propagation is not None:
            body["propagationPolicy"] = self.propagation.value
        if self.grace is not None:
            body["gracePeriodSeconds"] = int(self.grace.total_seconds())
        if self.dry_run:
            body["dryRun"] = ["All"]
        return body
