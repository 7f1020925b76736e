"""What a new object must pass and what it is given because of other objects: its namespace, its priority."""

import msgspec

from gangline.api.meta import JSON, Key
from gangline.apiserver import errors as apierrors
from gangline.apiserver.registry.catalog import Catalog, ServedKind, is_core_resource
from gangline.apiserver.store.paths import collection_prefix, object_path
from gangline.apiserver.store.records import StoreRecord
from gangline.apiserver.store.store import Store

SCHEDULING_GROUP = "scheduling.k8s.io"
NOT_READY_TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
CRD_RESOURCE = ("apiextensions.k8s.io", "customresourcedefinitions")
CRD_TERMINATING_MESSAGE = "create not allowed while custom resource definition is terminating"


class Admission:
    """Looks at other objects in the store; changes only the one that comes in."""

    def __init__(self, store: Store, catalog: Catalog) -> None:
        self._store, self._catalog = store, catalog

    def admit(self, entry: ServedKind, key: Key, obj: JSON) -> None:
        """Let a new object in. Raises `Refused`."""
        if entry.resource.namespaced:
            self._check_namespace_active(entry, key)
        if entry.custom:
            self._check_crd_active(entry, key)
        elif is_core_resource(entry, "pods"):
            self._admit_priority(entry, key, obj["spec"])
        elif is_core_resource(entry, "nodes"):
            taint_new_node(obj["spec"])

    def _check_namespace_active(self, entry: ServedKind, key: Key) -> None:
        spaces = self._catalog.storage_kind("", "namespaces")
        assert spaces is not None
        record = self._store.get(object_path("", "namespaces", "", key.namespace))
        if record is None:
            raise apierrors.not_found(spaces, key.namespace)
        if b'"Terminating"' in record.data and _decode(record)["status"].get("phase") == "Terminating":
            raise apierrors.namespace_terminating(entry, key.name, key.namespace)

    def _check_crd_active(self, entry: ServedKind, key: Key) -> None:
        record = self._store.get(object_path(*CRD_RESOURCE, "", f"{entry.plural}.{entry.group}"))
        if record is not None and "deletionTimestamp" in _decode(record)["metadata"]:
            raise apierrors.forbidden(entry, key.name, CRD_TERMINATING_MESSAGE)

    def _admit_priority(self, entry: ServedKind, key: Key, spec: JSON) -> None:
        value, policy = 0, "PreemptLowerPriority"
        name = spec.get("priorityClassName") or ""
        found = self._priority_class(name) if name else self._default_priority_class()
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
            value, policy = found["value"], found.get("preemptionPolicy") or policy
        elif name:
            raise apierrors.forbidden(entry, key.name, f"no PriorityClass with name {name} was found")
        for field, computed in (("priority", value), ("preemptionPolicy", policy)):
            given = spec.get(field)
            if given is not None and given != computed:
                raise apierrors.forbidden(
                    entry, key.name, _PRIORITY_MISMATCH[field].format(given=given, computed=computed)
                )
            spec[field] = computed

    def _priority_class(self, name: str) -> JSON | None:
        record = self._store.get(object_path(SCHEDULING_GROUP, "priorityclasses", "", name))
        return None if record is None else _decode(record)

    def _default_priority_class(self) -> JSON | None:
        records = self._store.range(collection_prefix(SCHEDULING_GROUP, "priorityclasses")).records
        defaults = [_decode(record) for record in records if b'"globalDefault":true' in record.data]
        return min(defaults, key=lambda found: found["value"], default=None)


_PRIORITY_MISMATCH = {
    "priority": (
        "the integer value of priority ({given}) must not be provided in pod spec; "
        "priority admission controller computed {computed} from the given PriorityClass name"
    ),
    "preemptionPolicy": (
        "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; "
        "priority admission controller computed {computed} from the given PriorityClass name"
    ),
}


def preserve_priority(entry: ServedKind, new: JSON, old: JSON) -> None:
    """What a pod was given on creation stays when a client leaves it out."""
    if is_core_resource(entry, "pods"):
        for field in ("priority", "preemptionPolicy"):
            if field not in new["spec"] and field in old["spec"]:
                new["spec"][field] = old["spec"][field]


def taint_new_node(spec: JSON) -> None:
    """No pod lands on a node that has not said it is ready."""
    taints = spec.get("taints", [])
    if not any((t["key"], t.get("effect")) == (NOT_READY_TAINT["key"], NOT_READY_TAINT["effect"]) for t in taints):
        spec["taints"] = [*taints, dict(NOT_READY_TAINT)]


def _decode(record: StoreRecord) -> JSON:
    value: JSON = msgspec.json.decode(record.data)
    return value
