"""Events: one object, two shapes. `v1` is the one stored; `events.k8s.io/v1` calls the same fields other names.

Both kinds here work on the shape of their own API version. The registry converts what it stores.
"""

from collections.abc import Mapping

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, metadata
from gangline.apiserver.kinds.machinery.canonical import shape
from gangline.apiserver.kinds.machinery.problems import each, invalid, required
from gangline.apiserver.kinds.machinery.strategy import Kind
from gangline.schema.problems import Problem

_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_OLD_NAMES = {new: old for old, new in _NAMES.items()}
_FIXED = (
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "reason",  # told twice by the real server
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
)
_LONGEST = 128
_LONGEST_NOTE = 1024


def to_events_v1(event: JSON) -> JSON:
    """A `v1` event as `events.k8s.io/v1`; a new object that shares its parts."""
    return _converted(event, _NAMES, "events.k8s.io/v1", "events.v1.Event")


def to_core_v1(event: JSON) -> JSON:
    """An `events.k8s.io/v1` event as `v1`; a new object that shares its parts."""
    return _converted(event, _OLD_NAMES, "v1", "core.v1.Event")


def _converted(event: JSON, names: Mapping[str, str], version: str, struct: str) -> JSON:
    converted = {names.get(name, name): value for name, value in event.items()}
    converted["apiVersion"] = version
    shape(struct).fit(converted)
    return converted


class EventKind(Kind):
    """`v1`."""

    struct = "core.v1.Event"
    created_by_update = True

    def validate(self, obj: JSON) -> list[Problem]:
        found = _legacy(obj, "reportingComponent")
        return found or metadata.validate(obj["metadata"], formats.path_segment, namespaced=True)

    def validate_change(self, obj: JSON, old: JSON) -> list[Problem]:
        return _legacy(obj, "reportingComponent")


class EventsV1Kind(Kind):
    """`events.k8s.io/v1`: stricter, and nothing but the series may change."""

    struct = "events.v1.Event"
    created_by_update = True

    def validate(self, obj: JSON) -> list[Problem]:
        event = to_core_v1(obj)
        found = [*_legacy(event, "reportingController"), *self.validate_metadata(obj), *_series(event)]
        if not event["eventTime"]:
            found.append(required("eventTime"))
        if event.get("type") not in {"Normal", "Warning"}:
            found.append(invalid("type", "", f"has invalid value: {event.get('type', '')}"))
        old = ("firstTimestamp", "lastTimestamp", "count", "source")
        return found + [invalid(name, "", "needs to be unset") for name in old if event.get(name)]

    def validate_change(self, obj: JSON, old: JSON) -> list[Problem]:
        event, before = to_core_v1(obj), to_core_v1(old)
        found = [*_legacy(event, "reportingController"), *self.validate_metadata_update(obj, old)]
        if event.get("series") != before.get("series"):
            found += _series(event)
        for name in _FIXED:
            shown = "reportingController" if name == "reportingComponent" else name
            found += metadata.immutable(event.get(name), before.get(name), shown)
        return found


def _legacy(event: JSON, component_name: str) -> list[Problem]:
    namespace = event["metadata"].get("namespace", "")
    involved = event["involvedObject"].get("namespace", "")
    found = _new_style(event, component_name) if event.get("eventTime") else []
    if event.get("eventTime"):
        wrong = not involved and namespace not in {"default", "kube-system"}
    elif involved:
        wrong = namespace != involved
    else:
        wrong = namespace not in {"", "default"}
    if wrong:
        told = "does not match event.namespace"
        found.insert(0, invalid("involvedObject.namespace", involved, told))
    return found + each("namespace", namespace, formats.dns_subdomain(namespace))


def _new_style(event: JSON, component_name: str) -> list[Problem]:
    component = event.get("reportingComponent", "")
    found = [] if component else [required(component_name)]
    found += each(component_name, component, formats.qualified_name(component))
    for name in ("reportingInstance", "action", "reason"):
        value = event.get(name, "")
        if not value:
            found.append(required(name))
        if len(value.encode()) > _LONGEST:
            found.append(invalid(name, "", f"can have at most {_LONGEST} characters"))
    if len(event.get("message", "").encode()) > _LONGEST_NOTE:
        found.append(invalid("message", "", f"can have at most {_LONGEST_NOTE} characters"))
    return found


def _series(event: JSON) -> list[Problem]:
    series = event.get("series")
    if series is None:
        return []
    found: list[Problem] = []
    if series.get("count", 0) < 2:
        found.append(invalid("series.count", "", "should be at least 2"))
    if not series.get("lastObservedTime"):
        found.append(required("series.lastObservedTime"))
    return found
