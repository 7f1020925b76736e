"""The rows of kinds whose columns are data: the columns are those that kube-apiserver publishes, saved by hack/openapi.py.

A cell is a path with the text for a missing value, or a function of the object.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from gangline.api.durations import human_duration
from gangline.api.meta import JSON
from gangline.apiserver.tables.columns import TableColumn
from gangline.apiserver.tables.table import GENERIC_PRINTER, TablePrinter, age_cell, object_name
from gangline.schema.typed import published

_MAX_HOSTS = 3
Cell = tuple[str, Any] | Callable[[JSON], Any]


def declared_printer(kind: str) -> TablePrinter:
    """The printer of a kind; the generic one for a kind whose columns were not saved."""
    columns = [msgspec.convert(column, TableColumn) for column in published.table_columns().get(kind, ())]
    if not columns:
        return GENERIC_PRINTER
    cells = _CELLS.get(kind, {})

    def row(obj: JSON, now: datetime) -> list[Any]:
        return [_cell(column.name, cells.get(column.name), obj, now) for column in columns]

    return TablePrinter(columns, row)


def _cell(column: str, cell: Cell | None, obj: JSON, now: datetime) -> Any:
    if column == "Name":
        return object_name(obj)
    if column == "Age":
        return age_cell(obj, now)
    if isinstance(cell, tuple):
        path, missing = cell
        value = _field(obj, path)
        return missing if value is None else value
    return cell(obj) if cell is not None else ""


def _field(obj: JSON, path: str) -> Any:
    value: Any = obj
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _count(path: str) -> Callable[[JSON], int]:
    return lambda obj: len(_field(obj, path) or ())


def _joined(path: str, missing: str = "") -> Callable[[JSON], str]:
    return lambda obj: ",".join(_field(obj, path) or ()) or missing


def _ingress_hosts(obj: JSON) -> str:
    rules = _field(obj, "spec.rules") or ()
    hosts = [rule["host"] for rule in rules if rule.get("host")][:_MAX_HOSTS]
    text = ",".join(hosts) or "*"
    return f"{text} + {len(rules) - _MAX_HOSTS} more..." if len(hosts) == _MAX_HOSTS < len(rules) else text


def _ingress_address(obj: JSON) -> str:
    points = _field(obj, "status.loadBalancer.ingress") or ()
    return ",".join(sorted({point.get("ip") or point.get("hostname") or "" for point in points} - {""}))


def _class_parameters(obj: JSON) -> str:
    parameters = _field(obj, "spec.parameters")
    if parameters is None:
        return "<none>"
    group = f".{parameters['apiGroup']}" if "apiGroup" in parameters else ""
    return f"{parameters.get('kind', '')}{group}/{parameters.get('name', '')}"


def _token_audiences(obj: JSON) -> str:
    requests = _field(obj, "spec.tokenRequests")
    return "<unset>" if requests is None else ",".join(item.get("audience", "") for item in requests)


def _param_kind(obj: JSON) -> str:
    kind = _field(obj, "spec.paramKind")
    return "<unset>" if kind is None else f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}"


def _param_reference(obj: JSON) -> str:
    reference = _field(obj, "spec.paramRef") or {}
    if not reference.get("name"):
        return "<unset>"
    return f"{reference.get('namespace') or '*'}/{reference['name']}"


def _dangling(obj: JSON) -> str:
    conditions = _field(obj, "status.conditions") or ()
    return next((str(item.get("status")) for item in conditions if item.get("type") == "Dangling"), "?")


def _request_duration(obj: JSON) -> str:
    seconds = _field(obj, "spec.expirationSeconds")
    return "<none>" if seconds is None else human_duration(timedelta(seconds=seconds))


def _request_state(obj: JSON) -> str:
    status = obj.get("status") or {}
    types = {condition.get("type") for condition in status.get("conditions") or ()}
    text = "Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"
    text += ",Failed" if "Failed" in types else ""
    return f"{text},Issued" if status.get("certificate") else text


def _claim_state(obj: JSON) -> str:
    states = ["deleted"] if obj.get("metadata", {}).get("deletionTimestamp") else []
    if _field(obj, "status.allocation") is None:
        states += [] if states else ["pending"]
    else:
        states += ["allocated", "reserved"] if _field(obj, "status.reservedFor") else ["allocated"]
    return ",".join(states)


def _parent_reference(obj: JSON) -> str:
    parent = _field(obj, "spec.parentRef")
    if parent is None:
        return "<none>"
    group = f".{parent['group']}" if parent.get("group") else ""
    parts = (f"{parent.get('resource', '')}{group}".lower(), parent.get("namespace"), parent.get("name"))
    return "/".join(part for part in parts if part)


def _service_reference(obj: JSON) -> str:
    service = _field(obj, "spec.service")
    return "Local" if service is None else f"{service.get('namespace', '')}/{service.get('name', '')}"


def _availability(obj: JSON) -> str:
    conditions = _field(obj, "status.conditions") or ()
    found = next((item for item in conditions if item.get("type") == "Available"), None)
    if found is None:
        return "Unknown"
    reason = found.get("reason")
    return f"{found['status']} ({reason})" if reason and found["status"] != "True" else str(found["status"])


_QUEUING = "spec.limited.limitResponse.queuing"
_CELLS: Final[Mapping[str, Mapping[str, Cell]]] = {
    "APIService": {"Service": _service_reference, "Available": _availability},
    "CSIDriver": {
        "AttachRequired": ("spec.attachRequired", True),
        "PodInfoOnMount": ("spec.podInfoOnMount", False),
        "StorageCapacity": ("spec.storageCapacity", False),
        "TokenRequests": _token_audiences,
        "RequiresRepublish": ("spec.requiresRepublish", False),
        "Modes": _joined("spec.volumeLifecycleModes", "<none>"),
    },
    "CSINode": {"Drivers": _count("spec.drivers")},
    "CSIStorageCapacity": {"StorageClassName": ("storageClassName", ""), "Capacity": ("capacity", "<unset>")},
    "CertificateSigningRequest": {
        "SignerName": ("spec.signerName", "<none>"),
        "Requestor": ("spec.username", ""),
        "RequestedDuration": _request_duration,
        "Condition": _request_state,
    },
    "FlowSchema": {
        "PriorityLevel": ("spec.priorityLevelConfiguration.name", ""),
        "MatchingPrecedence": ("spec.matchingPrecedence", 0),
        "DistinguisherMethod": ("spec.distinguisherMethod.type", "<none>"),
        "MissingPL": _dangling,
    },
    "IPAddress": {"ParentRef": _parent_reference},
    "Ingress": {
        "Class": ("spec.ingressClassName", "<none>"),
        "Hosts": _ingress_hosts,
        "Address": _ingress_address,
        "Ports": lambda obj: "80, 443" if _field(obj, "spec.tls") else "80",
    },
    "IngressClass": {"Controller": ("spec.controller", ""), "Parameters": _class_parameters},
    "MutatingWebhookConfiguration": {"Webhooks": _count("webhooks")},
    "PriorityLevelConfiguration": {
        "Type": ("spec.type", ""),
        "NominalConcurrencyShares": ("spec.limited.nominalConcurrencyShares", "<none>"),
        "Queues": (f"{_QUEUING}.queues", "<none>"),
        "HandSize": (f"{_QUEUING}.handSize", "<none>"),
        "QueueLengthLimit": (f"{_QUEUING}.queueLengthLimit", "<none>"),
    },
    "ResourceClaim": {"State": _claim_state},
    "ResourceSlice": {
        "Node": ("spec.nodeName", ""),
        "Driver": ("spec.driver", ""),
        "Pool": ("spec.pool.name", ""),
    },
    "ServiceCIDR": {"CIDRs": _joined("spec.cidrs")},
    "ValidatingAdmissionPolicy": {"Validations": _count("spec.validations"), "ParamKind": _param_kind},
    "ValidatingAdmissionPolicyBinding": {"PolicyName": ("spec.policyName", ""), "ParamRef": _param_reference},
    "ValidatingWebhookConfiguration": {"Webhooks": _count("webhooks")},
    "VolumeAttachment": {
        "Attacher": ("spec.attacher", ""),
        "PV": ("spec.source.persistentVolumeName", ""),
        "Node": ("spec.nodeName", ""),
        "Attached": ("status.attached", False),
    },
    "VolumeAttributesClass": {"DriverName": ("driverName", "")},
}
"""By kind and column. Names and ages are the same everywhere."""
