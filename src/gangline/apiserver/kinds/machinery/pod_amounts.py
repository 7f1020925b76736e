"""The resources of a whole pod, of its containers and init containers: by its spec, and as a quota counts them."""

from collections.abc import Iterable, Mapping

from gangline.api.meta import JSON
from gangline.api.quantity import Quantity, add_resources
from gangline.apiserver.kinds.machinery.quantities import HUGE_PAGES_PREFIX, parse_quantity

Amounts = dict[str, Quantity]
"""A resource list with its text parsed."""

_POD_LEVEL_RESOURCES = ("cpu", "memory")


def parse_amounts(texts: Mapping[str, str] | None) -> Amounts:
    """The amounts of a resource list whose text is canonical."""
    return {name: parse_quantity(text) for name, text in (texts or {}).items()}


def container_amounts(spec: JSON, field: str) -> Amounts:
    """The requests or limits of all containers together, by the spec."""
    return _of_containers(spec, {}, field, resize_infeasible=False)


def pod_amounts(spec: JSON, field: str) -> Amounts:
    """The requests or limits of the pod by its spec alone, without overhead, as limit ranges see it."""
    total = container_amounts(spec, field)
    pod_level = (spec.get("resources") or {}).get(field) or {}
    return total | parse_amounts({name: text for name, text in pod_level.items() if name in _POD_LEVEL_RESOURCES})


def charged_amounts(pod: JSON, field: str) -> Amounts:
    """The requests or limits that a pod is charged for: with its overhead, and with what a resize has not freed yet."""
    spec, status = pod["spec"], pod.get("status") or {}
    total = _of_containers(spec, _status_resources(status), field, resize_infeasible=_is_resize_infeasible(status))
    pod_level = (spec.get("resources") or {}).get(field) or {}
    total |= parse_amounts({name: text for name, text in pod_level.items() if _is_pod_level_resource(name)})
    overhead = parse_amounts(spec.get("overhead"))
    if field == "limits":
        overhead = {name: amount for name, amount in overhead.items() if total.get(name)}
    return add_resources(total, overhead)


def has_pod_level_resources(spec: JSON) -> bool:
    """Whether requests or limits are set for the pod as a whole."""
    resources = spec.get("resources") or {}
    names = [*(resources.get("requests") or ()), *(resources.get("limits") or ())]
    return any(_is_pod_level_resource(name) for name in names)


def containers_of(spec: JSON) -> Iterable[JSON]:
    """The containers, then the init containers."""
    return (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))


def _is_pod_level_resource(name: str) -> bool:
    return name in _POD_LEVEL_RESOURCES or name.startswith(HUGE_PAGES_PREFIX)


def _of_containers(
    spec: JSON, in_status: Mapping[str, Mapping[str, Amounts]], field: str, *, resize_infeasible: bool
) -> Amounts:
    """The sum of the containers and sidecars, or what the start needs with its init containers if that is more."""

    def amounts(container: JSON) -> Amounts:
        in_spec = parse_amounts((container.get("resources") or {}).get(field))
        reported = in_status.get(container["name"])
        if reported is None:
            return in_spec
        return _larger({} if resize_infeasible else in_spec, reported[field])

    total: Amounts = {}
    for container in spec.get("containers") or ():
        total = add_resources(total, amounts(container))
    sidecars: Amounts = {}
    start: Amounts = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            total = add_resources(total, amounts(container))
            needed = sidecars = add_resources(sidecars, amounts(container))
        else:
            own = parse_amounts((container.get("resources") or {}).get(field))
            needed = add_resources(own, sidecars)
        start = _larger(start, needed)
    return _larger(total, start)


def _larger(a: Amounts, b: Amounts) -> Amounts:
    """The larger amount of each resource."""
    return {**a, **{name: amount for name, amount in b.items() if name not in a or amount > a[name]}}


def _status_resources(status: JSON) -> dict[str, Mapping[str, Amounts]]:
    """Requests and limits that running containers have, by their names; only of containers that report them."""
    reported: dict[str, Mapping[str, Amounts]] = {}
    for container in (*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())):
        if resources := container.get("resources"):
            requests = _larger(
                parse_amounts(resources.get("requests")), parse_amounts(container.get("allocatedResources"))
            )
            reported[container["name"]] = {"requests": requests, "limits": parse_amounts(resources.get("limits"))}
    return reported


def _is_resize_infeasible(status: JSON) -> bool:
    conditions = status.get("conditions") or ()
    reasons = [item.get("reason") for item in conditions if item.get("type") == "PodResizePending"]
    return reasons[:1] == ["Infeasible"]
