"""What an object counts in resource quotas, and which quota scopes it is in."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from gangline.api.core import is_terminal_phase
from gangline.api.meta import JSON
from gangline.api.quantity import Quantity, add_resources
from gangline.apiserver.admission.storage_classes import storage_class_name
from gangline.apiserver.kinds.machinery.pod_amounts import (
    Amounts,
    charged_amounts,
    containers_of,
    has_pod_level_resources,
)
from gangline.apiserver.kinds.machinery.quantities import HUGE_PAGES_PREFIX, is_extended_resource, is_native_resource
from gangline.apiserver.kinds.machinery.quantities import parse_quantity as parse
from gangline.apiserver.kinds.pod.strategy import qos_class

GroupResource = tuple[str, str]

UNIT = Quantity(10**9)
_COMPUTE_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_POD_RESOURCES = frozenset(
    {"count/pods", "pods"}
    | {f"{prefix}{name}" for prefix in ("", "requests.", "limits.") for name in _COMPUTE_RESOURCES}
)
_REQUIRED_RESOURCES = frozenset(
    f"{prefix}{name}" for prefix in ("", "requests.", "limits.") for name in ("cpu", "memory")
)
"""If a quota counts one of these, every container must set it."""
_SERVICE_RESOURCES = frozenset({"count/services", "services", "services.nodeports", "services.loadbalancers"})
_CLAIM_RESOURCES = ("persistentvolumeclaims", "requests.storage")
_STORAGE_CLASS_SUFFIX = ".storageclass.storage.k8s.io/"
_DEVICE_CLASS_SUFFIX = ".deviceclass.resource.k8s.io/devices"
_MAX_DEVICES = 32
"""The devices that a request for all of them is counted as."""
_OLD_COUNT_NAMES = frozenset({"configmaps", "resourcequotas", "replicationcontrollers", "secrets"})
_UNCOUNTED = frozenset({("", "events"), ("events.k8s.io", "events"), ("", "bindings")})


class QuotaItem(msgspec.Struct, frozen=True):
    """An object as quotas see it."""

    stored: Amounts
    """What it counts as long as it is stored."""
    active: Amounts = {}
    """What it counts besides, until it has ended."""
    active_until: datetime | None = None
    """When a pod that is being deleted counts as ended, whatever its node says."""
    scopes: frozenset[str] = frozenset()
    scope_values: Mapping[str, frozenset[str]] = {}
    """The values of scopes that are selected by value: the classes that the object names."""
    missing: Mapping[str, tuple[str, ...]] = {}
    """Resources that some containers do not set, with the names of those."""

    def usage(self, now: datetime) -> Amounts:
        """What it counts at a time."""
        if self.active_until is not None and now > self.active_until:
            return self.stored
        return {**self.stored, **self.active}


def is_counted(resource: GroupResource) -> bool:
    """Whether quotas count objects of a resource. Events and bindings are free."""
    return resource not in _UNCOUNTED


def count_name(resource: GroupResource) -> str:
    """The name under which a quota counts the objects of a resource, such as `count/deployments.apps`."""
    group, plural = resource
    return f"count/{plural}.{group}" if group else f"count/{plural}"


def matching_resources(resource: GroupResource, names: Iterable[str]) -> frozenset[str]:
    """Which names of a quota count objects of this resource."""
    matches = _MATCHES.get(resource)
    if matches is not None:
        return frozenset(name for name in names if matches(name))
    own_names = _simple_item(resource).stored
    return frozenset(name for name in names if name in own_names)


def quota_item(resource: GroupResource, obj: JSON) -> QuotaItem:
    """An object as quotas see it. Of most resources only the number is counted."""
    read = _READERS.get(resource)
    return read(obj) if read is not None else _simple_item(resource)


def counted_resource(name: str) -> GroupResource | None:
    """The resource whose objects a name of a quota counts, without reading them: `count/jobs.batch`, `secrets`."""
    plural, _, group = name.removeprefix("count/").partition(".")
    resource = (group, plural)
    if not is_counted(resource) or not is_simple(resource):
        return None
    return resource if name in _simple_item(resource).stored else None


def is_simple(resource: GroupResource) -> bool:
    """Whether all objects of a resource are the same to a quota, which counts them without reading them."""
    return resource not in _READERS


def _simple_item(resource: GroupResource) -> QuotaItem:
    group, plural = resource
    names = [count_name(resource), *([plural] if not group and plural in _OLD_COUNT_NAMES else [])]
    return QuotaItem(dict.fromkeys(names, UNIT))


# Pods


def _pod_item(pod: JSON) -> QuotaItem:
    spec, metadata, status = pod["spec"], pod["metadata"], pod.get("status") or {}
    ended = is_terminal_phase(status.get("phase", ""))
    active = {} if ended else _compute_usage(charged_amounts(pod, "requests"), charged_amounts(pod, "limits"))
    priority_class = spec.get("priorityClassName") or ""
    return QuotaItem(
        {"count/pods": UNIT},
        active,
        active_until=_deletion_deadline(metadata),
        scopes=frozenset(_pod_scopes(spec, status)),
        scope_values={"PriorityClass": frozenset({priority_class} if priority_class else ())},
        missing={} if has_pod_level_resources(spec) else _missing_resources(spec),
    )


def _compute_usage(requests: Mapping[str, Quantity], limits: Mapping[str, Quantity]) -> Amounts:
    usage: Amounts = {"pods": UNIT}
    for name in _COMPUTE_RESOURCES:
        if name in requests:
            usage[name] = usage[f"requests.{name}"] = requests[name]
        if name in limits:
            usage[f"limits.{name}"] = limits[name]
    for name, amount in requests.items():
        if name.startswith(HUGE_PAGES_PREFIX):
            usage[name] = usage[f"requests.{name}"] = amount
        elif is_extended_resource(name):
            usage[f"requests.{name}"] = amount
    return usage


def _deletion_deadline(metadata: JSON) -> datetime | None:
    text, grace = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    if not text or grace is None:
        return None
    return datetime.fromisoformat(text) + timedelta(seconds=grace)


def _pod_scopes(spec: JSON, status: JSON) -> Iterable[str]:
    deadline = spec.get("activeDeadlineSeconds")
    yield "Terminating" if deadline is not None and deadline >= 0 else "NotTerminating"
    yield "BestEffort" if (status.get("qosClass") or qos_class(spec)) == "BestEffort" else "NotBestEffort"
    if spec.get("priorityClassName"):
        yield "PriorityClass"
    if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in _affinity_terms(spec)):
        yield "CrossNamespacePodAffinity"


def _affinity_terms(spec: JSON) -> Iterable[JSON]:
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind) or {}
        yield from rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for preferred in rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield preferred.get("podAffinityTerm") or {}


def _missing_resources(spec: JSON) -> dict[str, tuple[str, ...]]:
    missing: dict[str, set[str]] = {}
    for container in containers_of(spec):
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        present = {*requests, *(f"requests.{name}" for name in requests), *(f"limits.{name}" for name in limits)}
        for name in _REQUIRED_RESOURCES - present:
            missing.setdefault(name, set()).add(container["name"])
    return {name: tuple(sorted(containers)) for name, containers in missing.items()}


def _matches_pod(name: str) -> bool:
    prefixes = (HUGE_PAGES_PREFIX, f"requests.{HUGE_PAGES_PREFIX}")
    if name in _POD_RESOURCES or name.startswith(prefixes):
        return True
    return name.startswith("requests.") and not is_native_resource(name)


# Services


def _service_item(service: JSON) -> QuotaItem:
    spec = service["spec"]
    kind, ports = spec.get("type"), spec.get("ports") or ()
    node_ports = 0
    if kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
        node_ports = sum(1 for port in ports if port.get("nodePort"))
    elif kind in {"LoadBalancer", "NodePort"}:
        node_ports = len(ports)
    return QuotaItem(
        {
            "count/services": UNIT,
            "services": UNIT,
            "services.nodeports": UNIT * node_ports,
            "services.loadbalancers": UNIT * (kind == "LoadBalancer"),
        }
    )


# Claims of volumes and of devices


def _volume_claim_item(claim: JSON) -> QuotaItem:
    spec, status = claim["spec"], claim.get("status") or {}
    usage: Amounts = {"count/persistentvolumeclaims": UNIT, "persistentvolumeclaims": UNIT}
    requested = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if requested is not None:
        allocated = (status.get("allocatedResources") or {}).get("storage", "0")
        storage = max(parse(requested), parse(allocated))
        usage["requests.storage"] = Quantity(storage.value() * 10**9, storage.family)
    if storage_class := storage_class_name(claim):
        own = {name: usage[name] for name in _CLAIM_RESOURCES if name in usage}
        usage |= {f"{storage_class}{_STORAGE_CLASS_SUFFIX}{name}": amount for name, amount in own.items()}
    classes = frozenset(
        name
        for name in (
            spec.get("volumeAttributesClassName"),
            status.get("currentVolumeAttributesClassName"),
            (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
        )
        if name
    )
    scope = "VolumeAttributesClass"
    return QuotaItem(usage, scopes=frozenset({scope} if classes else ()), scope_values={scope: classes})


def _matches_volume_claim(name: str) -> bool:
    if name == "count/persistentvolumeclaims" or name in _CLAIM_RESOURCES:
        return True
    return name.endswith(tuple(f"{_STORAGE_CLASS_SUFFIX}{resource}" for resource in _CLAIM_RESOURCES))


def _device_claim_item(claim: JSON) -> QuotaItem:
    usage: Amounts = {"count/resourceclaims.resource.k8s.io": UNIT}
    for request in (claim["spec"].get("devices") or {}).get("requests") or ():
        # Of alternatives the worst case of each class counts.
        worst: Amounts = {}
        for choice in request.get("firstAvailable") or ([request["exactly"]] if request.get("exactly") else ()):
            name = f"{choice.get('deviceClassName', '')}{_DEVICE_CLASS_SUFFIX}"
            number = {"ExactCount": choice.get("count", 0), "All": _MAX_DEVICES}.get(
                choice.get("allocationMode", ""), 0
            )
            worst[name] = max(worst.get(name, UNIT * 0), UNIT * number)
        usage = add_resources(usage, worst)
    return QuotaItem(usage)


_READERS: Mapping[GroupResource, Callable[[JSON], QuotaItem]] = {
    ("", "pods"): _pod_item,
    ("", "services"): _service_item,
    ("", "persistentvolumeclaims"): _volume_claim_item,
    ("resource.k8s.io", "resourceclaims"): _device_claim_item,
}
_MATCHES: Mapping[GroupResource, Callable[[str], bool]] = {
    ("", "pods"): _matches_pod,
    ("", "services"): _SERVICE_RESOURCES.__contains__,
    ("", "persistentvolumeclaims"): _matches_volume_claim,
    ("resource.k8s.io", "resourceclaims"): lambda name: (
        name == "count/resourceclaims.resource.k8s.io" or name.endswith(_DEVICE_CLASS_SUFFIX)
    ),
}
COUNTED_BY_CONTENT = tuple(_READERS)
"""The resources whose objects are read to be counted."""
