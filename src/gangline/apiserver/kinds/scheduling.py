"""Priority classes."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import metadata
from gangline.apiserver.kinds.machinery.strategy import Strategy
from gangline.apiserver.kinds.pod import validation
from gangline.schema.problems import FieldProblem, forbidden

_MAX_USER_PRIORITY = 1_000_000_000

_SYSTEM_PRIORITY_CLASSES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


class PriorityClassStrategy(Strategy):
    struct = "scheduling.v1.PriorityClass"
    namespaced = False
    has_generation = True

    def set_defaults(self, obj: JSON) -> None:
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        obj["metadata"]["generation"] = old["metadata"].get("generation", 1)

    def validate(self, obj: JSON) -> list[FieldProblem]:
        found = super().validate(obj)
        name, value = obj["metadata"].get("name", ""), obj["value"]
        if name.startswith("system-"):
            found += _validate_system_class(name, value, obj)
        elif value > _MAX_USER_PRIORITY:
            told = f"maximum allowed value of a user defined priority is {_MAX_USER_PRIORITY}"
            found.append(forbidden("value", told))
        return found + validation.validate_preemption_policy(obj["preemptionPolicy"], "preemptionPolicy")

    def validate_transition(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        found: list[FieldProblem] = []
        if obj["value"] != old["value"]:
            found.append(forbidden("value", "may not be changed in an update."))
        return found + metadata.validate_immutable(obj["preemptionPolicy"], old["preemptionPolicy"], "preemptionPolicy")


def _validate_system_class(name: str, value: int, obj: JSON) -> list[FieldProblem]:
    if name not in _SYSTEM_PRIORITY_CLASSES:
        told = f"{name} is not a known system priority class"
    elif value != _SYSTEM_PRIORITY_CLASSES[name]:
        told = f"value of {name} PriorityClass must be {_SYSTEM_PRIORITY_CLASSES[name]}"
    elif obj.get("globalDefault"):
        told = f"globalDefault of {name} PriorityClass must be false"
    else:
        return []
    reserved = "priority class names with 'system-' prefix are reserved for system use only. error: "
    return [forbidden("metadata.name", reserved + told)]
