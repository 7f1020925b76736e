"""Nodes."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, gostruct, quantities
from gangline.apiserver.kinds.machinery.strategy import StatusStrategy, Strategy
from gangline.apiserver.kinds.pod.placement import TAINT_EFFECTS
from gangline.schema.problems import (
    NO_VALUE,
    FieldProblem,
    ProblemKind,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    required,
    unsupported,
)

_NOT_READY_TAINT = "node.kubernetes.io/not-ready"


class NodeStatusStrategy(StatusStrategy):
    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        found = [
            *self.metadata.validate_update(obj, old),
            *_validate_resources(obj),
            *_validate_addresses(obj),
        ]
        spec, before = obj["spec"], old["spec"]
        kept = before.get("podCIDRs", [])
        told = 'node updates may not change podCIDR except from "" to valid'
        now = spec.get("podCIDRs", [])
        if kept and len(kept) != len(now):
            found.append(forbidden("spec.podCIDRs", told))
        elif kept:
            pairs = zip(kept, now, strict=True)
            found += [forbidden("spec.podCIDRs", told) for was, value in pairs if was != value]
        provider = before.get("providerID")
        if provider and spec.get("providerID") != provider:
            told = 'node updates may not change providerID except from "" to valid'
            found.append(forbidden("spec.providerID", told))
        found += _validate_taints(spec.get("taints", ()))
        if spec.get("externalID") != before.get("externalID"):
            found.append(forbidden("spec.externalID", "may not be updated"))
        return found


class NodeStrategy(Strategy):
    """A node's status may be given on create. New nodes are tainted until somebody finds them ready."""

    struct = "core.v1.Node"
    namespaced = False
    has_status = True
    status_strategy = NodeStatusStrategy

    def set_defaults(self, obj: JSON) -> None:
        spec, status = obj["spec"], obj["status"]
        if "capacity" in status and "allocatable" not in status:
            status["allocatable"] = dict(status["capacity"])
        single, listed = spec.get("podCIDR", ""), spec.get("podCIDRs", [])
        if single and (not listed or listed[0] != single):
            spec["podCIDRs"] = [single]
        elif listed:
            spec["podCIDR"] = listed[0]

    def prepare_for_create(self, obj: JSON, now: str) -> None:
        taints = obj["spec"].get("taints", [])
        if not any(one.get("key") == _NOT_READY_TAINT and one.get("effect") == "NoSchedule" for one in taints):
            obj["spec"]["taints"] = [*taints, {"key": _NOT_READY_TAINT, "effect": "NoSchedule"}]

    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        obj["status"] = old.get("status", {})

    def validate(self, obj: JSON) -> list[FieldProblem]:
        found = [
            *self.metadata.validate(obj),
            *_validate_taints(obj["spec"].get("taints", ())),
            *_validate_resources(obj),
        ]
        ranges = obj["spec"].get("podCIDRs", [])
        for index, value in enumerate(ranges):
            found += invalid_each(f"spec.podCIDRs[{index}]", value, formats.cidr_errors(value))
        wrong = next((index for index, value in enumerate(ranges) if formats.cidr_errors(value)), None)
        if len(ranges) > 1 and wrong is not None:
            told = (
                "invalid PodCIDRs. failed to check with dual stack with error:invalid "
                f"CIDR[{wrong}]: <nil> (invalid CIDR address: {ranges[wrong]})"
            )
            found.append(FieldProblem(ProblemKind.INTERNAL, "spec.podCIDRs", NO_VALUE, told))
        mixed = wrong is None and len({":" in value for value in ranges}) == 2
        if len(ranges) > 1 and (len(ranges) > 2 or not mixed):
            told = "may specify no more than one CIDR for each IP family"
            found.append(invalid("spec.podCIDRs", ranges, told))
        return found

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return [*self.validate(obj), *self.status.validate_kind_update(obj, old)]

    def warnings(self, obj: JSON, old: JSON | None) -> list[str]:
        told: list[str] = []
        if "configSource" in obj["spec"]:
            told.append("spec.configSource: the feature is removed")
        if obj["spec"].get("externalID"):
            told.append("spec.externalID: this field is deprecated, and is unused by Kubernetes")
        return told


def _validate_taints(taints: list[JSON] | tuple[()]) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        path, key = f"metadata.taints[{index}]", taint.get("key", "")
        value, effect = taint.get("value", ""), taint.get("effect", "")
        found += invalid_each(f"{path}.key", key, formats.qualified_name_errors(key))
        if said := formats.label_value_errors(value):
            found.append(invalid(f"{path}.value", value, ";".join(said)))
        if not effect:
            found.append(required(f"{path}.effect"))
        elif effect not in TAINT_EFFECTS:
            found.append(unsupported(f"{path}.effect", effect, TAINT_EFFECTS))
        if (key, effect) in seen:
            told = "taints must be unique by key and effect pair"
            shown = gostruct.go_struct({"value": "", **taint}, "Key Value Effect TimeAdded")
            found.append(FieldProblem(ProblemKind.DUPLICATE, path, shown, told))
        seen.add((key, effect))
    return found


def _validate_resources(obj: JSON) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    for name in ("capacity", "allocatable"):
        for resource, text in obj["status"].get(name, {}).items():
            found += quantities.validate_resource_value(resource, text, f"status.{name}.{resource}")
    return found


def _validate_addresses(obj: JSON) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    seen: list[JSON] = []
    for index, address in enumerate(obj["status"].get("addresses", ())):
        if address in seen:
            shown = gostruct.go_struct(address, "Type Address")
            found.append(duplicate(f"status.addresses[{index}]", shown))
        seen.append(address)
    return found
