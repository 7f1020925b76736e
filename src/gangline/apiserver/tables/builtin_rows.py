"""The rows of built-in kinds, with the cells of kube-apiserver."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from gangline.api.durations import human_age, human_duration
from gangline.api.meta import JSON
from gangline.api.selectors import LabelSelector, SelectorError
from gangline.apiserver.tables import pod_row
from gangline.apiserver.tables.columns import BUILTIN_COLUMNS
from gangline.apiserver.tables.table import CellsFunc, TablePrinter, age_cell, object_name

_NONE, _UNSET, _UNKNOWN = "<none>", "<unset>", "<unknown>"
_MAX_ITEMS_SHOWN = 3
"""The most addresses, ports and other items in one cell; further items are only counted."""


def builtin_printer(kind: str) -> TablePrinter:
    """The printer of a built-in kind."""
    if (printer := _PRINTERS.get(kind)) is not None:
        return printer
    # Loaded with the first such kind: few programs use any of them.
    from gangline.apiserver.tables.declared_rows import declared_printer

    return declared_printer(kind)


def field_at(value: JSON, *path: str) -> Any:
    """A nested field; None if any step is missing."""
    field: Any = value
    for step in path:
        field = field.get(step) if isinstance(field, dict) else None
    return field


def _field_length(value: JSON, *path: str) -> int:
    return len(field_at(value, *path) or ())


def _int_field(value: JSON, *path: str) -> int:
    number: int = field_at(value, *path) or 0
    return number


def _text_field(value: JSON, *path: str, missing: str = "") -> str:
    text = field_at(value, *path)
    return missing if text is None else str(text)


def _labels_text(labels: Mapping[str, str] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or _NONE


def _selector_text(selector: JSON | None, *, empty: str = _NONE, wrong: str = "<error>") -> str:
    try:
        return str(LabelSelector.from_json(selector)) or empty
    except SelectorError:
        return wrong


def _container_cells(template: JSON | None) -> list[Any]:
    """Two cells: names and images of the containers."""
    containers = field_at(template or {}, "spec", "containers") or []
    return [",".join(str(container.get(field, "")) for container in containers) for field in ("name", "image")]


def _abbreviated_list(items: Iterable[str], *, none: str) -> str:
    texts = list(items)
    text = ",".join(texts[:_MAX_ITEMS_SHOWN])
    if len(texts) > _MAX_ITEMS_SHOWN:
        return f"{text} + {len(texts) - _MAX_ITEMS_SHOWN} more..."
    return text or none


def _config_map_cells(obj: JSON, now: datetime) -> list[Any]:
    return [object_name(obj), _field_length(obj, "data") + _field_length(obj, "binaryData"), age_cell(obj, now)]


def _secret_cells(obj: JSON, now: datetime) -> list[Any]:
    return [object_name(obj), obj.get("type", ""), _field_length(obj, "data"), age_cell(obj, now)]


def _service_account_cells(obj: JSON, now: datetime) -> list[Any]:
    return [object_name(obj), _field_length(obj, "secrets"), age_cell(obj, now)]


def _namespace_cells(obj: JSON, now: datetime) -> list[Any]:
    return [object_name(obj), _text_field(obj, "status", "phase"), age_cell(obj, now)]


def _lease_cells(obj: JSON, now: datetime) -> list[Any]:
    return [object_name(obj), _text_field(obj, "spec", "holderIdentity"), age_cell(obj, now)]


def _runtime_class_cells(obj: JSON, now: datetime) -> list[Any]:
    return [object_name(obj), obj.get("handler", ""), age_cell(obj, now)]


def _priority_class_cells(obj: JSON, now: datetime) -> list[Any]:
    value, default = obj.get("value", 0), obj.get("globalDefault", False)
    return [object_name(obj), value, default, age_cell(obj, now), obj.get("preemptionPolicy", "")]


def _service_cells(obj: JSON, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    addresses = spec.get("clusterIPs") or [_NONE]
    ports = ",".join(map(_service_port_text, spec.get("ports") or ())) or _NONE
    kind = spec.get("type", "")
    external = _external_ip(kind, spec, obj.get("status") or {})
    return [
        object_name(obj),
        kind,
        addresses[0],
        external,
        ports,
        age_cell(obj, now),
        _labels_text(spec.get("selector")),
    ]


def _service_port_text(port: JSON) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{node}/{port.get('protocol', 'TCP')}"


def _external_ip(kind: str, spec: JSON, status: JSON) -> str:
    addresses: list[str] = spec.get("externalIPs") or []
    match kind:
        case "ClusterIP" | "NodePort":
            return ",".join(addresses) or _NONE
        case "LoadBalancer":
            ingress = field_at(status, "loadBalancer", "ingress") or []
            ingress_addresses = {item.get("ip") or item.get("hostname") or "" for item in ingress} - {""}
            return ",".join([*sorted(ingress_addresses), *addresses]) or "<pending>"
        case "ExternalName":
            return str(spec.get("externalName", ""))
        case _:
            return _UNKNOWN


def _endpoints_cells(obj: JSON, now: datetime) -> list[Any]:
    addresses = [
        _host_port(address["ip"], port)
        for subset in obj.get("subsets") or ()
        for port in subset.get("ports") or (None,)
        for address in subset.get("addresses") or ()
    ]
    none = "" if obj.get("subsets") else _NONE
    return [object_name(obj), _abbreviated_list(addresses, none=none), age_cell(obj, now)]


def _host_port(ip: str, port: JSON | None) -> str:
    if port is None:
        return ip
    return f"[{ip}]:{port['port']}" if ":" in ip else f"{ip}:{port['port']}"


def _endpoint_slice_cells(obj: JSON, now: datetime) -> list[Any]:
    ports = [str(port.get("port") or port.get("name") or "*") for port in obj.get("ports") or ()]
    addresses = [address for item in obj.get("endpoints") or () for address in item.get("addresses") or ()]
    lists = [_abbreviated_list(items, none=_UNSET) for items in (ports, addresses)]
    return [object_name(obj), obj.get("addressType", ""), *lists, age_cell(obj, now)]


_ROLE_PREFIX = "node-role.kubernetes.io/"


def _node_cells(obj: JSON, now: datetime) -> list[Any]:
    info = field_at(obj, "status", "nodeInfo") or {}
    system = [info.get(field) or _UNKNOWN for field in ("osImage", "kernelVersion", "containerRuntimeVersion")]
    addresses = [_node_address(obj, kind) for kind in ("InternalIP", "ExternalIP")]
    version = info.get("kubeletVersion", "")
    return [object_name(obj), _node_status(obj), _node_roles(obj), age_cell(obj, now), version, *addresses, *system]


def _node_status(obj: JSON) -> str:
    conditions = field_at(obj, "status", "conditions") or ()
    ready = [condition for condition in conditions if condition.get("type") == "Ready"]
    status = "Unknown"
    if ready:
        status = "Ready" if ready[-1].get("status") == "True" else "NotReady"
    return f"{status},SchedulingDisabled" if field_at(obj, "spec", "unschedulable") else status


def _node_roles(obj: JSON) -> str:
    labels: dict[str, str] = field_at(obj, "metadata", "labels") or {}
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles.add(labels.get("kubernetes.io/role", ""))
    return ",".join(sorted(roles - {""})) or _NONE


def _node_address(obj: JSON, kind: str) -> str:
    addresses = field_at(obj, "status", "addresses") or ()
    return next((str(item.get("address", "")) for item in addresses if item.get("type") == kind), _NONE)


_ACCESS_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _access_modes(modes: Iterable[str] | None) -> str:
    given = set(modes or ())
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in given)


def _storage_class_name(obj: JSON) -> str:
    old = field_at(obj, "metadata", "annotations", "volume.beta.kubernetes.io/storage-class")
    return _text_field(obj, "spec", "storageClassName") if old is None else str(old)


def _volume_phase(obj: JSON) -> str:
    return "Terminating" if field_at(obj, "metadata", "deletionTimestamp") else _text_field(obj, "status", "phase")


def _volume_cells(obj: JSON, now: datetime) -> list[Any]:
    claim = field_at(obj, "spec", "claimRef")
    return [
        object_name(obj),
        _text_field(obj, "spec", "capacity", "storage", missing="0"),
        _access_modes(field_at(obj, "spec", "accessModes")),
        _text_field(obj, "spec", "persistentVolumeReclaimPolicy"),
        _volume_phase(obj),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        _storage_class_name(obj),
        _text_field(obj, "spec", "volumeAttributesClassName", missing=_UNSET),
        _text_field(obj, "status", "reason"),
        age_cell(obj, now),
        _text_field(obj, "spec", "volumeMode", missing=_UNSET),
    ]


def _claim_cells(obj: JSON, now: datetime) -> list[Any]:
    volume = _text_field(obj, "spec", "volumeName")
    capacity = _text_field(obj, "status", "capacity", "storage", missing="0")
    return [
        object_name(obj),
        _volume_phase(obj),
        volume,
        capacity if volume else "",
        _access_modes(field_at(obj, "status", "accessModes")) if volume else "",
        _storage_class_name(obj),
        _text_field(obj, "spec", "volumeAttributesClassName", missing=_UNSET),
        age_cell(obj, now),
        _text_field(obj, "spec", "volumeMode", missing=_UNSET),
    ]


def _storage_class_cells(obj: JSON, now: datetime) -> list[Any]:
    marks = field_at(obj, "metadata", "annotations") or {}
    kinds = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
    default = any(marks.get(mark) == "true" for mark in kinds)
    return [
        f"{object_name(obj)} (default)" if default else object_name(obj),
        obj.get("provisioner", ""),
        _text_field(obj, "reclaimPolicy", missing="Delete"),
        _text_field(obj, "volumeBindingMode", missing="Immediate"),
        obj.get("allowVolumeExpansion", False),
        age_cell(obj, now),
    ]


def _event_cells(obj: JSON, now: datetime) -> list[Any]:
    """The cells of an Event of either API group."""
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    kind, name = str(about.get("kind", "")).lower(), about.get("name", "")
    first = human_age(_first_set(obj, "firstTimestamp", "deprecatedFirstTimestamp") or obj.get("eventTime"), now)
    last_stamp = _first_set(obj, "lastTimestamp", "deprecatedLastTimestamp")
    last = human_age(last_stamp, now) if last_stamp else first
    count = _first_set(obj, "count", "deprecatedCount") or 1
    if series := obj.get("series"):
        last, count = human_age(series.get("lastObservedTime"), now), series.get("count", 0)
    return [
        last,
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{kind}/{name}" if name else kind,
        about.get("fieldPath", ""),
        _event_source(obj),
        str(_first_set(obj, "message", "note") or "").strip(),
        first,
        count,
        object_name(obj),
    ]


def _first_set(obj: JSON, name: str, other: str) -> Any:
    return obj.get(name) or obj.get(other)


def _event_source(obj: JSON) -> str:
    source = _first_set(obj, "source", "deprecatedSource") or {}
    component = source.get("component") or _first_set(obj, "reportingComponent", "reportingController") or ""
    instance = source.get("host") or obj.get("reportingInstance")
    return f"{component}, {instance}" if instance else component


def _role_binding_cells(obj: JSON, now: datetime) -> list[Any]:
    role = obj.get("roleRef") or {}
    subjects = obj.get("subjects") or ()
    users, groups = (
        ", ".join(subject.get("name", "") for subject in subjects if subject.get("kind") == kind)
        for kind in ("User", "Group")
    )
    accounts = ", ".join(
        f"{subject.get('namespace', '')}/{subject.get('name', '')}"
        for subject in subjects
        if subject.get("kind") == "ServiceAccount"
    )
    reference = f"{role.get('kind', '')}/{role.get('name', '')}"
    return [object_name(obj), reference, age_cell(obj, now), users, groups, accounts]


def _deployment_cells(obj: JSON, now: datetime) -> list[Any]:
    selector = _selector_text(field_at(obj, "spec", "selector"), empty="", wrong="<invalid>")
    return [
        object_name(obj),
        f"{_int_field(obj, 'status', 'readyReplicas')}/{_int_field(obj, 'spec', 'replicas')}",
        _int_field(obj, "status", "updatedReplicas"),
        _int_field(obj, "status", "availableReplicas"),
        age_cell(obj, now),
        *_container_cells(field_at(obj, "spec", "template")),
        selector,
    ]


def _replica_set_cells(obj: JSON, now: datetime) -> list[Any]:
    return [*_replica_cells(obj, now), _selector_text(field_at(obj, "spec", "selector"))]


def _replication_controller_cells(obj: JSON, now: datetime) -> list[Any]:
    return [*_replica_cells(obj, now), _labels_text(field_at(obj, "spec", "selector"))]


def _pod_template_cells(obj: JSON, now: datetime) -> list[Any]:
    template = field_at(obj, "template")
    return [object_name(obj), *_container_cells(template), _labels_text(field_at(template, "metadata", "labels"))]


def _replica_cells(obj: JSON, now: datetime) -> list[Any]:
    return [
        object_name(obj),
        _int_field(obj, "spec", "replicas"),
        _int_field(obj, "status", "replicas"),
        _int_field(obj, "status", "readyReplicas"),
        age_cell(obj, now),
        *_container_cells(field_at(obj, "spec", "template")),
    ]


def _stateful_set_cells(obj: JSON, now: datetime) -> list[Any]:
    ready = f"{_int_field(obj, 'status', 'readyReplicas')}/{_int_field(obj, 'spec', 'replicas')}"
    return [object_name(obj), ready, age_cell(obj, now), *_container_cells(field_at(obj, "spec", "template"))]


_DAEMON_SET_COUNTS = (
    "desiredNumberScheduled",
    "currentNumberScheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
)


def _daemon_set_cells(obj: JSON, now: datetime) -> list[Any]:
    template = field_at(obj, "spec", "template")
    return [
        object_name(obj),
        *(_int_field(obj, "status", field) for field in _DAEMON_SET_COUNTS),
        _labels_text(field_at(obj, "spec", "template", "spec", "nodeSelector")),
        age_cell(obj, now),
        *_container_cells(template),
        _selector_text(field_at(obj, "spec", "selector")),
    ]


def _controller_revision_cells(obj: JSON, now: datetime) -> list[Any]:
    owners = field_at(obj, "metadata", "ownerReferences") or ()
    owner = next((item for item in owners if item.get("controller")), None)
    name = _NONE
    if owner is not None:
        group = owner.get("apiVersion", "").rpartition("/")[0]
        kind = f"{owner['kind']}.{group}" if group else owner["kind"]
        name = f"{kind.lower()}/{owner['name']}"
    return [object_name(obj), name, obj.get("revision", 0), age_cell(obj, now)]


_JOB_STATES = {
    "Complete": "Complete",
    "Failed": "Failed",
    "Suspended": "Suspended",
    "FailureTarget": "FailureTarget",
    "SuccessCriteriaMet": "SuccessCriteriaMet",
}


def _job_cells(obj: JSON, now: datetime) -> list[Any]:
    return [
        object_name(obj),
        _job_status(obj),
        _job_completions(obj),
        _job_duration(obj, now),
        age_cell(obj, now),
        *_container_cells(field_at(obj, "spec", "template")),
        _selector_text(field_at(obj, "spec", "selector")),
    ]


def _job_status(obj: JSON) -> str:
    conditions = field_at(obj, "status", "conditions") or ()
    # The first condition of a type wins.
    states = {item["type"]: item.get("status") == "True" for item in reversed(conditions)}
    if field_at(obj, "metadata", "deletionTimestamp") and not (states.get("Complete") or states.get("Failed")):
        return "Terminating"
    return next((state for kind, state in _JOB_STATES.items() if states.get(kind)), "Running")


def _job_completions(obj: JSON) -> str:
    succeeded, completions = _int_field(obj, "status", "succeeded"), field_at(obj, "spec", "completions")
    if completions is not None:
        return f"{succeeded}/{completions}"
    parallel = _int_field(obj, "spec", "parallelism")
    return f"{succeeded}/1 of {parallel}" if parallel > 1 else f"{succeeded}/1"


def _job_duration(obj: JSON, now: datetime) -> str:
    start, end = field_at(obj, "status", "startTime"), field_at(obj, "status", "completionTime")
    if start is None:
        return ""
    until = now if end is None else datetime.fromisoformat(end)
    return human_duration(until - datetime.fromisoformat(start))


def _cron_job_cells(obj: JSON, now: datetime) -> list[Any]:
    suspended = field_at(obj, "spec", "suspend")
    last = field_at(obj, "status", "lastScheduleTime")
    return [
        object_name(obj),
        _text_field(obj, "spec", "schedule"),
        _text_field(obj, "spec", "timeZone", missing=_NONE),
        _text_field({"value": suspended}, "value", missing=_UNSET),
        _field_length(obj, "status", "active"),
        _NONE if last is None else human_age(last, now),
        age_cell(obj, now),
        *_container_cells(field_at(obj, "spec", "jobTemplate", "spec", "template")),
        _selector_text(field_at(obj, "spec", "jobTemplate", "spec", "selector")),
    ]


def _disruption_budget_cells(obj: JSON, now: datetime) -> list[Any]:
    limits = [_text_field(obj, "spec", field, missing="N/A") for field in ("minAvailable", "maxUnavailable")]
    return [object_name(obj), *limits, _int_field(obj, "status", "disruptionsAllowed"), age_cell(obj, now)]


def _resource_quota_cells(obj: JSON, now: datetime) -> list[Any]:
    hard, used = field_at(obj, "status", "hard") or {}, field_at(obj, "status", "used") or {}
    columns: tuple[list[str], list[str]] = ([], [])
    for name, limit in sorted(hard.items()):
        columns[name.startswith("limits.")].append(f"{name}: {used.get(name, '0')}/{limit}")
    return [object_name(obj), *map(", ".join, columns), age_cell(obj, now)]


def _network_policy_cells(obj: JSON, now: datetime) -> list[Any]:
    return [object_name(obj), _selector_text(field_at(obj, "spec", "podSelector") or {}), age_cell(obj, now)]


def _autoscaler_cells(obj: JSON, now: datetime) -> list[Any]:
    target = field_at(obj, "spec", "scaleTargetRef") or {}
    return [
        object_name(obj),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _autoscaler_metrics(obj.get("spec") or {}, obj.get("status") or {}),
        _text_field(obj, "spec", "minReplicas", missing=_UNSET),
        _int_field(obj, "spec", "maxReplicas"),
        _int_field(obj, "status", "currentReplicas"),
        age_cell(obj, now),
    ]


def _autoscaler_metrics(spec: JSON, status: JSON) -> str:
    """Current and target values of the first two metrics. autoscaling/v1 has CPU only."""
    if (target := spec.get("targetCPUUtilizationPercentage")) is not None:
        current = status.get("currentCPUUtilizationPercentage")
        return f"cpu: {_UNKNOWN if current is None else f'{current}%'}/{target}%"
    metrics, current_metrics = spec.get("metrics") or [], status.get("currentMetrics") or []
    texts = [
        _metric_text(metric, current_metrics[index] if index < len(current_metrics) else {})
        for index, metric in enumerate(metrics)
    ]
    text = ", ".join(texts[:2]) or _NONE
    return f"{text} + {len(texts) - 2} more..." if len(texts) > 2 else text


_METRIC_FIELDS = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}


def _metric_text(metric: JSON, status: JSON) -> str:
    kind = metric.get("type", "")
    field = _METRIC_FIELDS.get(kind)
    if field is None:
        return "<unknown type>"
    target = field_at(metric, field, "target") or {}
    current = field_at(status, field, "current") or {}
    average = _text_field(current, "averageValue", missing=_UNKNOWN)
    if kind == "Pods":
        return f"{average}/{target.get('averageValue', '')}"
    if kind in ("Resource", "ContainerResource"):
        name = _text_field(metric, field, "name")
        if "averageValue" in target:
            return f"{name}: {average}/{target['averageValue']}"
        return f"{name}: {_utilization_text(current, _UNKNOWN)}/{_utilization_text(target, '<auto>')}"
    if "averageValue" in target:
        return f"{average}/{target['averageValue']} (avg)"
    return f"{_text_field(current, 'value', missing=_UNKNOWN)}/{target.get('value', '')}"


def _utilization_text(value: JSON, missing: str) -> str:
    percent = value.get("averageUtilization")
    return missing if percent is None else f"{percent}%"


_CELLS: Final[Mapping[str, Callable[[JSON, datetime], list[Any]]]] = MappingProxyType(
    {
        "ClusterRoleBinding": _role_binding_cells,
        "ConfigMap": _config_map_cells,
        "ControllerRevision": _controller_revision_cells,
        "CronJob": _cron_job_cells,
        "DaemonSet": _daemon_set_cells,
        "Deployment": _deployment_cells,
        "EndpointSlice": _endpoint_slice_cells,
        "Endpoints": _endpoints_cells,
        "Event": _event_cells,
        "HorizontalPodAutoscaler": _autoscaler_cells,
        "Job": _job_cells,
        "Lease": _lease_cells,
        "Namespace": _namespace_cells,
        "NetworkPolicy": _network_policy_cells,
        "Node": _node_cells,
        "PersistentVolume": _volume_cells,
        "PersistentVolumeClaim": _claim_cells,
        "Pod": pod_row.pod_cells,
        "PodDisruptionBudget": _disruption_budget_cells,
        "PodTemplate": _pod_template_cells,
        "PriorityClass": _priority_class_cells,
        "ReplicaSet": _replica_set_cells,
        "ReplicationController": _replication_controller_cells,
        "ResourceQuota": _resource_quota_cells,
        "RoleBinding": _role_binding_cells,
        "RuntimeClass": _runtime_class_cells,
        "Secret": _secret_cells,
        "Service": _service_cells,
        "ServiceAccount": _service_account_cells,
        "StatefulSet": _stateful_set_cells,
        "StorageClass": _storage_class_cells,
    }
)


def _make_printer(kind: str, cells: CellsFunc) -> TablePrinter:
    return TablePrinter(BUILTIN_COLUMNS[kind], cells, pod_row.pod_row_conditions if kind == "Pod" else None)


_PRINTERS: Final = {kind: _make_printer(kind, cells) for kind, cells in _CELLS.items()}
