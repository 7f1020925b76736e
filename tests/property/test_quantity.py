"""Quantities are an ordered commutative group that agrees with exact fractions."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from gangline.api.quantity import ZERO, Quantity

SUFFIXES = {
    **{suffix: Fraction(10) ** exponent for suffix, exponent in zip("num", (-9, -6, -3), strict=True)},
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{suffix: Fraction(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
    **{f"{e}{n}": Fraction(10) ** n for e in "eE" for n in range(-9, 30)},
    **{f"e+{n}": Fraction(10) ** n for n in range(10)},
}
LARGEST_BINARY = 2**63 - 1


@st.composite
def written(draw: st.DrawFn) -> tuple[str, Fraction]:
    """Any quantity's text, and what it means to the last digit."""
    sign = draw(st.sampled_from(("", "+", "-")))
    whole = draw(st.from_regex(r"[0-9]{0,12}", fullmatch=True))
    point = draw(st.from_regex(r"(\.[0-9]{0,10})?" if whole else r"\.[0-9]{1,10}", fullmatch=True))
    suffix = draw(st.sampled_from(tuple(SUFFIXES)))
    number = Fraction(int(whole + point[1:] or "0"), 10 ** max(len(point) - 1, 0))
    exact = number * SUFFIXES[suffix]
    if suffix.endswith("i"):
        exact = min(exact, Fraction(LARGEST_BINARY))
    return f"{sign}{whole}{point}{suffix}", -exact if sign == "-" else exact


def rounded_away(exact: Fraction, unit: Fraction) -> int:
    size = -(-abs(exact) // unit)
    return size if exact >= 0 else -size


quantities = written().map(lambda pair: Quantity.parse(pair[0]))


@given(written())
def test_text_means_its_fraction_rounded_away_from_zero_to_nano(pair: tuple[str, Fraction]) -> None:
    text, exact = pair
    nano = Fraction(1, 10**9)
    assert Quantity.parse(text).as_fraction() == rounded_away(exact, nano) * nano


@given(quantities)
def test_text_round_trips(amount: Quantity) -> None:
    again = Quantity.parse(str(amount))
    assert again == amount
    assert hash(again) == hash(amount)
    assert str(again) == str(amount)
    assert "." not in str(amount)


@given(quantities)
def test_value_and_milli_round_away_from_zero(amount: Quantity) -> None:
    assert amount.value() == rounded_away(amount.as_fraction(), Fraction(1))
    assert amount.milli() == rounded_away(amount.as_fraction(), Fraction(1, 1000))


@given(quantities, quantities)
def test_adding_and_comparing_agree_with_fractions(a: Quantity, b: Quantity) -> None:
    assert (a + b).as_fraction() == a.as_fraction() + b.as_fraction()
    assert (a - b).as_fraction() == a.as_fraction() - b.as_fraction()
    assert (a < b, a <= b, a == b) == (
        a.as_fraction() < b.as_fraction(),
        a.as_fraction() <= b.as_fraction(),
        a.as_fraction() == b.as_fraction(),
    )
    assert a != b or hash(a) == hash(b)


@given(quantities, quantities, quantities)
def test_adding_is_a_commutative_group_that_keeps_order(a: Quantity, b: Quantity, c: Quantity) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + ZERO == ZERO + a == a
    assert a - a == ZERO
    assert (a <= b) == (a + c <= b + c)


@given(quantities, st.integers(0, 50))
def test_a_multiple_is_a_repeated_sum(a: Quantity, times: int) -> None:
    assert a * times == sum([a] * times, ZERO)


@given(st.integers(-(10**15), 10**15) | st.floats(-1e15, 1e15, allow_nan=False))
def test_json_numbers_are_read_as_their_text(number: float) -> None:
    exact = Fraction(repr(number))
    assert Quantity.of(number).as_fraction() == Fraction(rounded_away(exact * 10**9, Fraction(1)), 10**9)
