"""Leases."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery.strategy import Strategy
from gangline.schema.problems import FieldProblem, invalid


class LeaseStrategy(Strategy):
    struct = "coordination.v1.Lease"

    def prepare_for_create(self, obj: JSON, now: str) -> None:
        _drop_coordinated_fields(obj["spec"])

    def prepare_for_update(self, obj: JSON, old: JSON) -> None:
        _drop_coordinated_fields(obj["spec"])

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        spec = obj["spec"]
        problems: list[FieldProblem] = []
        seconds, transitions = spec.get("leaseDurationSeconds", 1), spec.get("leaseTransitions", 0)
        if seconds <= 0:
            problems.append(invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
        if transitions < 0:
            problems.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
        return problems


def _drop_coordinated_fields(spec: JSON) -> None:
    """Remove the fields of coordinated leader election, which is disabled in this version of Kubernetes."""
    spec.pop("strategy", None)
    spec.pop("preferredHolder", None)
