"""Amounts as whole numbers: thousandths of cpu, units of everything else, rounded up as kube-scheduler rounds."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from gangline.api.quantity import Family, Quantity
from gangline.api.scheduler_views import RESIZE_PENDING, Container, ContainerStatus, Pod

CPU: Final = "cpu"
PODS: Final = "pods"
LARGEST: Final = 1 << 53
"""No amount counts as more: eight pebibytes of memory. So sums over a thousand of them are exact in 64 bits, and what
somebody writes without thinking (`9E`) is only more than anybody has."""
# Nano-units: sums stay exact, and only a pod's total is rounded.
Nanos = dict[str, int]


@lru_cache(maxsize=4096)
def nanos(text: str) -> int:
    return Quantity.parse(text).nanos


def whole(resource: str, amount: int) -> int:
    """Nano-units in the unit of a resource, rounded up; `LARGEST` at most."""
    return min(-(-amount // (10**6 if resource == CPU else 10**9)), LARGEST)


def amount(resource: str, text: str) -> int:
    """A quantity as written in the unit of its resource. Raises `QuantityError`."""
    return whole(resource, nanos(text))


def amounts(resources: Mapping[str, str]) -> dict[str, int]:
    """A resource list as written. Raises `QuantityError`."""
    return {name: amount(name, text) for name, text in resources.items()}


def as_quantity(resource: str, amount: int) -> str:
    """An amount as text for people and for status: `1500m`, `64Gi`, `8`."""
    if resource == CPU:
        return str(Quantity(amount * 10**6))
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return str(Quantity(amount * 10**9, Family.BINARY))
    return str(amount)


def requests(pod: Pod) -> tuple[tuple[str, int], ...]:
    """What a pod takes of its node, as kube-scheduler sums it; one of `pods` included, zeros left out.

    All containers and sidecars together, or the hungriest step of starting if that is more; what the pod asks for
    as a whole instead, where it does; and the overhead on top. A container that is being resized counts with the
    larger of what it has and what it asks for.
    """
    total = _containers(pod)
    if pod.spec.resources is not None:
        total.update(
            (name, nanos(text))
            for name, text in pod.spec.resources.requests.items()
            if name in (CPU, "memory") or name.startswith("hugepages-")
        )
    _add(total, _nanos(pod.spec.overhead))
    found = {name: whole(name, amount) for name, amount in total.items()}
    found[PODS] = 1
    return tuple(sorted((name, amount) for name, amount in found.items() if amount))


def _containers(pod: Pod) -> Nanos:
    statuses = _resized(pod)
    total: Nanos = {}
    for container in pod.spec.containers:
        _add(total, _asked(pod, container, statuses))
    sidecars: Nanos = {}
    starting: Nanos = {}
    for container in pod.spec.init_containers:
        if container.restart_policy == "Always":
            asked = _asked(pod, container, statuses)
            _add(total, asked)
            _add(sidecars, asked)
            _raise(starting, sidecars)
        else:
            asked = _nanos(container.resources.requests)
            _add(asked, sidecars)
            _raise(starting, asked)
    _raise(total, starting)
    return total


def _resized(pod: Pod) -> dict[str, ContainerStatus]:
    """What the kubelet says of containers, where it says what they have."""
    status = pod.status
    if not status.container_statuses and not status.init_container_statuses:
        return {}
    every: Iterable[ContainerStatus] = (*status.container_statuses, *status.init_container_statuses)
    return {each.name: each for each in every if each.resources is not None}


def _asked(pod: Pod, container: Container, statuses: Mapping[str, ContainerStatus]) -> Nanos:
    asked = _nanos(container.resources.requests)
    status = statuses.get(container.name)
    if status is None or status.resources is None:
        return asked
    if any(each.type == RESIZE_PENDING and each.reason == "Infeasible" for each in pod.status.conditions):
        asked = {}
    _raise(asked, _nanos(status.resources.requests))
    _raise(asked, _nanos(status.allocated_resources))
    return asked


def _nanos(resources: Mapping[str, str]) -> Nanos:
    return {name: nanos(text) for name, text in resources.items()}


def _add(total: Nanos, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(total: Nanos, other: Mapping[str, int]) -> None:
    for name, amount in other.items():
        if amount > total.get(name, 0):
            total[name] = amount
