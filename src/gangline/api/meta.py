"""What every Kubernetes object has: metadata, references, conditions, keys and selectors.

Structs hold only the fields that gangline decides on. A decoded object is therefore small, and is never written back:
we
create, apply, patch and delete, but never replace. All structs are frozen, so caches hand them out without copying.
"""

from datetime import datetime
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec

JSON: TypeAlias = dict[str, Any]
"""A JSON object that stays JSON: request bodies, pod templates, patches."""

MICRO_TIME_FORMAT = "micro-time"
QUANTITY_FORMAT = "quantity"
Time: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time that the wire holds to the second: `2026-01-02T15:04:05Z`."""
MicroTime: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True, extra={"format": MICRO_TIME_FORMAT})]
"""A time that the wire holds to the microsecond, always with six digits: `2026-01-02T15:04:05.000000Z`."""


class Key(NamedTuple):
    """The namespace and name of an object within its kind. Cluster-scoped objects have an empty namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


# gc=False: decoded JSON cannot contain cycles, so the collector need not walk a cache of 10,000 pods.
class ApiStruct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False, kw_only=True):
    """A struct whose field names are camelCase on the wire and whose defaults are left out."""


class OwnerReference(ApiStruct, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(ApiStruct, frozen=True):
    name: str = ""
    namespace: str = ""
    generate_name: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object; None if there is none."""
        # Asked for a dozen times per change of a pod: a loop is faster than `next` of a generator.
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None


class Object(ApiStruct, frozen=True):
    """Any object with metadata. Kinds extend it; by itself it serves readers that need only metadata."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


class ListMeta(ApiStruct, frozen=True):
    resource_version: str = ""
    # Named with an underscore because `continue` is a keyword.
    continue_: str = msgspec.field(name="continue", default="")
    remaining_item_count: int | None = None


class Condition(ApiStruct, frozen=True):
    """One entry of `status.conditions`. `last_update_time` exists in kubeflow.org/v1 only."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    last_update_time: Time | None = None
    last_transition_time: Time | None = None


class Selector(msgspec.Struct, frozen=True):
    """Which objects of a kind: a namespace (empty for all), labels and fields, in kubectl's syntax."""

    namespace: str = ""
    labels: str = ""
    fields: str = ""


EVERYTHING = Selector()


def timestamp(moment: datetime) -> str:
    """A UTC time to the second, as Kubernetes writes it: `2026-01-02T15:04:05Z`."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
