"""How to write: forms of patches, what becomes of children, in whose name, for real or not."""

from datetime import timedelta
from enum import StrEnum

import msgspec

from gangline.api.meta import JSON
from gangline.kube.transport.api import QueryParams


class PatchType(StrEnum):
    """The three ways to say what should change, by their content types."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    """Lists of Kubernetes' own kinds are merged by key. Custom resources refuse it."""
    JSON = "application/json-patch+json"


APPLY_PATCH = "application/apply-patch+yaml"


class DeletionPropagation(StrEnum):
    """What becomes of the children of a deleted object."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


class FieldValidation(StrEnum):
    """What the server does with fields it does not know. Its own default is WARN."""

    STRICT = "Strict"
    WARN = "Warn"
    IGNORE = "Ignore"


class WriteOptions(msgspec.Struct, frozen=True):
    """How a client writes: in whose name, for real or not, and how strict the server is with unknown fields."""

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
    """The body of a deletion: which very object, what of its children, how long it may take to end."""

    uid: str | None = None
    resource_version: str | None = None
    propagation: DeletionPropagation | None = None
    grace: timedelta | None = None
    dry_run: bool = False

    def body(self) -> JSON:
        body: JSON = {"apiVersion": "v1", "kind": "DeleteOptions"}
        wanted = {"uid": self.uid, "resourceVersion": self.resource_version}
        preconditions = {name: value for name, value in wanted.items() if value is not None}
        if preconditions:
            body["preconditions"] = preconditions
        if self.propagation is not None:
            body["propagationPolicy"] = self.propagation.value
        if self.grace is not None:
            body["gracePeriodSeconds"] = int(self.grace.total_seconds())
        if self.dry_run:
            body["dryRun"] = ["All"]
        return body
