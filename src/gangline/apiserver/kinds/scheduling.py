"""Priority classes."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import metadata
from gangline.apiserver.kinds.machinery.strategy import Strategy
from gangline.apiserver.kinds.pod import validation
from gangline.schema.problems import FieldProblem, forbidden

PRIORITY_CLASSES = ("scheduling.k8s.io", "priorityclasses")
_MAX_USER_PRIORITY = 1_000_000_000

SYSTEM_PRIORITY_CLASSES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


class PriorityClassStrategy(Strategy):
    struct = "scheduling.v1.PriorityClass"
    namespaced = False
    has_generation = True

    def set_defaults(self, obj: JSON) -> None:
        obj.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        obj["metadata"]["generation"] = old["metadata"].get("generation", 1)

    def validate(self, obj: JSON) -> list[FieldProblem]:
        problems = super().validate(obj)
        name, value = obj["metadata"].get("name", ""), obj["value"]
        if name.startswith("system-"):
            problems += _validate_system_class(name, value, obj)
        elif value > _MAX_USER_PRIORITY:
            detail = f"maximum allowed value of a user defined priority is {_MAX_USER_PRIORITY}"
            problems.append(forbidden("value", detail))
        return problems + validation.validate_preemption_policy(obj["preemptionPolicy"], "preemptionPolicy")

    def validate_transition(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        problems: list[FieldProblem] = []
        if obj["value"] != old["value"]:
            problems.append(forbidden("value", "may not be changed in an update."))
        return problems + metadata.validate_immutable(
            obj["preemptionPolicy"], old["preemptionPolicy"], "preemptionPolicy"
        )


def _validate_system_class(name: str, value: int, obj: JSON) -> list[FieldProblem]:
    if name not in SYSTEM_PRIORITY_CLASSES:
        detail = f"{name} is not a known system priority class"
    elif value != SYSTEM_PRIORITY_CLASSES[name]:
        detail = f"value of {name} PriorityClass must be {SYSTEM_PRIORITY_CLASSES[name]}"
    elif obj.get("globalDefault"):
        detail = f"globalDefault of {name} PriorityClass must be false"
    else:
        return []
    reserved = "priority class names with 'system-' prefix are reserved for system use only. error: "
    return [forbidden("metadata.name", reserved + detail)]
