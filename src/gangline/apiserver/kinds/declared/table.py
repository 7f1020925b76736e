"""The rules of declared kinds. A kind that is not here has those of every kind, and needs no entry to be served."""

from collections.abc import Mapping
from typing import Any, Final

from gangline.apiserver.kinds.declared.rules import KindRules

_ADMISSION, _FLOWS = "admissionregistration.k8s.io", "flowcontrol.apiserver.k8s.io"
_NETWORKING, _RESOURCE, _STORAGE = "networking.k8s.io", "resource.k8s.io", "storage.k8s.io"

_WEBHOOK_DEFAULTS: Final[Mapping[str, Any]] = {
    "webhooks[].failurePolicy": "Fail",
    "webhooks[].matchPolicy": "Equivalent",
    "webhooks[].namespaceSelector": {},
    "webhooks[].objectSelector": {},
    "webhooks[].timeoutSeconds": 10,
    "webhooks[].rules[].scope": "*",
    "webhooks[].clientConfig.service.port": 443,
}
_SCOPES = ("*", "Cluster", "Namespaced")
_WEBHOOK_SELECTORS = ("webhooks[].namespaceSelector", "webhooks[].objectSelector")


def _match_defaults(path: str) -> dict[str, Any]:
    return {
        f"{path}.matchPolicy": "Equivalent",
        f"{path}.namespaceSelector": {},
        f"{path}.objectSelector": {},
        f"{path}.resourceRules[].scope": "*",
        f"{path}.excludeResourceRules[].scope": "*",
    }


def _device_defaults(path: str) -> dict[str, Any]:
    requests = (f"{path}.requests[].exactly", f"{path}.requests[].firstAvailable[]")
    return {f"{request}.allocationMode": "ExactCount" for request in requests}


RULES: Final[Mapping[tuple[str, str], KindRules]] = {
    (_ADMISSION, "ValidatingWebhookConfiguration"): KindRules(
        generation=("webhooks",),
        defaults=_WEBHOOK_DEFAULTS,
        selectors=_WEBHOOK_SELECTORS,
        choices={"webhooks[].rules[].scope": _SCOPES},
    ),
    (_ADMISSION, "MutatingWebhookConfiguration"): KindRules(
        generation=("webhooks",),
        defaults={**_WEBHOOK_DEFAULTS, "webhooks[].reinvocationPolicy": "Never"},
        selectors=_WEBHOOK_SELECTORS,
        choices={"webhooks[].reinvocationPolicy": ("IfNeeded", "Never"), "webhooks[].rules[].scope": _SCOPES},
    ),
    (_ADMISSION, "ValidatingAdmissionPolicy"): KindRules(
        generation=("spec",), defaults={"spec.failurePolicy": "Fail", **_match_defaults("spec.matchConstraints")}
    ),
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): KindRules(
        generation=("spec",),
        defaults=_match_defaults("spec.matchResources"),
        required={"spec.policyName": "", "spec.validationActions": "at least one validation action is required"},
    ),
    ("apiregistration.k8s.io", "APIService"): KindRules(
        name_format="path segment",
        defaults={"spec.service.port": 443},
        required={"spec.service.namespace": "", "spec.service.name": ""},
        formats={"spec.group": "subdomain", "spec.version": "1035 label"},
    ),
    ("certificates.k8s.io", "CertificateSigningRequest"): KindRules(
        name_format="any", required={"spec.usages": "", "spec.signerName": ""}
    ),
    (_FLOWS, "FlowSchema"): KindRules(
        generation=("spec",),
        zero_defaults={"spec.matchingPrecedence": 1000},
        required={
            "spec.priorityLevelConfiguration.name": "must reference a priority level",
            "spec.rules[].subjects": "subjects must contain at least one value",
        },
        formats={"spec.priorityLevelConfiguration.name": "subdomain"},
    ),
    (_FLOWS, "PriorityLevelConfiguration"): KindRules(
        generation=("spec",),
        defaults={
            "spec.exempt.nominalConcurrencyShares": 0,
            "spec.exempt.lendablePercent": 0,
            "spec.limited.nominalConcurrencyShares": 30,
            "spec.limited.lendablePercent": 0,
        },
        zero_defaults={
            "spec.limited.limitResponse.queuing.handSize": 8,
            "spec.limited.limitResponse.queuing.queues": 64,
            "spec.limited.limitResponse.queuing.queueLengthLimit": 50,
        },
        required={"spec.type": ""},
    ),
    (_NETWORKING, "Ingress"): KindRules(generation=("spec",), formats={"spec.ingressClassName": "subdomain"}),
    (_NETWORKING, "IngressClass"): KindRules(
        generation=("spec",),
        defaults={"spec.parameters.scope": "Cluster"},
        required={"spec.controller": "", "spec.parameters.kind": "", "spec.parameters.name": ""},
        choices={"spec.parameters.scope": ("Cluster", "Namespace")},
        immutable=("spec.controller",),
    ),
    (_NETWORKING, "IPAddress"): KindRules(
        name_format="ip",
        required={"spec.parentRef": "", "spec.parentRef.resource": "", "spec.parentRef.name": ""},
        formats={
            "spec.parentRef.group": "subdomain",
            "spec.parentRef.resource": "path segment",
            "spec.parentRef.name": "path segment",
            "spec.parentRef.namespace": "path segment",
        },
        immutable=("spec.parentRef",),
    ),
    (_NETWORKING, "ServiceCIDR"): KindRules(
        required={"spec.cidrs": "at least one CIDR required"},
        formats={"spec.cidrs[]": "cidr"},
        immutable=("spec.cidrs",),
    ),
    ("node.k8s.io", "RuntimeClass"): KindRules(formats={"handler": "label!"}, immutable=("handler",)),
    (_RESOURCE, "DeviceClass"): KindRules(generation=("spec",)),
    (_RESOURCE, "ResourceClaim"): KindRules(
        zero_defaults=_device_defaults("spec.devices"),
        required={"spec.devices.requests[].name": ""},
        immutable=("spec",),
    ),
    (_RESOURCE, "ResourceClaimTemplate"): KindRules(
        zero_defaults=_device_defaults("spec.spec.devices"),
        required={"spec.spec.devices.requests[].name": ""},
        immutable=("spec",),
    ),
    (_RESOURCE, "ResourceSlice"): KindRules(
        generation=("spec",),
        required={"spec.driver": "", "spec.pool.name": ""},
        formats={"spec.driver": "subdomain"},
        immutable=("spec.pool.name", "spec.driver", "spec.nodeName"),
    ),
    (_STORAGE, "CSIDriver"): KindRules(
        generation=("spec",),
        generation_on_update_only=True,
        defaults={
            "spec.attachRequired": True,
            "spec.podInfoOnMount": False,
            "spec.storageCapacity": False,
            "spec.fsGroupPolicy": "ReadWriteOnceWithFSType",
            "spec.requiresRepublish": False,
            "spec.seLinuxMount": False,
        },
        zero_defaults={"spec.volumeLifecycleModes": ["Persistent"]},
        choices={"spec.fsGroupPolicy": ("File", "None", "ReadWriteOnceWithFSType")},
        disabled=("spec.nodeAllocatableUpdatePeriodSeconds",),
        immutable=("spec.attachRequired", "spec.volumeLifecycleModes"),
    ),
    (_STORAGE, "CSINode"): KindRules(
        required={"spec.drivers[].name": "", "spec.drivers[].nodeID": ""},
        formats={"spec.drivers[].name": "subdomain!", "spec.drivers[].topologyKeys[]": "qualified name"},
    ),
    (_STORAGE, "CSIStorageCapacity"): KindRules(
        formats={"storageClassName": "subdomain"},
        selectors=("nodeTopology",),
        immutable=("nodeTopology", "storageClassName"),
    ),
    (_STORAGE, "VolumeAttachment"): KindRules(
        required={"spec.attacher": ""},
        one_of={"spec.source": ("inlineVolumeSpec", "persistentVolumeName")},
        formats={
            "spec.attacher": "subdomain",
            "spec.source.persistentVolumeName": "subdomain",
            "spec.nodeName": "subdomain",
        },
        immutable=("spec",),
    ),
    (_STORAGE, "VolumeAttributesClass"): KindRules(
        finalizer="kubernetes.io/vac-protection",
        required={"driverName": "", "parameters": "must contain at least one key/value pair"},
        fixed={
            "driverName": "updates to driverName are forbidden.",
            "parameters": "updates to parameters are forbidden.",
        },
    ),
}
