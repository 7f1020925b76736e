"""CSI drivers."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.declared.strategy import DeclaredStrategy
from gangline.schema.problems import FieldProblem, duplicate, invalid

_MIN_SECONDS, _MAX_SECONDS = 600, 2**32


class CsiDriverStrategy(DeclaredStrategy):
    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        problems, audiences = super().validate_content(obj), set[str]()
        for index, request in enumerate(obj["spec"].get("tokenRequests", ())):
            path, seconds = f"spec.tokenRequests[{index}]", request.get("expirationSeconds")
            if request["audience"] in audiences:
                problems.append(duplicate(f"{path}.audience", request["audience"]))
                continue
            audiences.add(request["audience"])
            if seconds is not None and seconds < _MIN_SECONDS:
                detail = "may not specify a duration less than 10 minutes"
                problems.append(invalid(f"{path}.expirationSeconds", seconds, detail))
            if seconds is not None and seconds > _MAX_SECONDS:
                detail = "may not specify a duration larger than 2^32 seconds"
                problems.append(invalid(f"{path}.expirationSeconds", seconds, detail))
        return problems
