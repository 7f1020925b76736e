"""Pods get the priority and the preemption policy of their PriorityClass."""

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.kinds.scheduling import PRIORITY_CLASSES
from gangline.apiserver.registry.admission import OBJECT_WRITES, AdmissionPlugin, AdmissionRequest
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.store.paths import collection_prefix, object_path
from gangline.apiserver.store.store import Store


class PodPriority(AdmissionPlugin):
    """Computes the priority of new pods; an update that omits it keeps it."""

    name = "Priority"
    operations = OBJECT_WRITES
    resources = frozenset({("", "pods")})
    subresources = frozenset({"", "status", "binding"})

    def __init__(self, store: Store) -> None:
        self._store = store

    def admit(self, request: AdmissionRequest) -> None:
        if request.old is None and request.context.subresource:
            return
        spec = request.obj["spec"]
        if request.old is None:
            self._admit_new_pod(request, spec)
            return
        for field in ("priority", "preemptionPolicy"):
            if field not in spec and field in request.old["spec"]:
                spec[field] = request.old["spec"][field]

    def _admit_new_pod(self, request: AdmissionRequest, spec: JSON) -> None:
        resource, pod = request.served_kind.resource, request.sent_name
        value, policy = 0, "PreemptLowerPriority"
        name = spec.get("priorityClassName") or ""
        priority_class = self._priority_class(name) if name else self._default_priority_class()
        if priority_class is not None:
            spec["priorityClassName"] = priority_class["metadata"]["name"]
            value, policy = priority_class["value"], priority_class.get("preemptionPolicy") or policy
        elif name:
            raise apierrors.forbidden(resource, pod, f"no PriorityClass with name {name} was found")
        for field, computed in (("priority", value), ("preemptionPolicy", policy)):
            current = spec.get(field)
            if current is not None and current != computed:
                message = _PRIORITY_MISMATCH[field].format(current=current, computed=computed)
                raise apierrors.forbidden(resource, pod, message)
            spec[field] = computed

    def _priority_class(self, name: str) -> JSON | None:
        record = self._store.get(object_path(*PRIORITY_CLASSES, "", name))
        return None if record is None else decode_record(record)

    def _default_priority_class(self) -> JSON | None:
        prefix = collection_prefix(*PRIORITY_CLASSES)
        if not self._store.has(prefix):
            return None
        records = self._store.range(prefix).records
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
