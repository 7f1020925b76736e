"""Kubernetes quantities: `500m`, `2`, `1.5Gi`, `1e3`. Exact, ordered, hashable, and never a float.

A quantity is a whole number of nano-units and the family it was written in. Text, value and order are those of
Kubernetes' own `resource.Quantity`, compared over many thousand inputs. It differs where Kubernetes' is lossy:

- `str` is always the canonical form. Kubernetes hands some text back as it came (`+5`, `1.500`, `1E3`).
- Nothing overflows. Kubernetes prints `1000E` as `1`, and answers 0 or a wrapped number for values past 2^63.
- `value` and `milli` round away from zero on both sides. Kubernetes rounds some negatives towards zero.
- A number needs a digit. Kubernetes reads `-`, `.` and `Ki` as zero.
- Text past 128 characters or an exponent past 99 is refused; Kubernetes' parser does not return from `1e2147483648`.

As there, what is finer than a nano-unit is rounded away from zero, and binary text stops at 2^63-1.
"""

import re
from collections.abc import Mapping
from enum import Enum
from fractions import Fraction
from functools import total_ordering
from typing import Annotated, NoReturn, TypeAlias

import msgspec

from gangline.api.meta import QUANTITY_FORMAT
from gangline.base.errors import InputError

QuantityText: TypeAlias = Annotated[str, msgspec.Meta(extra={"format": QUANTITY_FORMAT})]
"""A quantity as text. The codec accepts a bare number too (`cpu: 2`) and keeps its text."""

_NANOS_PER_UNIT = 10**9
_MAX_BINARY_UNITS = 2**63 - 1
_MAX_TEXT_LENGTH = 128
_MAX_EXPONENT = 99
_QUANTITY_TEXT = re.compile(
    r"([+-]?)(?=\.?[0-9])([0-9]*)\.?([0-9]*)(?:([KMGTPE]i)|[eE]([+-]?[0-9]{1,3})|([numkMGTPE]?))", re.ASCII
)
_DECIMAL_EXPONENTS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_EXPONENTS = {"": 0, "Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL_EXPONENTS.items()}
_BINARY_SUFFIX = tuple(_BINARY_EXPONENTS)


_MISSPELT_UNIT = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTPEkmgtp][iI]?)[bB]?")
"""Wrong spellings of a quantity whose meaning is clear: `16 GiB`, `16Gib`, `16GB`, `16gb`."""


class QuantityError(InputError):
    """Text that is not a quantity."""


class QuantityFormat(Enum):
    """How a quantity is written: `12Mi`, `12M` or `12e6`."""

    BINARY = "binary"
    DECIMAL = "decimal"
    EXPONENT = "exponent"


@total_ordering
class Quantity:
    """An amount of a resource. Equal amounts are equal however they are written: `1Gi == 1073741824`.

    A sum, difference or multiple is written in the family of its first operand, or of the second if the first is
    zero.
    """

    __slots__ = ("family", "nanos")
    nanos: int
    family: QuantityFormat

    def __init__(self, nanos: int, family: QuantityFormat = QuantityFormat.DECIMAL) -> None:
        object.__setattr__(self, "nanos", nanos)
        object.__setattr__(self, "family", family)

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """The quantity of a text. Raises `QuantityError`."""
        found = _QUANTITY_TEXT.fullmatch(text) if len(text) <= _MAX_TEXT_LENGTH else None
        if found is None or int(found[5] or 0) > _MAX_EXPONENT:
            raise _not_a_quantity(text)
        sign, whole, fraction, binary, exponent, decimal = found.groups()
        digits = int(whole + fraction)
        if binary:
            # Kubernetes caps only binary quantities.
            nanos = min(
                _scaled_nanos(digits << _BINARY_EXPONENTS[binary], -len(fraction)),
                _MAX_BINARY_UNITS * _NANOS_PER_UNIT,
            )
            family = QuantityFormat.BINARY if nanos >= _NANOS_PER_UNIT else QuantityFormat.DECIMAL
        elif exponent:
            nanos, family = _scaled_nanos(digits, int(exponent) - len(fraction)), QuantityFormat.EXPONENT
        else:
            nanos, family = (
                _scaled_nanos(digits, _DECIMAL_EXPONENTS[decimal] - len(fraction)),
                QuantityFormat.DECIMAL,
            )
        return cls(-nanos if sign == "-" else nanos, family)

    @classmethod
    def of(cls, value: "str | float | Quantity") -> "Quantity":
        """The quantity of a JSON value, which may be a string or a number. Raises `QuantityError`."""
        if isinstance(value, Quantity):
            return value
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise _not_a_quantity(value)
        return cls.parse(value.strip() if isinstance(value, str) else repr(value))

    def value(self) -> int:
        """The amount in whole units, rounded away from zero."""
        return _divide_away_from_zero(self.nanos, _NANOS_PER_UNIT)

    def milli(self) -> int:
        """The amount in thousandths, rounded away from zero."""
        return _divide_away_from_zero(self.nanos, _NANOS_PER_UNIT // 1000)

    def as_fraction(self) -> Fraction:
        """The exact amount."""
        return Fraction(self.nanos, _NANOS_PER_UNIT)

    def __str__(self) -> str:
        if (
            self.family is QuantityFormat.BINARY
            and abs(self.nanos) >= 1024 * _NANOS_PER_UNIT
            and self.nanos % _NANOS_PER_UNIT == 0
        ):
            return _binary_text(self.nanos // _NANOS_PER_UNIT)
        # A fraction, or less than 1Ki, is written in decimal so that nothing is lost.
        return _decimal_text(self.nanos, exponent_form=self.family is QuantityFormat.EXPONENT)

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __hash__(self) -> int:
        return hash(self.nanos)

    def __eq__(self, other: object) -> bool:
        return self.nanos == other.nanos if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: "Quantity") -> bool:
        return self.nanos < other.nanos if isinstance(other, Quantity) else NotImplemented

    def __add__(self, other: "Quantity") -> "Quantity":
        if not isinstance(other, Quantity):
            return NotImplemented
        return Quantity(self.nanos + other.nanos, self.family if self else other.family)

    def __radd__(self, other: int) -> "Quantity":
        # `sum` starts with the integer 0.
        return self if other == 0 else NotImplemented

    def __sub__(self, other: "Quantity") -> "Quantity":
        return self + -other if isinstance(other, Quantity) else NotImplemented

    def __neg__(self) -> "Quantity":
        return Quantity(-self.nanos, self.family)

    def __mul__(self, factor: int) -> "Quantity":
        return Quantity(self.nanos * factor, self.family) if isinstance(factor, int) else NotImplemented

    __rmul__ = __mul__

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Quantity does not change: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Quantity does not change: {name}")

    def __reduce__(self) -> tuple[type["Quantity"], tuple[int, QuantityFormat]]:
        return Quantity, (self.nanos, self.family)


ZERO = Quantity(0)
_LEAST_MEMORY = Quantity(2**20 * _NANOS_PER_UNIT)
_MOST_GIBIBYTES = 64


def parse_resources(resources: Mapping[str, str | float]) -> dict[str, Quantity]:
    """A resource list with its text parsed. Raises `QuantityError` that names the resource."""
    parsed = {}
    for name, text in resources.items():
        try:
            parsed[name] = Quantity.of(text)
        except QuantityError as error:
            raise QuantityError(f"{name}: {error}") from None
    return parsed


def add_resources(a: Mapping[str, Quantity], b: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """The sum of two resource lists. A resource that is missing from one counts as zero there."""
    return {**a, **{name: a.get(name, ZERO) + amount for name, amount in b.items()}}


def fits(request: Mapping[str, Quantity], free: Mapping[str, Quantity]) -> bool:
    """Whether everything requested is free. A resource that is not requested, or requested as zero, always fits."""
    return all(amount <= free.get(name, ZERO) for name, amount in request.items() if amount > ZERO)


def _scaled_nanos(digits: int, exponent: int) -> int:
    """`digits` times ten to the `exponent`, in nano-units, rounded up."""
    power: int = 10 ** abs(exponent + 9)
    return digits * power if exponent >= -9 else -(-digits // power)


def _divide_away_from_zero(nanos: int, unit: int) -> int:
    return -(-nanos // unit) if nanos > 0 else nanos // unit


def _decimal_text(nanos: int, *, exponent_form: bool) -> str:
    if nanos == 0:
        return "0"
    exponent = -9
    while nanos % 1000 == 0 and (exponent_form or exponent < 18):
        nanos //= 1000
        exponent += 3
    if exponent_form:
        return f"{nanos}e{exponent}" if exponent else str(nanos)
    return f"{nanos}{_DECIMAL_SUFFIX[exponent]}"


def _binary_text(units: int) -> str:
    power = 0
    while units % 1024 == 0 and power < len(_BINARY_SUFFIX) - 1:
        units //= 1024
        power += 1
    return f"{units}{_BINARY_SUFFIX[power]}"


def similar_quantity(text: str) -> str:
    """The quantity that a text is meant to be: `16G` for `16GB`; empty if that is not clear."""
    meant = _MISSPELT_UNIT.fullmatch(text.strip())
    if meant is None:
        return ""
    unit = meant[2][0].upper() + meant[2][1:].lower()
    # Of the multiples, only the unit of a thousand is lowercase.
    return f"{meant[1]}{'k' if unit == 'K' else unit}"


def meant_memory(amount: "Quantity") -> str:
    """The amount of memory that was meant by one that no program can run in: `4Gi` for `4`; empty for a possible one."""
    if amount >= _LEAST_MEMORY or amount <= ZERO:
        return ""
    if amount.value() == 1 and amount.milli() < 1000:
        return f"{amount.milli()}Mi"
    return f"{amount.value()}{'Gi' if amount.value() <= _MOST_GIBIBYTES else 'Mi'}"


def _not_a_quantity(value: object) -> QuantityError:
    text = f'"{value}"' if isinstance(value, str) else str(value)
    shown = text if len(text) <= 60 else f"{text[:56]}…"
    meant = similar_quantity(value) if isinstance(value, str) else ""
    advice = f"write {meant}" if meant else "write a number with an optional suffix, such as 500m, 2, 1.5Gi"
    return QuantityError(f"{shown} is not a quantity: {advice}")
