"""Which fields each kind can be selected by.

Kubernetes lets clients select by a few fields per kind and refuses the rest, with a sentence that differs from kind
to kind. Everything not in the table can be selected by name and namespace alone.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from gangline.api.meta import JSON
from gangline.api.selectors import Field, SelectableFields


def field(path: str, missing: str = "") -> Field:
    """Reads `spec.nodeName` as text; `missing` stands for an absent value."""
    steps = tuple(path.split("."))

    def read(obj: JSON) -> str:
        value: Any = obj
        for step in steps:
            value = value.get(step) if isinstance(value, dict) else None
        if value is None:
            return missing
        return value if isinstance(value, str) else _text(value)

    return read


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else ""


def _first(*paths: str) -> Field:
    """The first of several fields that is not empty."""
    readers = [field(path) for path in paths]

    def read(obj: JSON) -> str:
        return next((text for reader in readers if (text := reader(obj))), "")

    return read


_NAME: Final = {"metadata.name": field("metadata.name")}
_BOTH: Final = {**_NAME, "metadata.namespace": field("metadata.namespace")}
_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def _regarding(prefix: str) -> dict[str, Field]:
    """What an event is about. One stored event is served by both APIs, which name this field differently."""
    return {f"{prefix}.{name}": _first(f"involvedObject.{name}", f"regarding.{name}") for name in _REFERENCE}


_REPORTER = _first("reportingComponent", "reportingController")
_EVENT: Final = {**_BOTH, "reason": field("reason"), "type": field("type")}
_SOURCE = _first(
    "source.component", "deprecatedSource.component", "reportingComponent", "reportingController"
)

_ONLY_NAMES: Final = SelectableFields(
    _BOTH, '{quoted} is not a known field selector: only "metadata.name", "metadata.namespace"'
)
_KINDS: Final[Mapping[tuple[str, str], SelectableFields]] = MappingProxyType(
    {
        ("v1", "Pod"): SelectableFields(
            {
                **_BOTH,
                "spec.nodeName": field("spec.nodeName"),
                "spec.host": field("spec.nodeName"),
                "spec.restartPolicy": field("spec.restartPolicy"),
                "spec.schedulerName": field("spec.schedulerName"),
                "spec.serviceAccountName": field("spec.serviceAccountName"),
                "spec.hostNetwork": field("spec.hostNetwork", "false"),
                "status.phase": field("status.phase"),
                "status.podIP": field("status.podIP"),
                # Accepted by the real server too, which then finds it empty in every pod.
                "status.podIPs": field("status.podIPs"),
                "status.nominatedNodeName": field("status.nominatedNodeName"),
            }
        ),
        ("v1", "Node"): SelectableFields(
            {**_NAME, "spec.unschedulable": field("spec.unschedulable", "false")}
        ),
        ("v1", "Namespace"): SelectableFields({**_NAME, "status.phase": field("status.phase")}),
        ("v1", "Secret"): SelectableFields({**_BOTH, "type": field("type")}),
        ("v1", "Service"): SelectableFields(
            {**_BOTH, "spec.clusterIP": field("spec.clusterIP"), "spec.type": field("spec.type")}
        ),
        ("v1", "ReplicationController"): SelectableFields(
            {**_BOTH, "status.replicas": field("status.replicas", "0")}
        ),
        ("v1", "Event"): SelectableFields(
            {**_EVENT, **_regarding("involvedObject"), "reportingComponent": _REPORTER, "source": _SOURCE}
        ),
        ("events.k8s.io/v1", "Event"): SelectableFields(
            {**_EVENT, **_regarding("regarding"), "reportingController": _REPORTER}
        ),
        ("batch/v1", "Job"): SelectableFields(
            {**_BOTH, "status.successful": field("status.succeeded", "0")},
            "field label {quoted} not supported for Job",
        ),
        ("certificates.k8s.io/v1", "CertificateSigningRequest"): SelectableFields(
            {**_NAME, "spec.signerName": field("spec.signerName")}
        ),
    }
)


def selectable(api_version: str, kind: str) -> SelectableFields:
    """What a built-in kind can be selected by."""
    return _KINDS.get((api_version, kind), _ONLY_NAMES)


def custom(paths: Iterable[str] = (), *, namespaced: bool = True) -> SelectableFields:
    """What a custom resource can be selected by: its names, and the `selectableFields` of its definition (`.spec.color`)."""
    declared = {path.removeprefix("."): field(path.removeprefix(".")) for path in paths}
    return SelectableFields({**(_BOTH if namespaced else _NAME), **declared})
