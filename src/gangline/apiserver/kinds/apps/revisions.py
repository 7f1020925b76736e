"""ControllerRevisions: what a workload was, kept for good."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import metadata
from gangline.apiserver.kinds.machinery.problems import invalid, negative, required
from gangline.apiserver.kinds.machinery.strategy import Kind
from gangline.schema.problems import Problem


class ControllerRevisionKind(Kind):
    struct = "apps.v1.ControllerRevision"

    def validate(self, obj: JSON) -> list[Problem]:
        return [*super().validate(obj), *_data_problems(obj.get("data"))]

    def check(self, obj: JSON) -> list[Problem]:
        return negative("revision", obj.get("revision", 0))

    def check_update(self, obj: JSON, old: JSON) -> list[Problem]:
        if obj.get("data") == old.get("data"):
            return []
        return [invalid("data", obj.get("data"), metadata.IMMUTABLE)]


def _data_problems(data: object) -> list[Problem]:
    if data is None:
        return [required("data", "data is mandatory")]
    return [] if isinstance(data, dict) else [required("data", "data must be a valid JSON object")]
