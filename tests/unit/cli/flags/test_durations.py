"""Durations on the command line."""

from datetime import timedelta

import pytest

from gangline.base.errors import InputError
from gangline.cli.flags.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("30s", 30),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("300ms", 0.3),
        ("2d", 172800),
        ("-1s", -1),
        ("0", 0),
    ],
)
def test_durations_have_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "s", "1x", "1h 30m", "one", "99999999999d", "9" * 400])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="30s"):
        parse_duration(text)
