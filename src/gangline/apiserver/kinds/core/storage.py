"""Persistent volumes, claims and storage classes."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, quantities
from gangline.apiserver.kinds.machinery.metadata import validate_immutable
from gangline.apiserver.kinds.machinery.strategy import StatusStrategy, Strategy
from gangline.apiserver.kinds.pod import claims, placement, volumes
from gangline.apiserver.kinds.pod import update as pod_update
from gangline.schema.problems import FieldProblem, forbidden, invalid, invalid_each, required, too_long, unsupported

_RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
_NON_SOURCE_FIELDS = frozenset(
    [
        "capacity",
        "accessModes",
        "claimRef",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "mountOptions",
        "volumeMode",
        "nodeAffinity",
        "volumeAttributesClassName",
    ]
)


class PersistentVolumeClaimStatusStrategy(StatusStrategy):
    def validate_status(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return [
            invalid(
                f"status.capacity[{name}]", quantities.parse_quantity(text).value(), "must be a valid resource quantity"
            )
            for name, text in obj["status"].get("capacity", {}).items()
            if quantities.parse_quantity(text).nanos < 0
        ]


class PersistentVolumeClaimStrategy(Strategy):
    struct = "core.v1.PersistentVolumeClaim"
    has_status = True
    status_strategy = PersistentVolumeClaimStatusStrategy

    def set_defaults(self, obj: JSON) -> None:
        obj["spec"].setdefault("volumeMode", "Filesystem")
        obj["status"].setdefault("phase", "Pending")

    def prepare_for_create(self, obj: JSON, now: str) -> None:
        obj["status"] = {"phase": "Pending"}
        _add_protection_finalizer(obj["metadata"], "kubernetes.io/pvc-protection")
        _sync_data_sources(obj["spec"])

    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        super().prepare_for_update(obj, old)
        _sync_data_sources(obj["spec"])

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return [
            *self.validate(obj),
            *self.metadata.validate_update(obj, old),
            *self.validate(obj),
            *self.validate_transition(obj, old),
        ]

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        return claims.validate_claim_spec(obj["spec"], "spec")

    def validate_transition(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        new, before = {**obj["spec"]}, {**old["spec"]}
        bound = obj["status"].get("phase") == "Bound"
        if not before.get("volumeName"):
            new.pop("volumeName", None)
            before.pop("volumeName", None)
        if before.get("storageClassName") is None:
            # A default class may be set later.
            new.pop("storageClassName", None)
        if bound:
            new["resources"], before["resources"] = (
                _resources_without_storage(new),
                _resources_without_storage(before),
            )
            for spec in (new, before):
                spec.pop("volumeAttributesClassName", None)
        problems: list[FieldProblem] = []
        if new != before:
            detail = (
                "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
                f"\n{pod_update.diff_text(before, new)}"
            )
            problems.append(forbidden("spec", detail))
        problems += _validate_resize(obj, old)
        return problems + validate_immutable(obj["spec"].get("volumeMode"), old["spec"].get("volumeMode"), "volumeMode")


def _add_protection_finalizer(meta: JSON, finalizer: str) -> None:
    """Add the finalizer that keeps an object in use from being deleted."""
    if finalizer not in meta.get("finalizers", ()):
        meta["finalizers"] = [*meta.get("finalizers", ()), finalizer]


def _sync_data_sources(spec: JSON) -> None:
    """Make `dataSource` and its successor `dataSourceRef` agree.

    `dataSource` accepts claims and snapshots only; any other kind is dropped.
    """
    old, new = spec.get("dataSource"), spec.get("dataSourceRef")
    if old is not None and new is None:
        claim_kinds = {("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot")}
        if (old.get("apiGroup") or "", old.get("kind")) in claim_kinds:
            spec["dataSourceRef"] = {**old}
        else:
            del spec["dataSource"]
    elif new is not None and old is None and not new.get("namespace"):
        spec["dataSource"] = {name: value for name, value in new.items() if name != "namespace"}


def _resources_without_storage(spec: JSON) -> JSON:
    requests = {name: text for name, text in spec["resources"].get("requests", {}).items() if name != "storage"}
    return {**spec["resources"], "requests": requests}


def _validate_resize(obj: JSON, old: JSON) -> list[FieldProblem]:
    def size(resources: JSON) -> int:
        text = resources.get("storage")
        return quantities.parse_quantity(text).nanos if text else 0

    new = size(obj["spec"]["resources"].get("requests", {}))
    if new >= size(old["spec"]["resources"].get("requests", {})):
        return []
    if new > size(old.get("status", {}).get("capacity", {})):
        return []
    return [forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")]


class PersistentVolumeStrategy(Strategy):
    struct = "core.v1.PersistentVolume"
    namespaced = False
    has_status = True

    def set_defaults(self, obj: JSON) -> None:
        obj["status"].setdefault("phase", "Pending")
        spec = obj["spec"]
        spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
        spec.setdefault("volumeMode", "Filesystem")
        if "hostPath" in spec:
            spec["hostPath"].setdefault("type", "")

    def prepare_for_create(self, obj: JSON, now: str) -> None:
        obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": now}
        _add_protection_finalizer(obj["metadata"], "kubernetes.io/pv-protection")

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        spec = obj["spec"]
        modes = spec.get("accessModes", ())
        problems = [] if modes else [required("spec.accessModes")]
        problems += claims.validate_access_modes(modes, "spec.accessModes")
        problems += _validate_capacity(spec.get("capacity", {}))
        policy = spec["persistentVolumeReclaimPolicy"]
        if policy not in _RECLAIM_POLICIES:
            problems.append(unsupported("spec.persistentVolumeReclaimPolicy", policy, _RECLAIM_POLICIES))
        problems += _validate_node_affinity(spec)
        problems += _validate_volume_source(spec)
        name = spec.get("storageClassName")
        if name:
            problems += invalid_each("spec.storageClassName", name, formats.dns_subdomain_errors(name))
        if spec["volumeMode"] not in claims.VOLUME_MODES:
            problems.append(unsupported("spec.volumeMode", spec["volumeMode"], claims.VOLUME_MODES))
        return problems

    def warnings(self, obj: JSON, old: JSON | None) -> list[str]:
        if obj["spec"]["persistentVolumeReclaimPolicy"] != "Recycle":
            return []
        message = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning."
        return [f"spec.persistentVolumeReclaimPolicy: {message}"]

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        new, before = _volume_sources(obj["spec"]), _volume_sources(old["spec"])
        problems = [*self.validate(obj), *self.validate(obj)]  # As kube-apiserver: for the kind and for the change.
        if new != before:
            detail = f"spec.persistentvolumesource is immutable after creation\n{pod_update.diff_text(before, new)}"
            problems.append(forbidden("spec.persistentvolumesource", detail))
        return problems + validate_immutable(obj["spec"].get("volumeMode"), old["spec"].get("volumeMode"), "volumeMode")


def _volume_sources(spec: JSON) -> JSON:
    return {name: value for name, value in spec.items() if name not in _NON_SOURCE_FIELDS}


def _validate_capacity(capacity: JSON) -> list[FieldProblem]:
    problems = [] if capacity else [required("spec.capacity")]
    if set(capacity) != {"storage"}:
        problems.append(unsupported("spec.capacity", capacity or None, ("storage",)))
    for name, text in capacity.items():
        amount = quantities.parse_quantity(text)
        if amount.nanos < 0:
            detail = "must be a valid resource quantity"
            problems.append(invalid(f"spec.capacity[{name}]", amount.value(), detail))
        if amount.nanos <= 0:
            problems.append(invalid(f"spec.capacity[{name}]", text, "must be greater than zero"))
    return problems


def _validate_node_affinity(spec: JSON) -> list[FieldProblem]:
    if "nodeAffinity" not in spec:
        return []
    node_selector = spec["nodeAffinity"].get("required")
    if node_selector is None:
        return [required("spec.nodeAffinity.required", "must specify required node constraints")]
    return placement.validate_node_selector(node_selector, "spec.nodeAffinity.required")


def _validate_volume_source(spec: JSON) -> list[FieldProblem]:
    sources = _volume_sources(spec)
    if not sources:
        return [required("spec", "must specify a volume type")]
    first, *others = sources
    detail = "may not specify more than 1 volume type"
    problems = [forbidden(f"spec.{name}", detail) for name in others]
    match first:
        case "hostPath" | "nfs":
            problems += volumes.validate_source(first, spec[first], f"spec.{first}")
        case "local":
            if not spec["local"].get("path"):
                problems.append(required("spec.local.path"))
            if "nodeAffinity" not in spec:
                problems.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
        case "csi":
            problems += volumes.validate_csi_driver_name(spec["csi"].get("driver", ""), "spec.csi.driver")
            if not spec["csi"].get("volumeHandle"):
                problems.append(required("spec.csi.volumeHandle"))
    return problems


class StorageClassStrategy(Strategy):
    struct = "storage.v1.StorageClass"
    namespaced = False

    def set_defaults(self, obj: JSON) -> None:
        obj.setdefault("reclaimPolicy", "Delete")
        obj.setdefault("volumeBindingMode", "Immediate")

    def validate(self, obj: JSON) -> list[FieldProblem]:
        problems = self.metadata.validate(obj)
        name = obj["provisioner"]
        problems += (
            invalid_each("provisioner", name.lower(), formats.qualified_name_errors(name.lower()))
            if name
            else [required("provisioner")]
        )
        parameters = obj.get("parameters", {})
        if len(parameters) > 512:
            problems.append(too_long("parameters", 512))
        elif sum(len(key) + len(value) for key, value in parameters.items()) > 256 * 1024:
            problems.append(too_long("parameters", 256 * 1024))
        for field, supported in (
            ("reclaimPolicy", ("Delete", "Retain")),
            ("volumeBindingMode", ("Immediate", "WaitForFirstConsumer")),
        ):
            if obj[field] not in supported and (obj[field] or field != "reclaimPolicy"):
                problems.append(unsupported(field, obj[field], supported))
        return problems

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        problems = [*self.validate(obj), *self.metadata.validate_update(obj, old)]
        problems += [
            forbidden(name, f"updates to {name} are forbidden.")
            for name in ("parameters", "provisioner", "reclaimPolicy")
            if obj.get(name) != old.get(name)
        ]
        return problems + validate_immutable(obj["volumeBindingMode"], old["volumeBindingMode"], "volumeBindingMode")
