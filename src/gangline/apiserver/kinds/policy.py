"""Pod disruption budgets."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, metadata, selectors
from gangline.apiserver.kinds.machinery.metadata import validate_non_negative
from gangline.apiserver.kinds.machinery.strategy import StatusStrategy, Strategy
from gangline.apiserver.kinds.pod import templates
from gangline.schema.problems import FieldProblem, invalid, unsupported


class DisruptionBudgetStatusStrategy(StatusStrategy):
    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return self.validate_status(obj, old)

    def validate_status(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        problems: list[FieldProblem] = []
        for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
            problems += validate_non_negative(f"status.{name}", obj["status"].get(name, 0))
        return problems


class DisruptionBudgetStrategy(Strategy):
    struct = "policy.v1.PodDisruptionBudget"
    has_status = True
    status_strategy = DisruptionBudgetStatusStrategy
    has_generation = True

    def validate(self, obj: JSON) -> list[FieldProblem]:
        meta = obj["metadata"]
        return self.validate_content(obj) or metadata.validate_object_meta(
            meta, formats.path_segment_errors, namespaced=True
        )

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return self.validate_content(obj)

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        spec = obj["spec"]
        problems: list[FieldProblem] = []
        if "minAvailable" in spec and "maxUnavailable" in spec:
            problems.append(invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
        for name in ("minAvailable", "maxUnavailable"):
            if name in spec:
                problems += templates.validate_int_or_percent(spec[name], f"spec.{name}")
                problems += templates.validate_percent_limit(spec[name], f"spec.{name}")
        problems += selectors.validate_label_selector(spec.get("selector"), "spec.selector")
        supported = ("AlwaysAllow", "IfHealthyBudget")
        policy = spec.get("unhealthyPodEvictionPolicy")
        if policy is not None and policy not in supported:
            problems.append(unsupported("spec.unhealthyPodEvictionPolicy", policy, supported))
        return problems
