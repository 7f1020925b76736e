"""`metrics.k8s.io`: the CPU and memory that pods use, where a server has it."""

from typing import Any, NamedTuple

from gangline.api.meta import JSON
from gangline.api.quantity import Quantity, QuantityError, add_resources, parse_resources
from gangline.api.scheme import Resource

POD_METRICS: Resource[JSON] = Resource("metrics.k8s.io", "v1beta1", "PodMetrics", "pods", dict[str, Any])
_ZERO = Quantity.parse("0")


class PodUsage(NamedTuple):
    """The CPU cores and the bytes of memory that a pod uses."""

    cores: float = 0.0
    memory: int = 0

    def plus(self, cores: float, memory: int) -> "PodUsage":
        """The usage with that of another container."""
        return PodUsage(self.cores + cores, self.memory + memory)


def pod_usage(metrics: JSON) -> PodUsage:
    """What all containers of a PodMetrics use; quantities that cannot be read count as nothing."""
    total: dict[str, Quantity] = {}
    for container in metrics.get("containers") or ():
        try:
            total = add_resources(total, parse_resources(container.get("usage") or {}))
        except QuantityError:
            continue
    cores, memory = (total.get(name, _ZERO).as_fraction() for name in ("cpu", "memory"))
    return PodUsage(float(cores), int(memory))
