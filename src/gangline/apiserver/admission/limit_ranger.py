"""Limit ranges: defaults and bounds of the resources of containers, pods and claims."""

from collections.abc import Iterable, Iterator

from gangline.api.meta import JSON
from gangline.api.quantity import ZERO, Quantity
from gangline.apiserver import errors as apierrors
from gangline.apiserver.kinds.machinery.pod_amounts import Amounts, containers_of, parse_amounts, pod_amounts
from gangline.apiserver.kinds.machinery.quantities import parse_quantity
from gangline.apiserver.registry.admission import OBJECT_WRITES, AdmissionPlugin, AdmissionRequest, WriteOperation
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.store.paths import collection_prefix
from gangline.apiserver.store.store import Store

ANNOTATION = "kubernetes.io/limit-ranger"
_MAX_MILLI_VALUE = (2**63 - 1) // 1000
"""The largest amount that is compared in thousandths, as in kube-apiserver; larger ones in whole units."""


class LimitRanger(AdmissionPlugin):
    """Sets the defaults of a namespace's limit ranges in new pods, and refuses pods and claims beyond their bounds."""

    name = "LimitRanger"
    operations = OBJECT_WRITES
    resources = frozenset({("", "pods"), ("", "persistentvolumeclaims")})

    def __init__(self, store: Store) -> None:
        self._store = store

    def admit(self, request: AdmissionRequest) -> None:
        if _is_new_pod(request):
            for limit_range in self._limit_ranges(request.key.namespace):
                set_default_resources(request.obj, limit_range)

    async def validate(self, request: AdmissionRequest) -> None:
        # The resources of a stored pod do not change, except by `resize`.
        if not _is_new_pod(request) and not _is_claim(request):
            return
        if request.old is not None and request.old["metadata"].get("deletionTimestamp"):
            return
        for limit_range in self._limit_ranges(request.key.namespace):
            check = claim_violations if _is_claim(request) else pod_violations
            violations = tuple(dict.fromkeys(check(request.obj, limit_range)))
            if violations:
                text = violations[0] if len(violations) == 1 else f"[{', '.join(violations)}]"
                raise apierrors.forbidden(request.served_kind.resource, request.key.name, text)

    def _limit_ranges(self, namespace: str) -> list[JSON]:
        prefix = collection_prefix("", "limitranges", namespace)
        if not self._store.has(prefix):
            return []
        return [decode_record(record) for record in self._store.range(prefix).records]


def _is_claim(request: AdmissionRequest) -> bool:
    return request.served_kind.resource.plural == "persistentvolumeclaims"


def _is_new_pod(request: AdmissionRequest) -> bool:
    return request.operation is WriteOperation.CREATE and not _is_claim(request)


def set_default_resources(pod: JSON, limit_range: JSON) -> None:
    """Set, in place, the requests and limits that containers do not have, and say so in an annotation."""
    defaults: dict[str, JSON] = {"requests": {}, "limits": {}}
    for limit in _limits(limit_range, "Container"):
        defaults["requests"] |= limit.get("defaultRequest", {})
        defaults["limits"] |= limit.get("default", {})
    notes: list[str] = []
    for containers, label in (("containers", "container"), ("initContainers", "init container")):
        for container in pod["spec"].get(containers) or ():
            for field, missing in _missing_resources(container, defaults).items():
                container.setdefault("resources", {}).setdefault(field, {}).update(missing)
                kind = field.removesuffix("s")
                notes.append(f"{', '.join(sorted(missing))} {kind} for {label} {container['name']}")
    if notes:
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations[ANNOTATION] = f"LimitRanger plugin set: {'; '.join(notes)}"


def _missing_resources(container: JSON, defaults: dict[str, JSON]) -> dict[str, JSON]:
    resources = container.get("resources") or {}
    missing = {
        field: {name: text for name, text in default.items() if name not in (resources.get(field) or {})}
        for field, default in defaults.items()
    }
    return {field: texts for field, texts in missing.items() if texts}


def pod_violations(pod: JSON, limit_range: JSON) -> Iterator[str]:
    """What in the pod is beyond the bounds, in kube-apiserver's words."""
    for limit in limit_range["spec"].get("limits") or ():
        if limit.get("type") == "Container":
            for container in containers_of(pod["spec"]):
                resources = container.get("resources") or {}
                requests, limits = parse_amounts(resources.get("requests")), parse_amounts(resources.get("limits"))
                yield from _violations(limit, requests, limits)
        elif limit.get("type") == "Pod":
            yield from _violations(limit, pod_amounts(pod["spec"], "requests"), pod_amounts(pod["spec"], "limits"))


def claim_violations(claim: JSON, limit_range: JSON) -> Iterator[str]:
    """What in a PersistentVolumeClaim is beyond the bounds, in kube-apiserver's words. Its limits do not count."""
    requests = parse_amounts((claim["spec"].get("resources") or {}).get("requests"))
    for limit in _limits(limit_range, "PersistentVolumeClaim"):
        for name, text in sorted(limit.get("min", {}).items()):
            yield from _below_minimum(limit["type"], name, text, requests, {})
        for name, text in sorted(limit.get("max", {}).items()):
            head = f"maximum {name} usage per {limit['type']} is {text}"
            if name not in requests:
                yield f"{head}.  No request is specified"
            elif _is_greater(requests[name], parse_quantity(text), ZERO):
                yield f"{head}, but request is {requests[name]}"


def _limits(limit_range: JSON, kind: str) -> Iterable[JSON]:
    return (limit for limit in limit_range["spec"].get("limits") or () if limit.get("type") == kind)


def _violations(limit: JSON, requests: Amounts, limits: Amounts) -> Iterator[str]:
    checks = (("min", _below_minimum), ("max", _above_maximum), ("maxLimitRequestRatio", _above_ratio))
    for field, check in checks:
        for name, text in sorted(limit.get(field, {}).items()):
            yield from check(limit["type"], name, text, requests, limits)


def _below_minimum(kind: str, name: str, text: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    head, minimum = f"minimum {name} usage per {kind} is {text}", parse_quantity(text)
    request, limit = requests.get(name), limits.get(name)
    if request is None:
        yield f"{head}.  No request is specified"
    elif _is_greater(minimum, request, limit or ZERO):
        yield f"{head}, but request is {request}"
    elif limit is not None and _is_greater(minimum, limit, request):
        yield f"{head}, but limit is {limit}"


def _above_maximum(kind: str, name: str, text: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    head, maximum = f"maximum {name} usage per {kind} is {text}", parse_quantity(text)
    request, limit = requests.get(name), limits.get(name)
    if limit is None:
        yield f"{head}.  No limit is specified"
    elif _is_greater(limit, maximum, request or ZERO):
        yield f"{head}, but limit is {limit}"
    elif request is not None and _is_greater(request, maximum, limit):
        yield f"{head}, but request is {request}"


def _above_ratio(kind: str, name: str, text: str, requests: Amounts, limits: Amounts) -> Iterator[str]:
    head, maximum = f"{name} max limit to request ratio per {kind} is {text}", parse_quantity(text)
    request, limit, _ = _comparable(requests.get(name, ZERO), limits.get(name, ZERO), maximum)
    if request == 0:
        yield f"{head}, but no request is specified or request is 0"
    elif limit == 0:
        yield f"{head}, but no limit is specified or limit is 0"
    else:
        ratio = limit / request
        precise = maximum.value() <= _MAX_MILLI_VALUE
        if (ratio * 1000 > maximum.milli()) if precise else (ratio > maximum.value()):
            yield f"{head}, but provided ratio is {ratio:.6f}"


def _is_greater(a: Quantity, b: Quantity, other: Quantity) -> bool:
    """Whether a is greater than b. The other amount of the check has a say in the precision."""
    first, second, _ = _comparable(a, b, other)
    return first > second


def _comparable(*amounts: Quantity) -> tuple[int, ...]:
    """The amounts in thousandths, or in whole units if one of them is too large for that."""
    if all(amount.value() <= _MAX_MILLI_VALUE for amount in amounts):
        return tuple(amount.milli() for amount in amounts)
    return tuple(amount.value() for amount in amounts)
