"""ControllerRevisions: what a workload was, kept for good."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import metadata
from gangline.apiserver.kinds.machinery.problems import invalid, required, validate_non_negative
from gangline.apiserver.kinds.machinery.strategy import Strategy
from gangline.schema.problems import FieldProblem


class ControllerRevisionStrategy(Strategy):
    struct = "apps.v1.ControllerRevision"

    def validate(self, obj: JSON) -> list[FieldProblem]:
        return [*super().validate(obj), *_validate_data(obj.get("data"))]

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        return validate_non_negative("revision", obj.get("revision", 0))

    def validate_transition(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        if obj.get("data") == old.get("data"):
            return []
        return [invalid("data", obj.get("data"), metadata.IMMUTABLE_MESSAGE)]


def _validate_data(data: object) -> list[FieldProblem]:
    if data is None:
        return [required("data", "data is mandatory")]
    return [] if isinstance(data, dict) else [required("data", "data must be a valid JSON object")]
