"""Admission of new objects: checks and defaults that depend on other objects (namespace, CRD, PriorityClass)."""

from gangline.api.meta import JSON, Key
from gangline.apiserver import errors as apierrors
from gangline.apiserver.registry.catalog import Catalog, ServedKind, is_core_resource
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.store.paths import collection_prefix, object_path
from gangline.apiserver.store.store import Store

SCHEDULING_GROUP = "scheduling.k8s.io"
NOT_READY_TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
CRD_RESOURCE = ("apiextensions.k8s.io", "customresourcedefinitions")
CRD_TERMINATING_MESSAGE = "create not allowed while custom resource definition is terminating"


class Admission:
    """Admits new objects. Reads other objects in the store and changes only the new one."""

    def __init__(self, store: Store, catalog: Catalog) -> None:
        self._store, self._catalog = store, catalog

    def admit(self, served_kind: ServedKind, key: Key, obj: JSON) -> None:
        """Check a new object and set its admission defaults, in place. Raises `StatusError`."""
        if served_kind.resource.namespaced:
            self._check_namespace_active(served_kind, key)
        if served_kind.custom:
            self._check_crd_active(served_kind, key)
        elif is_core_resource(served_kind, "pods"):
            self._admit_priority(served_kind, key, obj["spec"])
        elif is_core_resource(served_kind, "nodes"):
            taint_new_node(obj["spec"])

    def _check_namespace_active(self, served_kind: ServedKind, key: Key) -> None:
        namespaces = self._catalog.storage_kind("", "namespaces")
        assert namespaces is not None
        record = self._store.get(object_path("", "namespaces", "", key.namespace))
        if record is None:
            raise apierrors.not_found(namespaces.resource, key.namespace)
        if b'"Terminating"' in record.data and decode_record(record)["status"].get("phase") == "Terminating":
            raise apierrors.namespace_terminating(served_kind.resource, key.name, key.namespace)

    def _check_crd_active(self, served_kind: ServedKind, key: Key) -> None:
        record = self._store.get(object_path(*CRD_RESOURCE, "", served_kind.resource.qualified_name))
        if record is not None and "deletionTimestamp" in decode_record(record)["metadata"]:
            raise apierrors.forbidden(served_kind.resource, key.name, CRD_TERMINATING_MESSAGE)

    def _admit_priority(self, served_kind: ServedKind, key: Key, spec: JSON) -> None:
        value, policy = 0, "PreemptLowerPriority"
        name = spec.get("priorityClassName") or ""
        priority_class = self._priority_class(name) if name else self._default_priority_class()
        if priority_class is not None:
            spec["priorityClassName"] = priority_class["metadata"]["name"]
            value, policy = priority_class["value"], priority_class.get("preemptionPolicy") or policy
        elif name:
            raise apierrors.forbidden(served_kind.resource, key.name, f"no PriorityClass with name {name} was found")
        for field, computed in (("priority", value), ("preemptionPolicy", policy)):
            current = spec.get(field)
            if current is not None and current != computed:
                message = _PRIORITY_MISMATCH[field].format(current=current, computed=computed)
                raise apierrors.forbidden(served_kind.resource, key.name, message)
            spec[field] = computed

    def _priority_class(self, name: str) -> JSON | None:
        record = self._store.get(object_path(SCHEDULING_GROUP, "priorityclasses", "", name))
        return None if record is None else decode_record(record)

    def _default_priority_class(self) -> JSON | None:
        records = self._store.range(collection_prefix(SCHEDULING_GROUP, "priorityclasses")).records
        defaults = [decode_record(record) for record in records if b'"globalDefault":true' in record.data]
        return min(defaults, key=lambda item: item["value"], default=None)


_PRIORITY_MISMATCH = {
    "priority": (
        "the integer value of priority ({current}) must not be provided in pod spec; "
        "priority admission controller computed {computed} from the given PriorityClass name"
    ),
    "preemptionPolicy": (
        "the string value of PreemptionPolicy ({current}) must not be provided in pod spec; "
        "priority admission controller computed {computed} from the given PriorityClass name"
    ),
}


def preserve_priority(served_kind: ServedKind, new: JSON, old: JSON) -> None:
    """Keep the priority and the preemption policy of a pod when an update omits them."""
    if is_core_resource(served_kind, "pods"):
        for field in ("priority", "preemptionPolicy"):
            if field not in new["spec"] and field in old["spec"]:
                new["spec"][field] = old["spec"][field]


def taint_new_node(spec: JSON) -> None:
    """Taint a new node as not ready, in place, so that no pod is scheduled to it before it reports ready."""
    taints = spec.get("taints", [])
    if not any((t["key"], t.get("effect")) == (NOT_READY_TAINT["key"], NOT_READY_TAINT["effect"]) for t in taints):
        spec["taints"] = [*taints, dict(NOT_READY_TAINT)]
