"""Resource lists: canonical quantities, and which resources and amounts containers, quotas and nodes may name."""

from functools import lru_cache

from gangline.api.meta import JSON
from gangline.api.quantity import Quantity
from gangline.apiserver.kinds.machinery import formats
from gangline.schema.problems import (
    FieldProblem,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_found,
    required,
    unsupported,
)

_NANOS_PER_MILLI = 10**6
HUGE_PAGES_PREFIX = "hugepages-"
_CONTAINER_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
COUNTED_RESOURCES = frozenset(
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
QUOTA_RESOURCES = COUNTED_RESOURCES | {
    f"{prefix}{name}"
    for prefix, name in [
        *((prefix, name) for prefix in ("", "requests.", "limits.") for name in _CONTAINER_RESOURCES),
        ("requests.", "storage"),
    ]
}
_STANDARD_RESOURCES = QUOTA_RESOURCES | {"storage"}
NOT_INTEGER = "must be an integer"


@lru_cache(4096)
def parse_quantity(text: str) -> Quantity:
    """A quantity from a cache: the same few amounts come with every pod. Raises `QuantityError`."""
    return Quantity.parse(text)


@lru_cache(4096)
def _canonical_quantity_text(text: str, *, milli: bool) -> str:
    amount = Quantity.parse(text.strip())
    if milli and amount.nanos % _NANOS_PER_MILLI:
        amount = Quantity(-(-amount.nanos // _NANOS_PER_MILLI) * _NANOS_PER_MILLI, amount.family)
    return str(amount)


def canonical_quantity(value: str | float) -> str:
    """A quantity as the server writes it. Raises `QuantityError`."""
    return _canonical_quantity_text(value if isinstance(value, str) else repr(value), milli=False)


def canonicalize_quantities(amounts: JSON) -> None:
    """Make the quantities of a resource list canonical, in place, rounded up to milli units. Raises `QuantityError`."""
    for name, value in amounts.items():
        text = "0" if value is None else value if isinstance(value, str) else repr(value)
        amounts[name] = _canonical_quantity_text(text, milli=True)


@lru_cache(1024)
def is_native_resource(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


@lru_cache(1024)
def is_extended_resource(name: str) -> bool:
    """Whether a resource is of a vendor, such as `nvidia.com/gpu`, and counted in whole numbers."""
    return (
        not is_native_resource(name)
        and not name.startswith("requests.")
        and not formats.qualified_name_errors(f"requests.{name}")
    )


def is_overcommit_allowed(name: str) -> bool:
    """Whether a request may be less than the limit."""
    return is_native_resource(name) and not name.startswith(HUGE_PAGES_PREFIX)


def _is_standard_resource(name: str) -> bool:
    return name in _STANDARD_RESOURCES or name.startswith((HUGE_PAGES_PREFIX, f"requests.{HUGE_PAGES_PREFIX}"))


@lru_cache(1024)
def _resource_name_errors(name: str) -> tuple[str, ...]:
    errors = formats.qualified_name_errors(name)
    if errors or "/" in name or _is_standard_resource(name):
        return errors
    return ("must be a standard resource type or fully qualified",)


@lru_cache(1024)
def _container_resource_errors(name: str) -> tuple[str, ...]:
    errors = _resource_name_errors(name)
    if "/" not in name:
        if name not in _CONTAINER_RESOURCES and not name.startswith(HUGE_PAGES_PREFIX):
            errors = (*errors, "must be a standard resource for containers")
    elif not is_native_resource(name) and not is_extended_resource(name):
        errors = (*errors, "doesn't follow extended resource name standard")
    return errors


def is_quota_resource(name: str) -> bool:
    """Whether Kubernetes defines a resource of quotas: all but extended resources and counts of other kinds."""
    return name in QUOTA_RESOURCES or name.startswith((HUGE_PAGES_PREFIX, f"requests.{HUGE_PAGES_PREFIX}"))


def validate_quota_resource_name(name: str, path: str) -> list[FieldProblem]:
    """Problems of the name of a resource in a ResourceQuota."""
    errors = _resource_name_errors(name)
    if "/" not in name and not is_quota_resource(name):
        errors = (*errors, "must be a standard resource for quota")
    return invalid_each(path, name, errors)


def validate_resource_name(name: str, path: str) -> list[FieldProblem]:
    """Problems of the name of a resource where no narrower rule applies."""
    return invalid_each(path, name, _resource_name_errors(name))


@lru_cache(4096)
def _resource_value_errors(name: str, text: str) -> tuple[str, ...]:
    amount = parse_quantity(text)
    errors: tuple[str, ...] = ()
    if amount.nanos < 0:
        errors = ("must be greater than or equal to 0",)
    if (name in COUNTED_RESOURCES or is_extended_resource(name)) and amount.milli() % 1000:
        errors = (*errors, NOT_INTEGER)
    return errors


def validate_resource_value(name: str, text: str, path: str) -> list[FieldProblem]:
    """Problems of an amount: negative, or fractional where the resource is counted."""
    return invalid_each(path, text, _resource_value_errors(name, text))


@lru_cache(1024)
def _is_partial_huge_page(name: str, text: str) -> bool:
    page = parse_quantity(name.removeprefix(HUGE_PAGES_PREFIX))
    return page.value() <= 0 or parse_quantity(text).value() % page.value() != 0


def _validate_resource_list(amounts: JSON, path: str, *, pod_level: bool) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for name, text in amounts.items():
        messages = _resource_name_errors(name) if pod_level else _container_resource_errors(name)
        bad = _resource_value_errors(name, text)
        huge = name.startswith(HUGE_PAGES_PREFIX)
        if not messages and not bad and not huge and not pod_level:
            continue
        item_path = f"{path}[{name}]"
        problems += invalid_each(item_path, name, messages)
        if pod_level and not messages and name not in {"cpu", "memory"} and not huge:
            problems.append(unsupported(item_path, name, ("cpu", HUGE_PAGES_PREFIX, "memory")))
        problems += invalid_each(item_path, text, bad)
        if huge and _is_partial_huge_page(name, text):
            problems.append(invalid(item_path, text, f"{text} is not positive integer multiple of {name}"))
    return problems


def validate_resource_requirements(
    resources: JSON, path: str, claims: frozenset[str], *, pod_level: bool = False
) -> list[FieldProblem]:
    """Problems of the `resources` of a container or pod, with canonical quantities."""
    limits: JSON = resources.get("limits") or {}
    requests: JSON = resources.get("requests") or {}
    problems: list[FieldProblem] = []
    if not pod_level and _are_valid_resources(tuple(limits.items()), tuple(requests.items())):
        limits, requests = {}, {}
    if limits:
        problems += _validate_resource_list(limits, f"{path}.limits", pod_level=pod_level)
    if requests:
        problems += _validate_requests(requests, limits, path, pod_level=pod_level)
    names = [*limits, *requests]
    if any(name.startswith(HUGE_PAGES_PREFIX) for name in names) and not {"cpu", "memory"} & set(names):
        problems.append(forbidden(path, "HugePages require cpu or memory"))
    if "claims" in resources:
        problems += _validate_claim_names(resources["claims"], f"{path}.claims", claims)
    return problems


@lru_cache(1024)
def _are_valid_resources(limits: tuple[tuple[str, str], ...], requests: tuple[tuple[str, str], ...]) -> bool:
    """Whether a container may have these resources. Cached, because the pods of a job have the same."""
    problems = _validate_resource_list(dict(limits), "", pod_level=False)
    problems += _validate_requests(dict(requests), dict(limits), "", pod_level=False)
    names = {name for name, _ in (*limits, *requests)}
    return not problems and not any(name.startswith(HUGE_PAGES_PREFIX) for name in names)


def _validate_requests(requests: JSON, limits: JSON, path: str, *, pod_level: bool) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    field_path = f"{path}.requests"
    for name, text in requests.items():
        problems += _validate_resource_list({name: text}, field_path, pod_level=pod_level)
        limit = limits.get(name)
        if limit is None:
            if not is_overcommit_allowed(name):
                problems.append(required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
        elif limit != text:
            problems += _validate_request_limit(name, text, limit, field_path)
    return problems


def _validate_request_limit(name: str, text: str, limit: str, path: str) -> list[FieldProblem]:
    request, most = parse_quantity(text), parse_quantity(limit)
    if request != most and not is_overcommit_allowed(name):
        return [invalid(path, text, f"must be equal to {name} limit of {limit}")]
    if request > most:
        return [invalid(path, text, f"must be less than or equal to {name} limit of {limit}")]
    return []


def _validate_claim_names(claims: list[JSON], path: str, pod_claims: frozenset[str]) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    earlier_claims: set[str] = set()
    for index, claim in enumerate(claims):
        name, item_path = claim.get("name", ""), f"{path}[{index}]"
        if not name:
            problems.append(required(item_path))
            continue
        request = claim.get("request", "")
        if request and name not in earlier_claims:
            problems += invalid_each(f"{item_path}.request", request, formats.dns_label_errors(request))
        key = f"{name}/{request}" if request else name
        if (
            name in earlier_claims
            or key in earlier_claims
            or (key == name and any(earlier.startswith(f"{name}/") for earlier in earlier_claims))
        ):
            problems.append(duplicate(item_path, key if name not in earlier_claims else name))
        earlier_claims.add(key)
        if name not in pod_claims:
            problems.append(_unknown_claim(item_path, name, pod_claims))
    return problems


def _unknown_claim(path: str, name: str, pod_claims: frozenset[str]) -> FieldProblem:
    detail = f": {', '.join(sorted(pod_claims))}" if pod_claims else " which is empty"
    return not_found(path, name, f"must be one of the names in pod.spec.resourceClaims{detail}")


def validate_container_resource_name(name: str, path: str) -> list[FieldProblem]:
    """Problems of the name of a resource that containers request."""
    return invalid_each(path, name, _container_resource_errors(name))
