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
        problems = [*self.metadata.validate_update(obj, old), *_validate_resources(obj), *_validate_addresses(obj)]
        spec, before = obj["spec"], old["spec"]
        old_ranges = before.get("podCIDRs", [])
        detail = 'node updates may not change podCIDR except from "" to valid'
        new_ranges = spec.get("podCIDRs", [])
        if old_ranges and len(old_ranges) != len(new_ranges):
            problems.append(forbidden("spec.podCIDRs", detail))
        elif old_ranges:
            pairs = zip(old_ranges, new_ranges, strict=True)
            problems += [forbidden("spec.podCIDRs", detail) for old_range, new_range in pairs if old_range != new_range]
        provider = before.get("providerID")
        if provider and spec.get("providerID") != provider:
            detail = 'node updates may not change providerID except from "" to valid'
            problems.append(forbidden("spec.providerID", detail))
        problems += _validate_taints(spec.get("taints", ()))
        if spec.get("externalID") != before.get("externalID"):
            problems.append(forbidden("spec.externalID", "may not be updated"))
        return problems


class NodeStrategy(Strategy):
    """A node may be created with a status. New nodes are tainted until a controller finds them ready."""

    struct = "core.v1.Node"
    namespaced = False
    has_status = True
    status_strategy = NodeStatusStrategy

    def set_defaults(self, obj: JSON) -> None:
        spec, status = obj["spec"], obj["status"]
        if "capacity" in status and "allocatable" not in status:
            status["allocatable"] = dict(status["capacity"])
        first_range, ranges = spec.get("podCIDR", ""), spec.get("podCIDRs", [])
        if first_range and (not ranges or ranges[0] != first_range):
            spec["podCIDRs"] = [first_range]
        elif ranges:
            spec["podCIDR"] = ranges[0]

    def prepare_for_create(self, obj: JSON, now: str) -> None:
        taints = obj["spec"].get("taints", [])
        if not any(taint.get("key") == _NOT_READY_TAINT and taint.get("effect") == "NoSchedule" for taint in taints):
            obj["spec"]["taints"] = [*taints, {"key": _NOT_READY_TAINT, "effect": "NoSchedule"}]

    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        obj["status"] = old.get("status", {})

    def validate(self, obj: JSON) -> list[FieldProblem]:
        problems = [
            *self.metadata.validate(obj),
            *_validate_taints(obj["spec"].get("taints", ())),
            *_validate_resources(obj),
        ]
        ranges = obj["spec"].get("podCIDRs", [])
        for index, value in enumerate(ranges):
            problems += invalid_each(f"spec.podCIDRs[{index}]", value, formats.cidr_errors(value))
        invalid_index = next((index for index, value in enumerate(ranges) if formats.cidr_errors(value)), None)
        if len(ranges) > 1 and invalid_index is not None:
            detail = (
                "invalid PodCIDRs. failed to check with dual stack with error:invalid "
                f"CIDR[{invalid_index}]: <nil> (invalid CIDR address: {ranges[invalid_index]})"
            )
            problems.append(FieldProblem(ProblemKind.INTERNAL, "spec.podCIDRs", NO_VALUE, detail))
        mixed = invalid_index is None and len({":" in value for value in ranges}) == 2
        if len(ranges) > 1 and (len(ranges) > 2 or not mixed):
            detail = "may specify no more than one CIDR for each IP family"
            problems.append(invalid("spec.podCIDRs", ranges, detail))
        return problems

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return [*self.validate(obj), *self.status.validate_kind_update(obj, old)]

    def warnings(self, obj: JSON, old: JSON | None) -> list[str]:
        warnings: list[str] = []
        if "configSource" in obj["spec"]:
            warnings.append("spec.configSource: the feature is removed")
        if obj["spec"].get("externalID"):
            warnings.append("spec.externalID: this field is deprecated, and is unused by Kubernetes")
        return warnings


def _validate_taints(taints: list[JSON] | tuple[()]) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    earlier_taints: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        path, key = f"metadata.taints[{index}]", taint.get("key", "")
        value, effect = taint.get("value", ""), taint.get("effect", "")
        problems += invalid_each(f"{path}.key", key, formats.qualified_name_errors(key))
        if errors := formats.label_value_errors(value):
            problems.append(invalid(f"{path}.value", value, ";".join(errors)))
        if not effect:
            problems.append(required(f"{path}.effect"))
        elif effect not in TAINT_EFFECTS:
            problems.append(unsupported(f"{path}.effect", effect, TAINT_EFFECTS))
        if (key, effect) in earlier_taints:
            detail = "taints must be unique by key and effect pair"
            printed = gostruct.go_struct({"value": "", **taint}, "Key Value Effect TimeAdded")
            problems.append(FieldProblem(ProblemKind.DUPLICATE, path, printed, detail))
        earlier_taints.add((key, effect))
    return problems


def _validate_resources(obj: JSON) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for name in ("capacity", "allocatable"):
        for resource, text in obj["status"].get(name, {}).items():
            problems += quantities.validate_resource_value(resource, text, f"status.{name}.{resource}")
    return problems


def _validate_addresses(obj: JSON) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    earlier_addresses: list[JSON] = []
    for index, address in enumerate(obj["status"].get("addresses", ())):
        if address in earlier_addresses:
            printed = gostruct.go_struct(address, "Type Address")
            problems.append(duplicate(f"status.addresses[{index}]", printed))
        earlier_addresses.append(address)
    return problems
