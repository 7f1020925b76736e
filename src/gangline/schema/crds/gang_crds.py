"""The custom resource definitions of PodGroup and Queue (`scheduling.gangline.dev`), from the structs in the API."""

from collections.abc import Mapping
from typing import Any

from gangline.api.meta import JSON, Object
from gangline.api.scheduling import (
    PODGROUPS,
    QUEUES,
    GangTopology,
    PodGroupPhase,
    PodGroupSpec,
    PodGroupState,
    PodGroupStatus,
    QueueSpec,
    QueueStatus,
)
from gangline.api.scheme import Resource
from gangline.schema.crds.struct_schemas import FieldKeywords, StructSchemaWriter, crd_document, crd_version

GANG_RESOURCES: tuple[Resource[Any], ...] = (PODGROUPS, QUEUES)

# `pg` belongs to Volcano's and scheduler-plugins' pod groups, `q` to Volcano's queues: they must not mean ours.
_SHORT_NAMES = {"PodGroup": ["gang", "gangs"], "Queue": ["gangqueue", "gangqueues"]}
_AT_LEAST_1: JSON = {"minimum": 1}
_FIELD_KEYWORDS: FieldKeywords = {
    (PodGroupSpec, "minMember"): _AT_LEAST_1,
    (PodGroupSpec, "scheduleTimeoutSeconds"): _AT_LEAST_1,
    (PodGroupSpec, "minTaskMember"): {"additionalProperties": {"minimum": 0}},
    (GangTopology, "key"): {"minLength": 1},
    (PodGroupState, "phase"): {"enum": [phase.value for phase in PodGroupPhase]},
    (QueueSpec, "weight"): {**_AT_LEAST_1, "default": 1},
    (QueueSpec, "reclaimable"): {"default": True},
}
_KIND_DESCRIPTIONS = {
    "PodGroup": "A gang of pods: as many as it needs are scheduled at once, or none is.",
    "Queue": "A queue of PodGroups: what they may hold together, and their share when there is not enough for all.",
}
_FIELD_DESCRIPTIONS: Mapping[tuple[type, str], str] = {
    (PodGroupSpec, "minMember"): "How many members must be scheduled at once; otherwise none is.",
    (PodGroupSpec, "queue"): "Its Queue. Default: the one called default, which need not exist.",
    (
        PodGroupSpec,
        "priorityClassName",
    ): "The priority class: which groups are scheduled first, and which may be preempted.",
    (
        PodGroupSpec,
        "minResources",
    ): "What its members need at least. For information only: the scheduler adds up its pods.",
    (PodGroupSpec, "scheduleTimeoutSeconds"): (
        "After so many seconds in which it could not be scheduled, its owner is notified and a partial start is rolled back. Default: 60."
    ),
    (PodGroupSpec, "minTaskMember"): "Of minMember, how many members of each role at least.",
    (PodGroupSpec, "topology"): "All members on nodes with the same value of a label.",
    (GangTopology, "key"): "The label of nodes: a rack, a zone.",
    (GangTopology, "required"): "Wait rather than use several domains. Default: use one domain if possible.",
    (PodGroupStatus, "state"): "The life cycle. Only the scheduler writes it.",
    (PodGroupStatus, "running"): "Members that run.",
    (PodGroupStatus, "succeeded"): "Members that succeeded.",
    (PodGroupStatus, "failed"): "Members that failed.",
    (PodGroupState, "phase"): "Pending, Running, Recovering or Unschedulable.",
    (PodGroupState, "lastProbeTime"): "When the scheduler last looked and found the group in this phase.",
    (PodGroupState, "lastTransitionTime"): "When the phase last changed.",
    (PodGroupState, "reason"): "PodFailed, PodDeleted, NotEnoughResources, NotEnoughTasks, or none.",
    (PodGroupState, "message"): "Details, for people.",
    (QueueSpec, "weight"): "Its share relative to other queues, when they request more than there is.",
    (QueueSpec, "capability"): "What its groups may hold at most. A resource that is not named has no cap.",
    (QueueSpec, "reclaimable"): "Whether queues below their share may reclaim what this one holds beyond its own.",
    (QueueStatus, "pending"): "Groups that wait.",
    (QueueStatus, "running"): "Groups that run.",
    (QueueStatus, "recovering"): "Groups that lost members.",
    (QueueStatus, "unschedulable"): "Groups that lost members, and have no room for their replacements.",
    (QueueStatus, "allocated"): "What its groups hold.",
    (QueueStatus, "deserved"): "What it may hold before other queues may reclaim it.",
}
_PRINTER_COLUMNS: Mapping[str, tuple[tuple[str, str, str, int], ...]] = {
    "PodGroup": (
        ("Phase", "string", ".status.state.phase", 0),
        ("Min", "integer", ".spec.minMember", 0),
        ("Running", "integer", ".status.running", 0),
        ("Age", "date", ".metadata.creationTimestamp", 0),
        ("Queue", "string", ".spec.queue", 1),
        ("Reason", "string", ".status.state.reason", 1),
    ),
    "Queue": (
        ("Weight", "integer", ".spec.weight", 0),
        ("Pending", "integer", ".status.pending", 0),
        ("Running", "integer", ".status.running", 0),
        ("Age", "date", ".metadata.creationTimestamp", 0),
    ),
}


def gang_crds(*, described: bool = False) -> tuple[JSON, ...]:
    """The definitions of PodGroup and Queue. See `gang_crd`."""
    return tuple(gang_crd(resource, described=described) for resource in GANG_RESOURCES)


def gang_crd(resource: Resource[Any], *, described: bool = False) -> JSON:
    """The definition of one of the two kinds, for any API server from 1.30 on."""
    names = {"shortNames": _SHORT_NAMES[resource.kind]}
    columns = [_printer_column(*column) for column in _PRINTER_COLUMNS[resource.kind]]
    schema = gang_schema(resource, described=described)
    return crd_document(resource, names, [crd_version(resource.version, columns, schema, {"status": {}})])


def gang_schema(resource: Resource[Any], *, described: bool = False) -> JSON:
    """The structural schema of one of the two kinds."""
    structs = StructSchemaWriter(_FIELD_KEYWORDS, _FIELD_DESCRIPTIONS if described else {})
    model: type[Object] = resource.model
    spec, status = (structs.struct_schema(model.__annotations__[part]) for part in ("spec", "status"))
    if resource is PODGROUPS:
        spec["required"] = ["minMember"]
        spec["properties"]["topology"]["required"] = ["key"]
    description = {"description": _KIND_DESCRIPTIONS[resource.kind]} if described else {}
    schema: JSON = {
        **description,
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {**({"description": "The desired state."} if described else {}), **spec},
            "status": {
                **({"description": "The observed state, which the scheduler writes."} if described else {}),
                **status,
            },
        },
    }
    return {**schema, "required": ["spec"]} if resource is PODGROUPS else schema


def _printer_column(name: str, kind: str, path: str, priority: int) -> JSON:
    column: JSON = {"name": name, "type": kind, "jsonPath": path}
    return {**column, "priority": priority} if priority else column
