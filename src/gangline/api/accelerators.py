"""Short names of accelerators: `gpu` stands for the resource that a device plugin offers. Pure."""

from collections.abc import Mapping
from typing import TypeVar

V = TypeVar("V")

GPU_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
"""The resource of each vendor's GPUs."""
DEFAULT_GPU_RESOURCE = GPU_RESOURCES["nvidia"]
SHORT_NAME = "gpu"


def resource_name(name: str, gpu_resource: str = DEFAULT_GPU_RESOURCE) -> str:
    """The full name of a resource: `gpu` becomes `gpu_resource`, every other name stays."""
    return gpu_resource if name.lower() == SHORT_NAME else name


def with_resource_names(amounts: Mapping[str, V], gpu_resource: str = DEFAULT_GPU_RESOURCE) -> dict[str, V]:
    """Amounts by the full names of their resources."""
    return {resource_name(name, gpu_resource): amount for name, amount in amounts.items()}
