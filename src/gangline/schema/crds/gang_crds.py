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
from gangline.schema.crds.struct_schemas import FieldKeywords, StructSchemaWriter, crd_document

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
    "PodGroup": "Pods that start together: all that it needs are placed at once, or none is.",
    "Queue": "Whose turn it is: what PodGroups of one queue may hold, and their share when there is not enough for all.",
}
_FIELD_DESCRIPTIONS: Mapping[tuple[type, str], str] = {
    (PodGroupSpec, "minMember"): "So many members are placed at once, or none is.",
    (PodGroupSpec, "queue"): "Its Queue. Default: the one called default, which need not exist.",
    (PodGroupSpec, "priorityClassName"): "Which groups go first, and which may have to give way.",
    (
        PodGroupSpec,
        "minResources",
    ): "What its members need at least, for people: the scheduler sums up its pods.",
    (PodGroupSpec, "scheduleTimeoutSeconds"): (
        "After so long without a place the owner is told, and a start left half done is undone. Default: 60."
    ),
    (PodGroupSpec, "minTaskMember"): "Of minMember, how many of each role at least.",
    (PodGroupSpec, "topology"): "All members on nodes with the same value of a label.",
    (GangTopology, "key"): "The label of nodes: a rack, a zone.",
    (GangTopology, "required"): "Rather wait than use several domains. Default: one if possible.",
    (PodGroupStatus, "state"): "The life cycle. Only the scheduler writes it.",
    (PodGroupStatus, "running"): "Members that run.",
    (PodGroupStatus, "succeeded"): "Members that succeeded.",
    (PodGroupStatus, "failed"): "Members that failed.",
    (PodGroupState, "phase"): "Pending, Running, Recovering or Unschedulable.",
    (PodGroupState, "lastProbeTime"): "When the scheduler last looked and found the group in this phase.",
    (PodGroupState, "lastTransitionTime"): "When the phase last changed.",
    (PodGroupState, "reason"): "PodFailed, PodDeleted, NotEnoughResources, NotEnoughTasks, or none.",
    (PodGroupState, "message"): "Details, for people.",
    (QueueSpec, "weight"): "Its share compared with those of others, when all ask for more than there is.",
    (QueueSpec, "capability"): "What its groups may hold at most. A resource that is not named has no cap.",
    (
        QueueSpec,
        "reclaimable",
    ): "Whether queues below their share may take back what this one has beyond its own.",
    (QueueStatus, "pending"): "Groups that wait.",
    (QueueStatus, "running"): "Groups that run.",
    (QueueStatus, "recovering"): "Groups that lost members.",
    (QueueStatus, "unschedulable"): "Groups that lost members, and have no room for their replacements.",
    (QueueStatus, "allocated"): "What its groups hold.",
    (QueueStatus, "deserved"): "What it may have before others may take it back.",
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
    return crd_document(resource, names, columns, gang_schema(resource, described=described), {"status": {}})


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
            "spec": {**({"description": "What is wanted."} if described else {}), **spec},
            "status": {**({"description": "What the scheduler found."} if described else {}), **status},
        },
    }
    return {**schema, "required": ["spec"]} if resource is PODGROUPS else schema


def _printer_column(name: str, kind: str, path: str, priority: int) -> JSON:
    column: JSON = {"name": name, "type": kind, "jsonPath": path}
    return {**column, "priority": priority} if priority else column
