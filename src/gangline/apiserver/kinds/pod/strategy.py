"""Pods."""

import re

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import quantities
from gangline.apiserver.kinds.machinery.strategy import StatusStrategy, Strategy, restore_field
from gangline.apiserver.kinds.pod import containers, defaults, spec_subresources, validation
from gangline.apiserver.kinds.pod import update as pod_update
from gangline.apiserver.kinds.pod import warnings as pod_warnings
from gangline.apiserver.kinds.pod.placement import merge_label_keys
from gangline.schema.problems import FieldProblem, forbidden, invalid

_NO_EXECUTE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_MIRROR_ANNOTATION = "kubernetes.io/config.mirror"
_DELETION_COST_ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"
_is_integer_text = re.compile(r"-\d+|0|[1-9]\d*", re.ASCII).fullmatch
_CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
_QOS_RESOURCES = ("cpu", "memory")


class PodStatusStrategy(StatusStrategy):
    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        super().prepare_for_update(obj, old)
        obj["metadata"].pop("deletionTimestamp", None)
        restore_field(obj["metadata"], old["metadata"], "deletionTimestamp")
        restore_field(obj["metadata"], old["metadata"], "ownerReferences")
        status, before = obj["status"], old.get("status", {})
        if "qosClass" not in status and "qosClass" in before:
            status["qosClass"] = before["qosClass"]
        _keep_observed_generations(status, before)

    def validate_status(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return [*_validate_annotation_update(obj, old), *pod_update.validate_pod_status_update(obj, old)]


class PodStrategy(Strategy):
    """The strategy of pods. On the hot path: every step returns early when a pod does not use a feature."""

    struct = "core.v1.Pod"
    has_status = True
    status_strategy = PodStatusStrategy
    has_generation = True
    revalidates_on_update = True

    def set_defaults(self, obj: JSON) -> None:
        defaults.set_pod_spec_defaults(obj["spec"])
        defaults.set_pod_defaults(obj["spec"])
        status = obj["status"]
        if "podIP" in status or "podIPs" in status:
            _sync_pod_ips(status)

    def prepare_for_create(self, obj: JSON, now: str) -> None:
        spec = obj["spec"]
        obj["metadata"]["generation"] = 1
        add_default_tolerations(spec)
        drop_disabled_fields(spec)
        obj["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
        if spec.get("schedulingGates"):
            obj["status"]["conditions"] = [_scheduling_gated_condition(now)]
        if "affinity" in spec or "topologySpreadConstraints" in spec:
            _merge_pod_label_keys(spec, obj["metadata"].get("labels", {}))

    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        add_default_tolerations(obj["spec"])
        drop_disabled_fields(obj["spec"])
        super().prepare_for_update(obj, old)

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        return validate_pod(obj)

    def validate(self, obj: JSON) -> list[FieldProblem]:
        problems = super().validate(obj)
        spec = obj["spec"]
        if "ephemeralContainers" in spec:
            problems.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
        if spec.get("nodeName") and spec.get("schedulingGates"):
            detail = "cannot be set until all schedulingGates have been cleared"
            problems.append(forbidden("spec.nodeName", detail))
        return problems

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return [
            *self.metadata.validate_update(obj, old),
            *self.metadata.validate(obj),
            *validate_pod(obj),
            *_validate_annotation_update(obj, old),
            *pod_update.validate_pod_spec_update(obj["spec"], old["spec"]),
        ]

    def prepare_and_validate_spec_subresource(self, subresource: str, obj: JSON, old: JSON) -> list[FieldProblem]:
        """Restore, in place, what a write of this subresource may not change. Returns what is invalid."""
        if subresource == spec_subresources.EPHEMERAL_CONTAINERS:
            spec_subresources.restore_for_ephemeral_containers(obj, old)
        else:
            spec_subresources.restore_for_resize(obj, old)
        drop_disabled_fields(obj["spec"])
        super().prepare_for_update(obj, old)
        problems = [
            *self.metadata.validate_common_update(obj, old),
            *self.metadata.validate_update(obj, old),
            *self.metadata.validate(obj),
            *validate_pod(obj),
            *_validate_annotation_update(obj, old),
        ]
        if subresource == spec_subresources.EPHEMERAL_CONTAINERS:
            return problems + spec_subresources.validate_ephemeral_containers_update(obj, old)
        before = old.get("status", {}).get("qosClass") or qos_class(old["spec"])
        return problems + spec_subresources.validate_resize(obj, old, before, qos_class(obj["spec"]))

    def warnings(self, obj: JSON, old: JSON | None) -> list[str]:
        if old is not None:  # Updates of pods are frequent and not made by people.
            return []
        meta = obj["metadata"]
        return [*pod_warnings.name_warnings(meta.get("name", "")), *pod_warnings.pod_warnings(meta, obj["spec"])]


def validate_pod(obj: JSON) -> list[FieldProblem]:
    """Problems in the spec and annotations of a new or changed pod."""
    meta, spec = obj["metadata"], obj["spec"]
    problems = _validate_pod_annotations(meta["annotations"], spec) if "annotations" in meta else []
    problems += validation.validate_pod_spec(spec, meta.get("name", ""), "spec", of_pod=True)
    if "volumes" in spec and not spec.get("serviceAccountName"):
        problems += _validate_token_volumes(spec["volumes"])
    for group in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(group) or ()):
            problems += containers.validate_image_whitespace(container, f"spec.{group}[{index}]")
    return problems


def _validate_token_volumes(volumes: list[JSON]) -> list[FieldProblem]:
    return [
        forbidden(
            f"spec.volumes[{index}].projected.sources[{number}].serviceAccountToken",
            "must not be specified when serviceAccountName is not set",
        )
        for index, volume in enumerate(volumes)
        for number, source in enumerate(volume.get("projected", {}).get("sources") or ())
        if "serviceAccountToken" in source
    ]


def _validate_pod_annotations(annotations: dict[str, str], spec: JSON) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    if _MIRROR_ANNOTATION in annotations and not spec.get("nodeName"):
        detail = "must set spec.nodeName if mirror pod annotation is set"
        problems.append(invalid(f"metadata.annotations[{_MIRROR_ANNOTATION}]", annotations[_MIRROR_ANNOTATION], detail))
    cost = annotations.get(_DELETION_COST_ANNOTATION)
    if cost is not None and not (_is_integer_text(cost) and -(2**31) <= int(cost) < 2**31):
        problems.append(invalid(f"metadata.annotations[{_DELETION_COST_ANNOTATION}]", cost, "must be a 32bit integer"))
    return problems


def _validate_annotation_update(obj: JSON, old: JSON) -> list[FieldProblem]:
    new, before = obj["metadata"].get("annotations", {}), old["metadata"].get("annotations", {})
    problems: list[FieldProblem] = []
    if new.get(_MIRROR_ANNOTATION) != before.get(_MIRROR_ANNOTATION):
        verb = "remove or update" if _MIRROR_ANNOTATION in before else "add"
        problems.append(
            forbidden(f"metadata.annotations[{_MIRROR_ANNOTATION}]", f"may not {verb} mirror pod annotation")
        )
    return problems + _validate_pod_annotations(new, obj["spec"])


def add_default_tolerations(spec: JSON) -> None:
    """Let a pod stay on an unreachable or not ready node for five minutes, unless its tolerations say otherwise."""
    missing = [key for key in _NO_EXECUTE_TAINTS if not _tolerates(spec.get("tolerations", ()), key)]
    if missing:
        added = [{"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300} for key in missing]
        spec["tolerations"] = [*spec.get("tolerations", ()), *added]


def _tolerates(tolerations: list[JSON], key: str) -> bool:
    return any(
        toleration.get("key", "") in {key, ""} and toleration.get("effect", "") in {"NoExecute", ""}
        for toleration in tolerations
    )


def drop_disabled_fields(spec: JSON) -> None:
    """Remove the fields of features that are disabled in this version of Kubernetes."""
    spec.pop("hostnameOverride", None)
    image_volumes = {volume.get("name") for volume in spec.get("volumes", ()) if "image" in volume}
    if image_volumes:
        spec["volumes"] = [volume for volume in spec["volumes"] if "image" not in volume]
    for group in _CONTAINER_LISTS:
        for container in spec.get(group) or ():
            _drop_disabled_container_fields(container, sidecar=group == "initContainers")
            if image_volumes and "volumeMounts" in container:
                mounts = [mount for mount in container["volumeMounts"] if mount.get("name") not in image_volumes]
                container["volumeMounts"] = mounts
                if not mounts:
                    del container["volumeMounts"]


def _drop_disabled_container_fields(container: JSON, *, sidecar: bool) -> None:
    if "restartPolicy" in container and not (sidecar and container["restartPolicy"] == "Always"):
        del container["restartPolicy"]
    container.pop("restartPolicyRules", None)
    if "lifecycle" in container:
        signal = container["lifecycle"].pop("stopSignal", None)
        if signal is not None and not container["lifecycle"]:
            del container["lifecycle"]
    for variable in container.get("env", ()):
        if "valueFrom" in variable:
            variable["valueFrom"].pop("fileKeyRef", None)


def qos_class(spec: JSON) -> str:
    """`Guaranteed`, `Burstable` or `BestEffort`, by the resources of the containers."""
    if "resources" in spec:
        requirements = [spec["resources"]]
    else:
        requirements = [
            container["resources"] for container in [*(spec["containers"] or ()), *spec.get("initContainers", ())]
        ]
    if not any(requirements):
        return "BestEffort"
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    guaranteed = True
    for resources in requirements:
        _add_qos_resources(requests, resources.get("requests", {}))
        guaranteed = guaranteed and _add_qos_resources(limits, resources.get("limits", {})) == len(_QOS_RESOURCES)
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed and requests == limits else "Burstable"


def _add_qos_resources(total: dict[str, int], resources: JSON) -> int:
    """Add the resources that the QoS class depends on to `total`. Returns how many of them are set."""
    count = 0
    for name in _QOS_RESOURCES:
        nanos = quantities.parse_quantity(resources[name]).nanos if name in resources else 0
        if nanos > 0:
            total[name] = total.get(name, 0) + nanos
            count += 1
    return count


def _scheduling_gated_condition(now: str) -> JSON:
    return {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }


def _merge_pod_label_keys(spec: JSON, labels: dict[str, str]) -> None:
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = spec.get("affinity", {}).get(kind, {})
        for weighted in pods.get("preferredDuringSchedulingIgnoredDuringExecution", ()):
            merge_label_keys(weighted["podAffinityTerm"], labels)
        for term in pods.get("requiredDuringSchedulingIgnoredDuringExecution", ()):
            merge_label_keys(term, labels)
    for constraint in spec.get("topologySpreadConstraints", ()):
        merge_label_keys(constraint, labels)


def _sync_pod_ips(status: JSON) -> None:
    """Make `podIP` the first of `podIPs`. Where they differ, `podIP` wins."""
    first_ip, ips = status.get("podIP", ""), status.get("podIPs", [])
    if first_ip and (not ips or ips[0].get("ip", "") != first_ip):
        status["podIPs"] = [{"ip": first_ip}]
    elif ips:
        status["podIP"] = ips[0].get("ip", "")


def _keep_observed_generations(status: JSON, before: JSON) -> None:
    """Keep the old `observedGeneration` of status and conditions where the client sends none."""
    if "observedGeneration" not in status and "observedGeneration" in before:
        status["observedGeneration"] = before["observedGeneration"]
    earlier: dict[str, list[int]] = {}
    for condition in before.get("conditions", ()):
        earlier.setdefault(condition.get("type", ""), []).append(condition.get("observedGeneration", 0))
    for condition in status.get("conditions", ()):
        generations = earlier.get(condition.get("type", ""), [])
        observed = generations.pop(0) if generations else 0
        if observed and "observedGeneration" not in condition:
            condition["observedGeneration"] = observed
