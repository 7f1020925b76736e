"""Rows of the built-in kinds, cell by cell as kube-apiserver makes them."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from gangline.api.durations import human, since
from gangline.api.meta import JSON
from gangline.api.selectors import LabelSelector, SelectorError
from gangline.apiserver.tables import pod_row
from gangline.apiserver.tables.columns import COLUMNS
from gangline.apiserver.tables.table import GENERIC, Cells, Printer, age, name_of

_NONE, _UNSET, _UNKNOWN = "<none>", "<unset>", "<unknown>"
_SHOWN = 3
"""Addresses, ports and the like in one cell; the others are only counted."""


def printer(kind: str) -> Printer:
    """The printer of a built-in kind."""
    return _PRINTERS.get(kind, GENERIC)


def at(value: JSON, *path: str) -> Any:
    """A nested field, None where any step is missing."""
    found: Any = value
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    return found


def _count(value: JSON, *path: str) -> int:
    return len(at(value, *path) or ())


def _number(value: JSON, *path: str) -> int:
    number: int = at(value, *path) or 0
    return number


def _text(value: JSON, *path: str, missing: str = "") -> str:
    text = at(value, *path)
    return missing if text is None else str(text)


def _labels(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or _NONE


def _selector(selector: JSON | None, *, empty: str = _NONE, wrong: str = "<error>") -> str:
    try:
        return str(LabelSelector.from_json(selector)) or empty
    except SelectorError:
        return wrong


def _containers(template: JSON | None) -> list[Any]:
    """Names and images, one cell each."""
    containers = at(template or {}, "spec", "containers") or []
    return [",".join(str(each.get(field, "")) for each in containers) for field in ("name", "image")]


def _listed(items: Iterable[str], *, none: str) -> str:
    every = list(items)
    text = ",".join(every[:_SHOWN])
    if len(every) > _SHOWN:
        return f"{text} + {len(every) - _SHOWN} more..."
    return text or none


def _config_map(obj: JSON, now: datetime) -> list[Any]:
    return [name_of(obj), _count(obj, "data") + _count(obj, "binaryData"), age(obj, now)]


def _secret(obj: JSON, now: datetime) -> list[Any]:
    return [name_of(obj), obj.get("type", ""), _count(obj, "data"), age(obj, now)]


def _service_account(obj: JSON, now: datetime) -> list[Any]:
    return [name_of(obj), _count(obj, "secrets"), age(obj, now)]


def _namespace(obj: JSON, now: datetime) -> list[Any]:
    return [name_of(obj), _text(obj, "status", "phase"), age(obj, now)]


def _lease(obj: JSON, now: datetime) -> list[Any]:
    return [name_of(obj), _text(obj, "spec", "holderIdentity"), age(obj, now)]


def _runtime_class(obj: JSON, now: datetime) -> list[Any]:
    return [name_of(obj), obj.get("handler", ""), age(obj, now)]


def _priority_class(obj: JSON, now: datetime) -> list[Any]:
    value, default = obj.get("value", 0), obj.get("globalDefault", False)
    return [name_of(obj), value, default, age(obj, now), obj.get("preemptionPolicy", "")]


def _service(obj: JSON, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    addresses = spec.get("clusterIPs") or [_NONE]
    ports = ",".join(map(_service_port, spec.get("ports") or ())) or _NONE
    kind = spec.get("type", "")
    external = _external(kind, spec, obj.get("status") or {})
    return [name_of(obj), kind, addresses[0], external, ports, age(obj, now), _labels(spec.get("selector"))]


def _service_port(port: JSON) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{node}/{port.get('protocol', 'TCP')}"


def _external(kind: str, spec: JSON, status: JSON) -> str:
    given: list[str] = spec.get("externalIPs") or []
    match kind:
        case "ClusterIP" | "NodePort":
            return ",".join(given) or _NONE
        case "LoadBalancer":
            ingress = at(status, "loadBalancer", "ingress") or []
            found = {each.get("ip") or each.get("hostname") or "" for each in ingress} - {""}
            return ",".join([*sorted(found), *given]) or "<pending>"
        case "ExternalName":
            return str(spec.get("externalName", ""))
        case _:
            return _UNKNOWN


def _endpoints(obj: JSON, now: datetime) -> list[Any]:
    addresses = [
        _host_port(each["ip"], port)
        for subset in obj.get("subsets") or ()
        for port in subset.get("ports") or (None,)
        for each in subset.get("addresses") or ()
    ]
    none = "" if obj.get("subsets") else _NONE
    return [name_of(obj), _listed(addresses, none=none), age(obj, now)]


def _host_port(ip: str, port: JSON | None) -> str:
    if port is None:
        return ip
    return f"[{ip}]:{port['port']}" if ":" in ip else f"{ip}:{port['port']}"


def _endpoint_slice(obj: JSON, now: datetime) -> list[Any]:
    ports = [str(each.get("port") or each.get("name") or "*") for each in obj.get("ports") or ()]
    addresses = [address for each in obj.get("endpoints") or () for address in each.get("addresses") or ()]
    shown = [_listed(items, none=_UNSET) for items in (ports, addresses)]
    return [name_of(obj), obj.get("addressType", ""), *shown, age(obj, now)]


_ROLE_PREFIX = "node-role.kubernetes.io/"


def _node(obj: JSON, now: datetime) -> list[Any]:
    info = at(obj, "status", "nodeInfo") or {}
    system = [
        info.get(field) or _UNKNOWN for field in ("osImage", "kernelVersion", "containerRuntimeVersion")
    ]
    addresses = [_address(obj, kind) for kind in ("InternalIP", "ExternalIP")]
    version = info.get("kubeletVersion", "")
    return [name_of(obj), _node_status(obj), _roles(obj), age(obj, now), version, *addresses, *system]


def _node_status(obj: JSON) -> str:
    ready = [each for each in at(obj, "status", "conditions") or () if each.get("type") == "Ready"]
    status = "Unknown"
    if ready:
        status = "Ready" if ready[-1].get("status") == "True" else "NotReady"
    return f"{status},SchedulingDisabled" if at(obj, "spec", "unschedulable") else status


def _roles(obj: JSON) -> str:
    labels: dict[str, str] = at(obj, "metadata", "labels") or {}
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles.add(labels.get("kubernetes.io/role", ""))
    return ",".join(sorted(roles - {""})) or _NONE


def _address(obj: JSON, kind: str) -> str:
    addresses = at(obj, "status", "addresses") or ()
    return next((str(each.get("address", "")) for each in addresses if each.get("type") == kind), _NONE)


_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(modes: Iterable[str] | None) -> str:
    given = set(modes or ())
    return ",".join(short for mode, short in _MODES.items() if mode in given)


def _class(obj: JSON) -> str:
    old = at(obj, "metadata", "annotations", "volume.beta.kubernetes.io/storage-class")
    return _text(obj, "spec", "storageClassName") if old is None else str(old)


def _volume_phase(obj: JSON) -> str:
    return "Terminating" if at(obj, "metadata", "deletionTimestamp") else _text(obj, "status", "phase")


def _volume(obj: JSON, now: datetime) -> list[Any]:
    claim = at(obj, "spec", "claimRef")
    return [
        name_of(obj),
        _text(obj, "spec", "capacity", "storage", missing="0"),
        _modes(at(obj, "spec", "accessModes")),
        _text(obj, "spec", "persistentVolumeReclaimPolicy"),
        _volume_phase(obj),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _class(obj),
        _text(obj, "spec", "volumeAttributesClassName", missing=_UNSET),
        _text(obj, "status", "reason"),
        age(obj, now),
        _text(obj, "spec", "volumeMode", missing=_UNSET),
    ]


def _claim(obj: JSON, now: datetime) -> list[Any]:
    volume = _text(obj, "spec", "volumeName")
    capacity = _text(obj, "status", "capacity", "storage", missing="0")
    return [
        name_of(obj),
        _volume_phase(obj),
        volume,
        capacity if volume else "",
        _modes(at(obj, "status", "accessModes")) if volume else "",
        _class(obj),
        _text(obj, "spec", "volumeAttributesClassName", missing=_UNSET),
        age(obj, now),
        _text(obj, "spec", "volumeMode", missing=_UNSET),
    ]


def _storage_class(obj: JSON, now: datetime) -> list[Any]:
    marks = at(obj, "metadata", "annotations") or {}
    kinds = (
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    )
    default = any(marks.get(mark) == "true" for mark in kinds)
    return [
        f"{name_of(obj)} (default)" if default else name_of(obj),
        obj.get("provisioner", ""),
        _text(obj, "reclaimPolicy", missing="Delete"),
        _text(obj, "volumeBindingMode", missing="Immediate"),
        obj.get("allowVolumeExpansion", False),
        age(obj, now),
    ]


def _event(obj: JSON, now: datetime) -> list[Any]:
    """An event, as either of the two APIs spells it."""
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    kind, name = str(about.get("kind", "")).lower(), about.get("name", "")
    first = since(_either(obj, "firstTimestamp", "deprecatedFirstTimestamp") or obj.get("eventTime"), now)
    last_stamp = _either(obj, "lastTimestamp", "deprecatedLastTimestamp")
    last = since(last_stamp, now) if last_stamp else first
    count = _either(obj, "count", "deprecatedCount") or 1
    if series := obj.get("series"):
        last, count = since(series.get("lastObservedTime"), now), series.get("count", 0)
    return [
        last,
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{kind}/{name}" if name else kind,
        about.get("fieldPath", ""),
        _event_source(obj),
        str(_either(obj, "message", "note") or "").strip(),
        first,
        count,
        name_of(obj),
    ]


def _either(obj: JSON, name: str, other: str) -> Any:
    return obj.get(name) or obj.get(other)


def _event_source(obj: JSON) -> str:
    source = _either(obj, "source", "deprecatedSource") or {}
    component = source.get("component") or _either(obj, "reportingComponent", "reportingController") or ""
    instance = source.get("host") or obj.get("reportingInstance")
    return f"{component}, {instance}" if instance else component


def _binding(obj: JSON, now: datetime) -> list[Any]:
    role = obj.get("roleRef") or {}
    subjects = obj.get("subjects") or ()
    users, groups = (
        ", ".join(each.get("name", "") for each in subjects if each.get("kind") == kind)
        for kind in ("User", "Group")
    )
    accounts = ", ".join(
        f"{each.get('namespace', '')}/{each.get('name', '')}"
        for each in subjects
        if each.get("kind") == "ServiceAccount"
    )
    reference = f"{role.get('kind', '')}/{role.get('name', '')}"
    return [name_of(obj), reference, age(obj, now), users, groups, accounts]


def _deployment(obj: JSON, now: datetime) -> list[Any]:
    selector = _selector(at(obj, "spec", "selector"), empty="", wrong="<invalid>")
    return [
        name_of(obj),
        f"{_number(obj, 'status', 'readyReplicas')}/{_number(obj, 'spec', 'replicas')}",
        _number(obj, "status", "updatedReplicas"),
        _number(obj, "status", "availableReplicas"),
        age(obj, now),
        *_containers(at(obj, "spec", "template")),
        selector,
    ]


def _replica_set(obj: JSON, now: datetime) -> list[Any]:
    return [*_replicas(obj, now), _selector(at(obj, "spec", "selector"))]


def _replication_controller(obj: JSON, now: datetime) -> list[Any]:
    return [*_replicas(obj, now), _labels(at(obj, "spec", "selector"))]


def _replicas(obj: JSON, now: datetime) -> list[Any]:
    return [
        name_of(obj),
        _number(obj, "spec", "replicas"),
        _number(obj, "status", "replicas"),
        _number(obj, "status", "readyReplicas"),
        age(obj, now),
        *_containers(at(obj, "spec", "template")),
    ]


def _stateful_set(obj: JSON, now: datetime) -> list[Any]:
    ready = f"{_number(obj, 'status', 'readyReplicas')}/{_number(obj, 'spec', 'replicas')}"
    return [name_of(obj), ready, age(obj, now), *_containers(at(obj, "spec", "template"))]


_SCHEDULED = (
    "desiredNumberScheduled",
    "currentNumberScheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
)


def _daemon_set(obj: JSON, now: datetime) -> list[Any]:
    template = at(obj, "spec", "template")
    return [
        name_of(obj),
        *(_number(obj, "status", field) for field in _SCHEDULED),
        _labels(at(obj, "spec", "template", "spec", "nodeSelector")),
        age(obj, now),
        *_containers(template),
        _selector(at(obj, "spec", "selector")),
    ]


def _controller_revision(obj: JSON, now: datetime) -> list[Any]:
    owners = at(obj, "metadata", "ownerReferences") or ()
    owner = next((each for each in owners if each.get("controller")), None)
    name = _NONE
    if owner is not None:
        group = owner.get("apiVersion", "").rpartition("/")[0]
        kind = f"{owner['kind']}.{group}" if group else owner["kind"]
        name = f"{kind.lower()}/{owner['name']}"
    return [name_of(obj), name, obj.get("revision", 0), age(obj, now)]


_JOB_STATES = {
    "Complete": "Complete",
    "Failed": "Failed",
    "Suspended": "Suspended",
    "FailureTarget": "FailureTarget",
    "SuccessCriteriaMet": "SuccessCriteriaMet",
}


def _job(obj: JSON, now: datetime) -> list[Any]:
    return [
        name_of(obj),
        _job_status(obj),
        _completions(obj),
        _job_duration(obj, now),
        age(obj, now),
        *_containers(at(obj, "spec", "template")),
        _selector(at(obj, "spec", "selector")),
    ]


def _job_status(obj: JSON) -> str:
    conditions = at(obj, "status", "conditions") or ()
    # The first condition of a type counts, should there be several.
    states = {each["type"]: each.get("status") == "True" for each in reversed(conditions)}
    if at(obj, "metadata", "deletionTimestamp") and not (states.get("Complete") or states.get("Failed")):
        return "Terminating"
    return next((state for kind, state in _JOB_STATES.items() if states.get(kind)), "Running")


def _completions(obj: JSON) -> str:
    done, wanted = _number(obj, "status", "succeeded"), at(obj, "spec", "completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallel = _number(obj, "spec", "parallelism")
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _job_duration(obj: JSON, now: datetime) -> str:
    start, end = at(obj, "status", "startTime"), at(obj, "status", "completionTime")
    if start is None:
        return ""
    until = now if end is None else datetime.fromisoformat(end)
    return human(until - datetime.fromisoformat(start))


def _cron_job(obj: JSON, now: datetime) -> list[Any]:
    suspended = at(obj, "spec", "suspend")
    last = at(obj, "status", "lastScheduleTime")
    return [
        name_of(obj),
        _text(obj, "spec", "schedule"),
        _text(obj, "spec", "timeZone", missing=_NONE),
        _text({"value": suspended}, "value", missing=_UNSET),
        _count(obj, "status", "active"),
        _NONE if last is None else since(last, now),
        age(obj, now),
        *_containers(at(obj, "spec", "jobTemplate", "spec", "template")),
        _selector(at(obj, "spec", "jobTemplate", "spec", "selector")),
    ]


def _budget(obj: JSON, now: datetime) -> list[Any]:
    limits = [_text(obj, "spec", field, missing="N/A") for field in ("minAvailable", "maxUnavailable")]
    return [name_of(obj), *limits, _number(obj, "status", "disruptionsAllowed"), age(obj, now)]


def _quota(obj: JSON, now: datetime) -> list[Any]:
    hard, used = at(obj, "status", "hard") or {}, at(obj, "status", "used") or {}
    columns: tuple[list[str], list[str]] = ([], [])
    for name, limit in sorted(hard.items()):
        columns[name.startswith("limits.")].append(f"{name}: {used.get(name, '0')}/{limit}")
    return [name_of(obj), *map(", ".join, columns), age(obj, now)]


def _network_policy(obj: JSON, now: datetime) -> list[Any]:
    return [name_of(obj), _selector(at(obj, "spec", "podSelector") or {}), age(obj, now)]


def _autoscaler(obj: JSON, now: datetime) -> list[Any]:
    target = at(obj, "spec", "scaleTargetRef") or {}
    return [
        name_of(obj),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _metrics(obj.get("spec") or {}, obj.get("status") or {}),
        _text(obj, "spec", "minReplicas", missing=_UNSET),
        _number(obj, "spec", "maxReplicas"),
        _number(obj, "status", "currentReplicas"),
        age(obj, now),
    ]


def _metrics(spec: JSON, status: JSON) -> str:
    """Current and wanted values of the first two metrics. autoscaling/v1 knows the processor only."""
    if (wanted := spec.get("targetCPUUtilizationPercentage")) is not None:
        current = status.get("currentCPUUtilizationPercentage")
        return f"cpu: {_UNKNOWN if current is None else f'{current}%'}/{wanted}%"
    metrics, current_metrics = spec.get("metrics") or [], status.get("currentMetrics") or []
    shown = [
        _metric(metric, current_metrics[index] if index < len(current_metrics) else {})
        for index, metric in enumerate(metrics)
    ]
    text = ", ".join(shown[:2]) or _NONE
    return f"{text} + {len(shown) - 2} more..." if len(shown) > 2 else text


_METRICS = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}


def _metric(metric: JSON, status: JSON) -> str:
    kind = metric.get("type", "")
    field = _METRICS.get(kind)
    if field is None:
        return "<unknown type>"
    wanted = at(metric, field, "target") or {}
    current = at(status, field, "current") or {}
    average = _text(current, "averageValue", missing=_UNKNOWN)
    if kind == "Pods":
        return f"{average}/{wanted.get('averageValue', '')}"
    if kind in ("Resource", "ContainerResource"):
        name = _text(metric, field, "name")
        if "averageValue" in wanted:
            return f"{name}: {average}/{wanted['averageValue']}"
        return f"{name}: {_percent(current, _UNKNOWN)}/{_percent(wanted, '<auto>')}"
    if "averageValue" in wanted:
        return f"{average}/{wanted['averageValue']} (avg)"
    return f"{_text(current, 'value', missing=_UNKNOWN)}/{wanted.get('value', '')}"


def _percent(value: JSON, missing: str) -> str:
    percent = value.get("averageUtilization")
    return missing if percent is None else f"{percent}%"


_CELLS: Final[Mapping[str, Callable[[JSON, datetime], list[Any]]]] = MappingProxyType(
    {
        "ClusterRoleBinding": _binding,
        "ConfigMap": _config_map,
        "ControllerRevision": _controller_revision,
        "CronJob": _cron_job,
        "DaemonSet": _daemon_set,
        "Deployment": _deployment,
        "EndpointSlice": _endpoint_slice,
        "Endpoints": _endpoints,
        "Event": _event,
        "HorizontalPodAutoscaler": _autoscaler,
        "Job": _job,
        "Lease": _lease,
        "Namespace": _namespace,
        "NetworkPolicy": _network_policy,
        "Node": _node,
        "PersistentVolume": _volume,
        "PersistentVolumeClaim": _claim,
        "Pod": pod_row.cells,
        "PodDisruptionBudget": _budget,
        "PriorityClass": _priority_class,
        "ReplicaSet": _replica_set,
        "ReplicationController": _replication_controller,
        "ResourceQuota": _quota,
        "RoleBinding": _binding,
        "RuntimeClass": _runtime_class,
        "Secret": _secret,
        "Service": _service,
        "ServiceAccount": _service_account,
        "StatefulSet": _stateful_set,
        "StorageClass": _storage_class,
    }
)


def _printer(kind: str, cells: Cells) -> Printer:
    return Printer(COLUMNS[kind], cells, pod_row.conditions if kind == "Pod" else None)


_PRINTERS: Final = {kind: _printer(kind, cells) for kind, cells in _CELLS.items()}
