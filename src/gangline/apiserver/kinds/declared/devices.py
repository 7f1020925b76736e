"""Claims of devices."""

from collections.abc import Iterable

from gangline.api.meta import JSON
from gangline.apiserver.kinds.declared.strategy import DeclaredStrategy


class ClaimStrategy(DeclaredStrategy):
    def set_defaults(self, obj: JSON) -> None:
        super().set_defaults(obj)
        _set_counts(obj["spec"])


class ClaimTemplateStrategy(DeclaredStrategy):
    def set_defaults(self, obj: JSON) -> None:
        super().set_defaults(obj)
        _set_counts(obj["spec"]["spec"])


def _set_counts(spec: JSON) -> None:
    """Who asks for a number of devices and does not say how many gets one."""
    for request in (spec.get("devices") or {}).get("requests") or ():
        for choice in _choices(request):
            if choice.get("allocationMode") == "ExactCount" and not choice.get("count"):
                choice["count"] = 1


def _choices(request: JSON) -> Iterable[JSON]:
    exactly = request.get("exactly")
    return [*([exactly] if exactly is not None else []), *(request.get("firstAvailable") or ())]
