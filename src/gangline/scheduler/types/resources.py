"""Amounts as whole numbers: cpu in thousandths, everything else in units, rounded up as kube-scheduler does."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from gangline.api.quantity import Quantity, QuantityFormat

Amounts: TypeAlias = Mapping[str, int]
"""Resource -> amount, in the units of vectors."""
CPU: Final = "cpu"
PODS: Final = "pods"
MAX_AMOUNT: Final = 1 << 53
"""The largest amount: eight pebibytes of memory. Sums of a thousand of them are exact in 64 bits, and a thoughtless
`9E` is merely more than any node has."""


@lru_cache(maxsize=4096)
def nano_units(text: str) -> int:
    return Quantity.parse(text).nanos


def whole_units(resource: str, amount: int) -> int:
    """Nano-units in the unit of the resource, rounded up; `MAX_AMOUNT` at most."""
    return min(-(-amount // (10**6 if resource == CPU else 10**9)), MAX_AMOUNT)


def amount(resource: str, text: str) -> int:
    """A quantity in the unit of its resource. Raises `QuantityError`."""
    return whole_units(resource, nano_units(text))


def amounts(resources: Mapping[str, str]) -> dict[str, int]:
    """A resource list with its quantities in their units. Raises `QuantityError`."""
    return {name: amount(name, text) for name, text in resources.items()}


def as_quantity(resource: str, amount: int) -> str:
    """An amount as text for people and for status: `1500m`, `64Gi`, `8`."""
    if resource == CPU:
        return str(Quantity(amount * 10**6))
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return str(Quantity(amount * 10**9, QuantityFormat.BINARY))
    return str(amount)


def add_amounts(total: dict[str, int], amounts: Amounts, times: int = 1) -> None:
    """Add `times` the amounts to the total, in place."""
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount * times


def lacking_resource(needed: Amounts, room: Amounts) -> str | None:
    """The first resource, by name, of which there is less than needed."""
    return next((name for name in sorted(needed) if needed[name] > room.get(name, 0)), None)
