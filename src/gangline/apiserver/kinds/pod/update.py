"""Validation of changed pods: which fields of the spec may change, and what the status may contain."""

from collections.abc import Iterator
from typing import Any

from gangline.api.in_place import IN_PLACE_ANNOTATION
from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, gostruct
from gangline.apiserver.kinds.machinery.metadata import IMMUTABLE_MESSAGE
from gangline.apiserver.kinds.machinery.strategy import restore_field
from gangline.apiserver.kinds.pod import placement
from gangline.base.json_diff import changed_values
from gangline.schema.go_text import value_text
from gangline.schema.problems import NO_VALUE, FieldProblem, ProblemKind, forbidden, invalid, invalid_each, required

_MAX_INT32 = 2**31 - 1
_BUILTIN_CONDITIONS = frozenset({"PodScheduled", "Ready", "Initialized"})
_MUTABLE_FIELDS_TEXT = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
    "previously negative)"
)
_NOT_RESTARTABLE = "may not be transitioned to non-terminated state"


def validate_pod_spec_update(new: JSON, old: JSON) -> list[FieldProblem]:
    """Problems of changing a pod's spec from `old` to `new`."""
    problems: list[FieldProblem] = []
    for name in ("containers", "initContainers"):
        now, before = new.get(name) or [], old.get(name) or []
        if len(now) != len(before):
            detail = "pod updates may not add or remove containers"
            return [*problems, forbidden(f"spec.{name}", detail)]
        problems += _validate_images(now, f"spec.{name}")
    deadline = _validate_deadline_update(new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds"))
    problems += deadline
    if deadline and "activeDeadlineSeconds" in new:
        return problems
    problems += _validate_tolerations_update(new.get("tolerations", []), old.get("tolerations", []))
    problems += _validate_gates_update(new.get("schedulingGates", []), old.get("schedulingGates", []))
    if new == old:
        return problems
    restored = _with_mutable_fields_restored(new, old)
    if old.get("schedulingGates"):
        problems += _validate_gated_update(restored, old)
    if restored != old:
        detail = f"pod updates may not change fields other than {_MUTABLE_FIELDS_TEXT}\n{diff_text(old, restored)}"
        problems.append(forbidden("spec", detail))
    return problems


def _validate_images(containers: list[JSON], path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for index, container in enumerate(containers):
        image, item_path = container.get("image", ""), f"{path}[{index}].image"
        if not image:
            problems.append(required(item_path))
        if image.strip() != image:
            problems.append(invalid(item_path, image, "must not have leading or trailing whitespace"))
    return problems


def _validate_deadline_update(new: int | None, old: int | None) -> list[FieldProblem]:
    path = "spec.activeDeadlineSeconds"
    if new is None:
        if old is None:
            return []
        return [invalid(path, None, "must not update from a positive integer to nil value")]
    if not 0 <= new <= _MAX_INT32:
        return [invalid(path, new, formats.range_message(0, _MAX_INT32))]
    if old is not None and old < new:
        return [invalid(path, new, "must be less than or equal to previous value")]
    return []


def _validate_tolerations_update(new: list[JSON], old: list[JSON]) -> list[FieldProblem]:
    def without_seconds(one: JSON) -> JSON:
        return {name: value for name, value in one.items() if name != "tolerationSeconds"}

    new_tolerations = [without_seconds(toleration) for toleration in new]
    if any(without_seconds(toleration) not in new_tolerations for toleration in old):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        return [forbidden("spec.tolerations", detail)]
    return placement.validate_tolerations(new, "spec.tolerations")


def _validate_gates_update(new: list[JSON], old: list[JSON]) -> list[FieldProblem]:
    before = {gate.get("name") for gate in old}
    return [
        forbidden(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'",
        )
        for index, gate in enumerate(new)
        if gate.get("name") not in before
    ]


def _with_mutable_fields_restored(new: JSON, old: JSON) -> JSON:
    restored = {**new}
    for name in ("containers", "initContainers"):
        if new.get(name):
            pairs = zip(new[name], old[name], strict=True)
            restored[name] = [{**now, "image": before.get("image", "")} for now, before in pairs]
    for name in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        restore_field(restored, old, name)
    return restored


def _validate_gated_update(restored: JSON, old: JSON) -> list[FieldProblem]:
    """Problems in the placement of a pod with scheduling gates, which may only be narrowed.

    The fields that are checked here become what they were before, in `restored`.
    """
    problems: list[FieldProblem] = []
    selector = restored.get("nodeSelector", {})
    if any(selector.get(key) != value for key, value in old.get("nodeSelector", {}).items()):
        detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        problems.append(invalid("spec.nodeSelector", selector, detail))
    restore_field(restored, old, "nodeSelector")
    affinity = dict(restored.get("affinity", {}))
    before = old.get("affinity", {})
    if affinity.get("nodeAffinity") != before.get("nodeAffinity"):
        problems += _validate_node_affinity_update(affinity.get("nodeAffinity", {}), before.get("nodeAffinity", {}))
        restore_field(affinity, before, "nodeAffinity")
        restored["affinity"] = affinity
        if not affinity and "affinity" not in old:
            del restored["affinity"]
    return problems


def _validate_node_affinity_update(new: JSON, old: JSON) -> list[FieldProblem]:
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    path = f"spec.affinity.nodeAffinity.{name}.nodeSelectorTerms"
    now = new.get(name, {}).get("nodeSelectorTerms") or []
    before = old.get(name, {}).get("nodeSelectorTerms") or []
    if before and len(before) != len(now):
        detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [invalid(path, now, detail)]
    return [
        invalid(f"{path}[{index}]", now[index], "only additions are allowed (no mutations or deletions)")
        for index, term in enumerate(before)
        if not _only_adds_requirements(now[index], term)
    ]


def _only_adds_requirements(new: JSON, old: JSON) -> bool:
    names = ("matchExpressions", "matchFields")
    if not any(old.get(name) for name in names):
        return not any(new.get(name) for name in names)
    return all(new.get(name, [])[: len(old.get(name, []))] == old.get(name, []) for name in names)


def diff_text(old: Any, new: Any) -> str:
    """The changed fields, one line for each side: `- spec.hostname: "a"`."""
    return "\n".join(_diff_lines(old, new))


def _diff_lines(old: Any, new: Any) -> Iterator[str]:
    for path, before, after in changed_values(old, new):
        if before is not None:
            yield f"- \t{path}: {value_text(before)}"
        if after is not None:
            yield f"+ \t{path}: {value_text(after)}"


def validate_pod_status_update(new: JSON, old: JSON) -> list[FieldProblem]:
    """Problems of a pod's changed status. Both arguments are pods with the same spec."""
    status, before = new.get("status", {}), old.get("status", {})
    problems = _validate_conditions(status.get("conditions", ()))
    problems += _validate_nominated_node(status.get("nominatedNodeName", ""), before.get("nominatedNodeName", ""), old)
    if status.get("observedGeneration", 0) < 0:
        detail = "must be a non-negative integer"
        problems.append(invalid("status.observedGeneration", status["observedGeneration"], detail))
    if status.get("qosClass", "") != before.get("qosClass", ""):
        problems.append(invalid("status.qosClass", status.get("qosClass", ""), IMMUTABLE_MESSAGE))
    if IN_PLACE_ANNOTATION not in old["metadata"].get("annotations", {}):
        problems += _validate_container_restarts(status, before, old["spec"])
    problems += _validate_ip_list_update(status.get("podIPs", []), before.get("podIPs", []), "status.podIPs")
    hosts = status.get("hostIPs", [])
    if hosts and hosts[0].get("ip", "") != status.get("hostIP", ""):
        problems.append(invalid("status.hostIPs[0].ip", hosts[0].get("ip", ""), "must be equal to `hostIP`"))
    return problems + _validate_ip_list_update(hosts, before.get("hostIPs", []), "status.hostIPs")


def _validate_conditions(conditions: list[JSON] | tuple[()]) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for index, condition in enumerate(conditions):
        item_path, kind = f"status.conditions[{index}]", condition.get("type", "")
        if condition.get("observedGeneration", 0) < 0:
            detail = "must be a non-negative integer"
            problems.append(invalid(f"{item_path}.observedGeneration", condition["observedGeneration"], detail))
        if kind not in _BUILTIN_CONDITIONS:
            problems += invalid_each(f"{item_path}.Type", kind, formats.qualified_name_errors(kind))
    return problems


def _validate_nominated_node(new: str, before: str, old: JSON) -> list[FieldProblem]:
    if not new or new == before:
        return []
    path = "status.nominatedNodeName"
    problems = invalid_each(path, new, formats.dns_subdomain_errors(new))
    if old["spec"].get("nodeName"):
        problems.append(forbidden(path, "may not be set on pods that are already bound to a node"))
    return problems


def _validate_container_restarts(status: JSON, before: JSON, spec: JSON) -> list[FieldProblem]:
    policy = spec.get("restartPolicy")
    sidecars = {entry["name"] for entry in spec.get("initContainers", ()) if entry.get("restartPolicy") == "Always"}
    problems: list[FieldProblem] = []
    for name in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        running = {entry.get("name") for entry in status.get(name, ()) if "terminated" not in entry.get("state", {})}
        ephemeral = name == "ephemeralContainerStatuses"
        for index, old in enumerate(before.get(name, ())):
            ended = old.get("state", {}).get("terminated")
            if ended is None or old.get("name") not in running or (old.get("name") in sidecars and not ephemeral):
                continue
            restarts = policy == "Always" or (policy == "OnFailure" and ended.get("exitCode", 0) != 0)
            if ephemeral or not restarts:
                problems.append(forbidden(f"status.{name}[{index}].state", _NOT_RESTARTABLE))
    return problems


def _validate_ip_list_update(new: list[JSON], old: list[JSON], path: str) -> list[FieldProblem]:
    before = {entry.get("ip") for entry in old}
    problems: list[FieldProblem] = []
    for index, entry in enumerate(new):
        address = entry.get("ip", "")
        if address not in before:
            problems += invalid_each(f"{path}[{index}]", address, formats.ip_address_errors(address))
    if len(new) < 2:
        return problems
    addresses = [entry.get("ip", "") for entry in new]
    invalid_index = next((index for index, entry in enumerate(addresses) if formats.ip_address_errors(entry)), None)
    if invalid_index is not None:
        detail = f"failed to check for dual stack with error:invalid IP[{invalid_index}]: {addresses[invalid_index]}"
        problems.append(FieldProblem(ProblemKind.INTERNAL, path, NO_VALUE, detail))
    if invalid_index is not None or len({formats.ip_family(entry) for entry in addresses}) < 2 or len(new) > 2:
        printed = [gostruct.go_struct(entry, "IP") for entry in new]
        detail = "may specify no more than one IP for each IP family"
        problems.append(invalid(path, printed, detail))
    return problems
