"""Quantities of resource lists: their canonical text, their values and what containers, quotas and nodes may name."""

from functools import lru_cache

from gangline.api.meta import JSON
from gangline.api.quantity import Quantity
from gangline.apiserver.kinds.machinery import formats
from gangline.apiserver.kinds.machinery.problems import (
    duplicate,
    each,
    forbidden,
    invalid,
    not_found,
    required,
    unsupported,
)
from gangline.schema.problems import Problem

_MILLI = 10**6
HUGE_PAGES = "hugepages-"
_FOR_CONTAINERS = frozenset({"cpu", "memory", "ephemeral-storage"})
COUNTED = frozenset(
    {
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    }
)
FOR_QUOTAS = COUNTED | {
    f"{prefix}{name}"
    for prefix, name in [
        *((prefix, name) for prefix in ("", "requests.", "limits.") for name in _FOR_CONTAINERS),
        ("requests.", "storage"),
    ]
}
_STANDARD = FOR_QUOTAS | {"storage"}
NOT_WHOLE = "must be an integer"


@lru_cache(4096)
def parsed(text: str) -> Quantity:
    """Remembered, for the same few amounts come back with every pod. Raises `QuantityError`."""
    return Quantity.parse(text)


@lru_cache(4096)
def _canonical_text(text: str, *, milli: bool) -> str:
    amount = Quantity.parse(text.strip())
    if milli and amount.nanos % _MILLI:
        amount = Quantity(-(-amount.nanos // _MILLI) * _MILLI, amount.family)
    return str(amount)


def canonical(value: str | float) -> str:
    """A quantity as the server writes it. Raises `QuantityError`."""
    return _canonical_text(value if isinstance(value, str) else repr(value), milli=False)


def canonical_amounts(amounts: JSON) -> None:
    """A resource list, in place. Finer than a thousandth is rounded up. Raises `QuantityError`."""
    for name, value in amounts.items():
        text = "0" if value is None else value if isinstance(value, str) else repr(value)
        amounts[name] = _canonical_text(text, milli=True)


@lru_cache(1024)
def is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


@lru_cache(1024)
def is_extended(name: str) -> bool:
    """`nvidia.com/gpu`: whole numbers of a vendor's things."""
    return (
        not is_native(name)
        and not name.startswith("requests.")
        and not formats.qualified_name(f"requests.{name}")
    )


def is_overcommitted(name: str) -> bool:
    """Whether a request may be less than the limit."""
    return is_native(name) and not name.startswith(HUGE_PAGES)


def _is_standard(name: str) -> bool:
    return name in _STANDARD or name.startswith((HUGE_PAGES, f"requests.{HUGE_PAGES}"))


@lru_cache(1024)
def _name_messages(name: str) -> tuple[str, ...]:
    said = formats.qualified_name(name)
    if said or "/" in name or _is_standard(name):
        return said
    return ("must be a standard resource type or fully qualified",)


@lru_cache(1024)
def _container_name_messages(name: str) -> tuple[str, ...]:
    said = _name_messages(name)
    if "/" not in name:
        if name not in _FOR_CONTAINERS and not name.startswith(HUGE_PAGES):
            said = (*said, "must be a standard resource for containers")
    elif not is_native(name) and not is_extended(name):
        said = (*said, "doesn't follow extended resource name standard")
    return said


def quota_name(name: str, path: str) -> list[Problem]:
    """Of a resource in a ResourceQuota."""
    said = _name_messages(name)
    if (
        "/" not in name
        and name not in FOR_QUOTAS
        and not name.startswith((HUGE_PAGES, f"requests.{HUGE_PAGES}"))
    ):
        said = (*said, "must be a standard resource for quota")
    return each(path, name, said)


def resource_name(name: str, path: str) -> list[Problem]:
    """Of a resource wherever no narrower rule holds."""
    return each(path, name, _name_messages(name))


@lru_cache(4096)
def _value_messages(name: str, text: str) -> tuple[str, ...]:
    amount = parsed(text)
    said: tuple[str, ...] = ()
    if amount.nanos < 0:
        said = ("must be greater than or equal to 0",)
    if (name in COUNTED or is_extended(name)) and amount.milli() % 1000:
        said = (*said, NOT_WHOLE)
    return said


def resource_value(name: str, text: str, path: str) -> list[Problem]:
    """An amount is not negative, and whole where things are counted."""
    return each(path, text, _value_messages(name, text))


@lru_cache(1024)
def _indivisible(name: str, text: str) -> bool:
    page = parsed(name.removeprefix(HUGE_PAGES))
    return page.value() <= 0 or parsed(text).value() % page.value() != 0


def _named(amounts: JSON, path: str, *, pod_level: bool) -> list[Problem]:
    found: list[Problem] = []
    for name, text in amounts.items():
        messages = _name_messages(name) if pod_level else _container_name_messages(name)
        bad = _value_messages(name, text)
        huge = name.startswith(HUGE_PAGES)
        if not messages and not bad and not huge and not pod_level:
            continue
        here = f"{path}[{name}]"
        found += each(here, name, messages)
        if pod_level and not messages and name not in {"cpu", "memory"} and not huge:
            found.append(unsupported(here, name, ("cpu", HUGE_PAGES, "memory")))
        found += each(here, text, bad)
        if huge and _indivisible(name, text):
            found.append(invalid(here, text, f"{text} is not positive integer multiple of {name}"))
    return found


def requirements(
    resources: JSON, path: str, claims: frozenset[str], *, pod_level: bool = False
) -> list[Problem]:
    """`resources` of a container or pod, its amounts canonical."""
    limits: JSON = resources.get("limits") or {}
    requests: JSON = resources.get("requests") or {}
    found: list[Problem] = []
    if not pod_level and _are_fine(tuple(limits.items()), tuple(requests.items())):
        limits, requests = {}, {}
    if limits:
        found += _named(limits, f"{path}.limits", pod_level=pod_level)
    if requests:
        found += _named_requests(requests, limits, path, pod_level=pod_level)
    names = [*limits, *requests]
    if any(name.startswith(HUGE_PAGES) for name in names) and not {"cpu", "memory"} & set(names):
        found.append(forbidden(path, "HugePages require cpu or memory"))
    if "claims" in resources:
        found += _claims(resources["claims"], f"{path}.claims", claims)
    return found


@lru_cache(1024)
def _are_fine(limits: tuple[tuple[str, str], ...], requests: tuple[tuple[str, str], ...]) -> bool:
    """Whether a container may ask for this. Pods of a job ask for the same, so the answer is remembered."""
    wrong = _named(dict(limits), "", pod_level=False)
    wrong += _named_requests(dict(requests), dict(limits), "", pod_level=False)
    names = {name for name, _ in (*limits, *requests)}
    return not wrong and not any(name.startswith(HUGE_PAGES) for name in names)


def _named_requests(requests: JSON, limits: JSON, path: str, *, pod_level: bool) -> list[Problem]:
    found: list[Problem] = []
    here = f"{path}.requests"
    for name, text in requests.items():
        found += _named({name: text}, here, pod_level=pod_level)
        limit = limits.get(name)
        if limit is None:
            if not is_overcommitted(name):
                found.append(required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
        elif limit != text:
            found += _compared(name, text, limit, here)
    return found


def _compared(name: str, text: str, limit: str, path: str) -> list[Problem]:
    request, most = parsed(text), parsed(limit)
    if request != most and not is_overcommitted(name):
        return [invalid(path, text, f"must be equal to {name} limit of {limit}")]
    if request > most:
        return [invalid(path, text, f"must be less than or equal to {name} limit of {limit}")]
    return []


def _claims(claims: list[JSON], path: str, known: frozenset[str]) -> list[Problem]:
    found: list[Problem] = []
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        name, here = claim.get("name", ""), f"{path}[{index}]"
        if not name:
            found.append(required(here))
            continue
        request = claim.get("request", "")
        if request and name not in seen:
            found += each(f"{here}.request", request, formats.dns_label(request))
        key = f"{name}/{request}" if request else name
        if name in seen or key in seen or (key == name and any(one.startswith(f"{name}/") for one in seen)):
            found.append(duplicate(here, key if name not in seen else name))
        seen.add(key)
        if name not in known:
            found.append(_unknown_claim(here, name, known))
    return found


def _unknown_claim(path: str, name: str, known: frozenset[str]) -> Problem:
    told = f": {', '.join(sorted(known))}" if known else " which is empty"
    return not_found(path, name, f"must be one of the names in pod.spec.resourceClaims{told}")


def container_name(name: str, path: str) -> list[Problem]:
    """Of a resource containers may ask for."""
    return each(path, name, _container_name_messages(name))
