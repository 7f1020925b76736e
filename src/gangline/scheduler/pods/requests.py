"""The resource requests of a pod, summed as kube-scheduler sums them."""

from collections.abc import Iterable, Mapping

from gangline.api.scheduler_views import POD_RESIZE_PENDING, Pod, PodContainer, PodContainerStatus
from gangline.scheduler.types.resources import CPU, PODS, add_amounts, nano_units, whole_units

# In nano-units, so that sums are exact and only a pod's total is rounded.
NanoAmounts = dict[str, int]


def pod_requests(pod: Pod) -> tuple[tuple[str, int], ...]:
    """The resources a pod takes from its node, as kube-scheduler sums them; includes 1 of `pods`, without zeros.

    Containers and sidecars together, or the largest step of initialization if that is more; pod-level requests replace
    the sum where they are set; the overhead is added. A container that is being resized counts with the larger of what
    it has and what it requests.
    """
    total = _container_requests(pod)
    if pod.spec.resources is not None:
        total.update(
            (name, nano_units(text))
            for name, text in pod.spec.resources.requests.items()
            if name in (CPU, "memory") or name.startswith("hugepages-")
        )
    add_amounts(total, _nano_amounts(pod.spec.overhead))
    amounts = {name: whole_units(name, amount) for name, amount in total.items()}
    amounts[PODS] = 1
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))


def _container_requests(pod: Pod) -> NanoAmounts:
    statuses = _resized_statuses(pod)
    total: NanoAmounts = {}
    for container in pod.spec.containers:
        add_amounts(total, _container_request(pod, container, statuses))
    sidecars: NanoAmounts = {}
    starting: NanoAmounts = {}
    for container in pod.spec.init_containers:
        if container.restart_policy == "Always":
            request = _container_request(pod, container, statuses)
            add_amounts(total, request)
            add_amounts(sidecars, request)
            _raise_to(starting, sidecars)
        else:
            request = _nano_amounts(container.resources.requests)
            add_amounts(request, sidecars)
            _raise_to(starting, request)
    _raise_to(total, starting)
    return total


def _resized_statuses(pod: Pod) -> dict[str, PodContainerStatus]:
    """Container statuses that report actual resources, by container name."""
    status = pod.status
    if not status.container_statuses and not status.init_container_statuses:
        return {}
    statuses: Iterable[PodContainerStatus] = (*status.container_statuses, *status.init_container_statuses)
    return {each.name: each for each in statuses if each.resources is not None}


def _container_request(pod: Pod, container: PodContainer, statuses: Mapping[str, PodContainerStatus]) -> NanoAmounts:
    request = _nano_amounts(container.resources.requests)
    status = statuses.get(container.name)
    if status is None or status.resources is None:
        return request
    if any(each.type == POD_RESIZE_PENDING and each.reason == "Infeasible" for each in pod.status.conditions):
        request = {}
    _raise_to(request, _nano_amounts(status.resources.requests))
    _raise_to(request, _nano_amounts(status.allocated_resources))
    return request


def _nano_amounts(resources: Mapping[str, str]) -> NanoAmounts:
    return {name: nano_units(text) for name, text in resources.items()}


def _raise_to(total: NanoAmounts, other: Mapping[str, int]) -> None:
    for name, amount in other.items():
        if amount > total.get(name, 0):
            total[name] = amount
