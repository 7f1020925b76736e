"""Events: one object in two forms. `v1` is stored; `events.k8s.io/v1` has other names for the same fields.

Both strategies work on objects in the form of their own API version. The registry converts what it stores.
"""

from collections.abc import Mapping

from gangline.api.meta import JSON
from gangline.apiserver.errors import NamedKind
from gangline.apiserver.kinds.machinery import formats, metadata
from gangline.apiserver.kinds.machinery.canonical import canonicalizer
from gangline.apiserver.kinds.machinery.strategy import Strategy
from gangline.schema.problems import FieldProblem, invalid, invalid_each, required

_EVENTS_V1_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_CORE_V1_NAMES = {new: old for old, new in _EVENTS_V1_NAMES.items()}
_IMMUTABLE_FIELDS = (
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "reason",  # Reported twice by kube-apiserver.
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
)
_MAX_FIELD_LENGTH = 128
_MAX_NOTE_LENGTH = 1024


def to_events_v1(event: JSON) -> JSON:
    """A `v1` event as `events.k8s.io/v1`: a new object that shares parts with the old one."""
    return _convert_event(event, _EVENTS_V1_NAMES, "events.k8s.io/v1", "events.v1.Event")


def to_core_v1(event: JSON) -> JSON:
    """An `events.k8s.io/v1` event as `v1`: a new object that shares parts with the old one."""
    return _convert_event(event, _CORE_V1_NAMES, "v1", "core.v1.Event")


def _convert_event(event: JSON, names: Mapping[str, str], version: str, struct: str) -> JSON:
    converted = {names.get(name, name): value for name, value in event.items()}
    converted["apiVersion"] = version
    canonicalizer(struct).canonicalize(converted)
    return converted


class EventStrategy(Strategy):
    """Events of `v1`."""

    struct = "core.v1.Event"

    def validate(self, obj: JSON) -> list[FieldProblem]:
        problems = _validate_core_event(obj, "reportingComponent")
        return problems or metadata.validate_object_meta(obj["metadata"], formats.path_segment_errors, namespaced=True)

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return _validate_core_event(obj, "reportingComponent")


class EventsV1Strategy(Strategy):
    """Events of `events.k8s.io/v1`: stricter, and only the series may change."""

    struct = "events.v1.Event"
    problems_kind = NamedKind("", "Event", "events")

    def validate(self, obj: JSON) -> list[FieldProblem]:
        event = to_core_v1(obj)
        problems = [
            *_validate_core_event(event, "reportingController"),
            *self.metadata.validate(obj),
            *_validate_series(event),
        ]
        if not event["eventTime"]:
            problems.append(required("eventTime"))
        if event.get("type") not in {"Normal", "Warning"}:
            problems.append(invalid("type", "", f"has invalid value: {event.get('type', '')}"))
        old = ("firstTimestamp", "lastTimestamp", "count", "source")
        return problems + [invalid(name, "", "needs to be unset") for name in old if event.get(name)]

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        event, before = to_core_v1(obj), to_core_v1(old)
        problems = [*_validate_core_event(event, "reportingController"), *self.metadata.validate_update(obj, old)]
        if event.get("series") != before.get("series"):
            problems += _validate_series(event)
        for name in _IMMUTABLE_FIELDS:
            shown_name = "reportingController" if name == "reportingComponent" else name
            problems += metadata.validate_immutable(event.get(name), before.get(name), shown_name)
        return problems


def _validate_core_event(event: JSON, component_name: str) -> list[FieldProblem]:
    namespace = event["metadata"].get("namespace", "")
    involved = event["involvedObject"].get("namespace", "")
    problems = _validate_events_v1_fields(event, component_name) if event.get("eventTime") else []
    if event.get("eventTime"):
        mismatch = not involved and namespace not in {"default", "kube-system"}
    elif involved:
        mismatch = namespace != involved
    else:
        mismatch = namespace not in {"", "default"}
    if mismatch:
        detail = "does not match event.namespace"
        problems.insert(0, invalid("involvedObject.namespace", involved, detail))
    return problems + invalid_each("namespace", namespace, formats.dns_subdomain_errors(namespace))


def _validate_events_v1_fields(event: JSON, component_name: str) -> list[FieldProblem]:
    component = event.get("reportingComponent", "")
    problems = [] if component else [required(component_name)]
    problems += invalid_each(component_name, component, formats.qualified_name_errors(component))
    for name in ("reportingInstance", "action", "reason"):
        value = event.get(name, "")
        if not value:
            problems.append(required(name))
        if len(value.encode()) > _MAX_FIELD_LENGTH:
            problems.append(invalid(name, "", f"can have at most {_MAX_FIELD_LENGTH} characters"))
    if len(event.get("message", "").encode()) > _MAX_NOTE_LENGTH:
        problems.append(invalid("message", "", f"can have at most {_MAX_NOTE_LENGTH} characters"))
    return problems


def _validate_series(event: JSON) -> list[FieldProblem]:
    series = event.get("series")
    if series is None:
        return []
    problems: list[FieldProblem] = []
    if series.get("count", 0) < 2:
        problems.append(invalid("series.count", "", "should be at least 2"))
    if not series.get("lastObservedTime"):
        problems.append(required("series.lastObservedTime"))
    return problems
