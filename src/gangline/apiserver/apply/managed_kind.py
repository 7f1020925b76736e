"""What tracking of field ownership needs to know about a kind."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.apply.fieldset import LEAF, FieldSet, path_set, union
from gangline.apiserver.apply.walker import Walker, walker_of
from gangline.schema.typed.types import TypeNode

_EMPTY_POD_TEMPLATE: JSON = {"metadata": {}, "spec": {"containers": None}}
_EMPTY_REFERENCE: JSON = {"kind": "", "name": ""}

_ZERO_OBJECTS: Mapping[str, JSON] = MappingProxyType(
    {
        "CustomResourceDefinition": {
            "spec": {"group": "", "names": {"plural": "", "kind": ""}, "scope": "", "versions": None}
        },
        "ControllerRevision": {"data": None, "revision": 0},
        "DaemonSet": {"spec": {"selector": None, "template": _EMPTY_POD_TEMPLATE, "updateStrategy": {}}},
        "Deployment": {"spec": {"selector": None, "template": _EMPTY_POD_TEMPLATE, "strategy": {}}},
        "ReplicaSet": {"spec": {"selector": None, "template": _EMPTY_POD_TEMPLATE}},
        "StatefulSet": {
            "spec": {"selector": None, "template": _EMPTY_POD_TEMPLATE, "serviceName": "", "updateStrategy": {}},
            "status": {"replicas": 0, "availableReplicas": 0},
        },
        "HorizontalPodAutoscaler": {"spec": {"scaleTargetRef": _EMPTY_REFERENCE, "maxReplicas": 0}},
        "CronJob": {
            "spec": {"schedule": "", "jobTemplate": {"metadata": {}, "spec": {"template": _EMPTY_POD_TEMPLATE}}}
        },
        "Job": {"spec": {"template": _EMPTY_POD_TEMPLATE}},
        "CertificateSigningRequest": {"spec": {"request": None, "signerName": ""}},
        "EndpointSlice": {"addressType": "", "endpoints": None, "ports": None},
        "FlowSchema": {"spec": {"priorityLevelConfiguration": {"name": ""}, "matchingPrecedence": 0}},
        "PriorityLevelConfiguration": {"spec": {"type": ""}},
        "NetworkPolicy": {"spec": {"podSelector": {}}},
        "RuntimeClass": {"handler": ""},
        "ClusterRole": {"rules": None},
        "ClusterRoleBinding": {"roleRef": {"apiGroup": "", **_EMPTY_REFERENCE}},
        "Role": {"rules": None},
        "RoleBinding": {"roleRef": {"apiGroup": "", **_EMPTY_REFERENCE}},
        "PriorityClass": {"value": 0},
        "CSINode": {"spec": {"drivers": None}},
        "CSIStorageCapacity": {"storageClassName": ""},
        "StorageClass": {"provisioner": ""},
        "VolumeAttachment": {"spec": {"attacher": "", "source": {}, "nodeName": ""}},
        "VolumeAttributesClass": {"driverName": ""},
        "LimitRange": {"spec": {"limits": None}},
        "PersistentVolumeClaim": {"spec": {"resources": {}}},
        "Pod": {"spec": {"containers": None}},
        "PodTemplate": {"template": _EMPTY_POD_TEMPLATE},
        # Kinds without a spec.
        "ConfigMap": {},
        "Endpoints": {},
        "Secret": {},
        "ServiceAccount": {},
    }
)
"""The zero object of a kind: the fields that Go encodes even when they are not set.

Creating an object does not own these fields, unless with another value.
"""

_ZERO_EVENTS: Mapping[str, JSON] = MappingProxyType(
    {
        "v1": {
            "involvedObject": {},
            "source": {},
            "firstTimestamp": None,
            "lastTimestamp": None,
            "eventTime": None,
            "reportingComponent": "",
            "reportingInstance": "",
        },
        "events.k8s.io/v1": {
            "eventTime": None,
            "regarding": {},
            "deprecatedSource": {},
            "deprecatedFirstTimestamp": None,
            "deprecatedLastTimestamp": None,
        },
    }
)

_SPEC_FIELDS, _STATUS_FIELDS = path_set("f:spec"), path_set("f:status")

_STATUS_RESET_FIELDS = MappingProxyType(
    {
        "Pod": union(path_set("f:metadata", "f:deletionTimestamp"), path_set("f:metadata", "f:ownerReferences")),
        "Deployment": path_set("f:metadata", "f:labels"),
        "CustomResourceDefinition": path_set("f:metadata"),
        "VolumeAttachment": path_set("f:metadata"),
    }
)
"""The fields that a write of the status resets beside the spec, by kind."""


class ManagedKind(msgspec.Struct, frozen=True):
    """A kind, or a subresource of it, whose fields have owners. Create it once and reuse it: it caches."""

    api_version: str
    kind: str
    tree: TypeNode
    walker: Walker
    subresource: str = ""
    reset_fields: FieldSet = LEAF
    """Fields, with everything below them, that writes here cannot change and therefore do not own."""
    zero_object: Any = msgspec.field(default_factory=dict)
    """The object before any field is set."""
    custom: bool = False
    """Whether a CRD defines the kind."""


def managed_kind(
    api_version: str, kind: str, tree: TypeNode, *, subresource: str = "", custom: bool = False, status: bool = True
) -> ManagedKind:
    """The managed kind of a resource or of one of its subresources.

    `custom` is for kinds of a CRD; `status` says whether status is a subresource. Writes of `/status` cannot own
    the spec, all other writes cannot own the status.
    """
    reset_fields: FieldSet = LEAF
    if subresource == "status":
        reset_fields = union(_SPEC_FIELDS, {} if custom else _STATUS_RESET_FIELDS.get(kind, {}))
    elif status:
        reset_fields = _STATUS_FIELDS
    zero_object = {} if custom else _zero_object(api_version, kind)
    return ManagedKind(
        api_version, kind, tree, walker_of(tree, exact=custom), subresource, reset_fields, zero_object, custom
    )


def _zero_object(api_version: str, kind: str) -> JSON:
    if kind == "Event":
        return {"metadata": {}, **_ZERO_EVENTS.get(api_version, {})}
    return {"metadata": {}, **_ZERO_OBJECTS.get(kind, {"spec": {}})}
