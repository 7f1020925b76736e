"""What has to be known of a kind, once, to follow who owns its fields."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.apply.fieldset import LEAF, Fields, at, union
from gangline.apiserver.apply.walker import Walker, walker_of
from gangline.schema.typed.types import Type

_TEMPLATE: JSON = {"metadata": {}, "spec": {"containers": None}}
_REFERENCE: JSON = {"kind": "", "name": ""}

_BLANK: Mapping[str, JSON] = MappingProxyType(
    {
        "CustomResourceDefinition": {
            "spec": {"group": "", "names": {"plural": "", "kind": ""}, "scope": "", "versions": None}
        },
        "ControllerRevision": {"data": None, "revision": 0},
        "DaemonSet": {"spec": {"selector": None, "template": _TEMPLATE, "updateStrategy": {}}},
        "Deployment": {"spec": {"selector": None, "template": _TEMPLATE, "strategy": {}}},
        "ReplicaSet": {"spec": {"selector": None, "template": _TEMPLATE}},
        "StatefulSet": {
            "spec": {"selector": None, "template": _TEMPLATE, "serviceName": "", "updateStrategy": {}},
            "status": {"replicas": 0, "availableReplicas": 0},
        },
        "HorizontalPodAutoscaler": {"spec": {"scaleTargetRef": _REFERENCE, "maxReplicas": 0}},
        "CronJob": {
            "spec": {"schedule": "", "jobTemplate": {"metadata": {}, "spec": {"template": _TEMPLATE}}}
        },
        "Job": {"spec": {"template": _TEMPLATE}},
        "CertificateSigningRequest": {"spec": {"request": None, "signerName": ""}},
        "EndpointSlice": {"addressType": "", "endpoints": None, "ports": None},
        "FlowSchema": {"spec": {"priorityLevelConfiguration": {"name": ""}, "matchingPrecedence": 0}},
        "PriorityLevelConfiguration": {"spec": {"type": ""}},
        "NetworkPolicy": {"spec": {"podSelector": {}}},
        "RuntimeClass": {"handler": ""},
        "ClusterRole": {"rules": None},
        "ClusterRoleBinding": {"roleRef": {"apiGroup": "", **_REFERENCE}},
        "Role": {"rules": None},
        "RoleBinding": {"roleRef": {"apiGroup": "", **_REFERENCE}},
        "PriorityClass": {"value": 0},
        "CSINode": {"spec": {"drivers": None}},
        "CSIStorageCapacity": {"storageClassName": ""},
        "StorageClass": {"provisioner": ""},
        "VolumeAttachment": {"spec": {"attacher": "", "source": {}, "nodeName": ""}},
        "VolumeAttributesClass": {"driverName": ""},
        "LimitRange": {"spec": {"limits": None}},
        "PersistentVolumeClaim": {"spec": {"resources": {}}},
        "Pod": {"spec": {"containers": None}},
        "PodTemplate": {"template": _TEMPLATE},
        # No spec at all, and so no empty one either.
        "ConfigMap": {},
        "Endpoints": {},
        "Secret": {},
        "ServiceAccount": {},
    }
)
"""What an object of a kind holds before anybody has written anything: the fields that Go cannot leave out.

Nobody comes to own these by creating the object, unless with another value.
"""

_EVENTS: Mapping[str, JSON] = MappingProxyType(
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

_SPEC, _STATUS = at("f:spec"), at("f:status")

_RESET_BY_STATUS = MappingProxyType(
    {
        "Pod": union(at("f:metadata", "f:deletionTimestamp"), at("f:metadata", "f:ownerReferences")),
        "Deployment": at("f:metadata", "f:labels"),
        "CustomResourceDefinition": at("f:metadata"),
        "VolumeAttachment": at("f:metadata"),
    }
)
"""What a write of the status of some kinds puts back, beside the spec."""


class Tracked(msgspec.Struct, frozen=True):
    """A kind, or a subresource of it, whose fields have owners. Make it once and keep it."""

    api_version: str
    kind: str
    tree: Type
    walker: Walker
    subresource: str = ""
    reset: Fields = LEAF
    """Fields that writes here cannot change, and so nobody owns through them, with all below."""
    blank: Any = msgspec.field(default_factory=dict)
    """An object of this kind before anything is written."""
    custom: bool = False
    """Of a CRD."""


def tracked(
    api_version: str,
    kind: str,
    tree: Type,
    *,
    subresource: str = "",
    custom: bool = False,
    status: bool = True,
) -> Tracked:
    """A kind, ready to be tracked.

    `custom` is for kinds of a CRD; `status` says whether it has a status subresource. Ownership under `/status` leaves
    out the spec, all other ownership the status.
    """
    reset: Fields = LEAF
    if subresource == "status":
        reset = union(_SPEC, {} if custom else _RESET_BY_STATUS.get(kind, {}))
    elif status:
        reset = _STATUS
    blank = {} if custom else _blank(api_version, kind)
    return Tracked(api_version, kind, tree, walker_of(tree, exact=custom), subresource, reset, blank, custom)


def _blank(api_version: str, kind: str) -> JSON:
    if kind == "Event":
        return {"metadata": {}, **_EVENTS.get(api_version, {})}
    return {"metadata": {}, **_BLANK.get(kind, {"spec": {}})}
