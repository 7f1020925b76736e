"""Priority levels of requests."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.declared.strategy import DeclaredStrategy
from gangline.schema.problems import FieldProblem, invalid


class PriorityLevelStrategy(DeclaredStrategy):
    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        problems, kind = super().validate_content(obj), obj["spec"].get("type")
        if (kind == "Exempt") is not (obj["metadata"].get("name") == "exempt"):
            problems.append(invalid("spec.type", kind, "must be 'Exempt' if and only if `name` is 'exempt'"))
        return problems
