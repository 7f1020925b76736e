"""The fields that each kind can be selected by.

Kubernetes lets clients select by a few fields per kind and rejects the rest, with a message that differs from kind to
kind. A kind that is not in the table can be selected by name and namespace only.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from gangline.api.meta import JSON
from gangline.api.selectors import FieldReader, SelectableFields


def field_reader(path: str, missing: str = "") -> FieldReader:
    """A reader of a field such as `spec.nodeName` as text; it returns `missing` for an absent value."""
    steps = tuple(path.split("."))

    def read(obj: JSON) -> str:
        value: Any = obj
        for step in steps:
            value = value.get(step) if isinstance(value, dict) else None
        if value is None:
            return missing
        return value if isinstance(value, str) else _scalar_text(value)

    return read


def _scalar_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else ""


def _first_of(*paths: str) -> FieldReader:
    """A reader of the first of several fields that is not empty."""
    readers = [field_reader(path) for path in paths]

    def read(obj: JSON) -> str:
        return next((text for reader in readers if (text := reader(obj))), "")

    return read


_NAME_FIELD: Final = {"metadata.name": field_reader("metadata.name")}
_NAME_AND_NAMESPACE: Final = {**_NAME_FIELD, "metadata.namespace": field_reader("metadata.namespace")}
_REFERENCE_KEYS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def _reference_fields(prefix: str) -> dict[str, FieldReader]:
    """The fields of the object that an event is about. The two event APIs name them differently."""
    return {f"{prefix}.{name}": _first_of(f"involvedObject.{name}", f"regarding.{name}") for name in _REFERENCE_KEYS}


_EVENT_REPORTER = _first_of("reportingComponent", "reportingController")
_EVENT_FIELDS: Final = {**_NAME_AND_NAMESPACE, "reason": field_reader("reason"), "type": field_reader("type")}
_EVENT_SOURCE = _first_of("source.component", "deprecatedSource.component", "reportingComponent", "reportingController")

_ONLY_NAMES: Final = SelectableFields(
    _NAME_AND_NAMESPACE, '{quoted} is not a known field selector: only "metadata.name", "metadata.namespace"'
)
_FIELDS_BY_KIND: Final[Mapping[tuple[str, str], SelectableFields]] = MappingProxyType(
    {
        ("v1", "Pod"): SelectableFields(
            {
                **_NAME_AND_NAMESPACE,
                "spec.nodeName": field_reader("spec.nodeName"),
                "spec.host": field_reader("spec.nodeName"),
                "spec.restartPolicy": field_reader("spec.restartPolicy"),
                "spec.schedulerName": field_reader("spec.schedulerName"),
                "spec.serviceAccountName": field_reader("spec.serviceAccountName"),
                "spec.hostNetwork": field_reader("spec.hostNetwork", "false"),
                "status.phase": field_reader("status.phase"),
                "status.podIP": field_reader("status.podIP"),
                # The real server accepts this field too and finds it empty in every pod.
                "status.podIPs": field_reader("status.podIPs"),
                "status.nominatedNodeName": field_reader("status.nominatedNodeName"),
            }
        ),
        ("v1", "Node"): SelectableFields(
            {**_NAME_FIELD, "spec.unschedulable": field_reader("spec.unschedulable", "false")}
        ),
        ("v1", "Namespace"): SelectableFields({**_NAME_FIELD, "status.phase": field_reader("status.phase")}),
        ("v1", "Secret"): SelectableFields({**_NAME_AND_NAMESPACE, "type": field_reader("type")}),
        ("v1", "Service"): SelectableFields(
            {
                **_NAME_AND_NAMESPACE,
                "spec.clusterIP": field_reader("spec.clusterIP"),
                "spec.type": field_reader("spec.type"),
            }
        ),
        ("v1", "ReplicationController"): SelectableFields(
            {**_NAME_AND_NAMESPACE, "status.replicas": field_reader("status.replicas", "0")}
        ),
        ("v1", "Event"): SelectableFields(
            {
                **_EVENT_FIELDS,
                **_reference_fields("involvedObject"),
                "reportingComponent": _EVENT_REPORTER,
                "source": _EVENT_SOURCE,
            }
        ),
        ("events.k8s.io/v1", "Event"): SelectableFields(
            {**_EVENT_FIELDS, **_reference_fields("regarding"), "reportingController": _EVENT_REPORTER}
        ),
        ("batch/v1", "Job"): SelectableFields(
            {**_NAME_AND_NAMESPACE, "status.successful": field_reader("status.succeeded", "0")},
            "field label {quoted} not supported for Job",
        ),
        ("certificates.k8s.io/v1", "CertificateSigningRequest"): SelectableFields(
            {**_NAME_FIELD, "spec.signerName": field_reader("spec.signerName")}
        ),
        ("resource.k8s.io/v1", "ResourceSlice"): SelectableFields(
            {
                **_NAME_FIELD,
                "spec.nodeName": field_reader("spec.nodeName"),
                "spec.driver": field_reader("spec.driver"),
            },
            "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {label}",
        ),
    }
)


def selectable_fields(api_version: str, kind: str) -> SelectableFields:
    """The selectable fields of a built-in kind."""
    return _FIELDS_BY_KIND.get((api_version, kind), _ONLY_NAMES)


def custom_selectable_fields(paths: Iterable[str] = (), *, namespaced: bool = True) -> SelectableFields:
    """The selectable fields of a custom resource: its names, and the `selectableFields` of its CRD (`.spec.color`)."""
    declared = {path.removeprefix("."): field_reader(path.removeprefix(".")) for path in paths}
    return SelectableFields({**(_NAME_AND_NAMESPACE if namespaced else _NAME_FIELD), **declared})
