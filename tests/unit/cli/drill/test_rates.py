"""The rate of a slow network, as it is written on the command line."""

import pytest

from gangline.base.errors import InputError
from gangline.cli.drill.command import parse_rate


@pytest.mark.parametrize(
    ("text", "bits"), [("1mbit", 10**6), ("500kbit", 500_000), ("1.5 Gbit/s", 1_500_000_000), ("9600bit", 9600)]
)
def test_a_rate_is_read(text: str, bits: int) -> None:
    assert parse_rate(text) == bits


@pytest.mark.parametrize("text", ["", "fast", "1", "1mb", "-1mbit"])
def test_what_is_no_rate_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InputError, match="1mbit or 500kbit"):
        parse_rate(text)
