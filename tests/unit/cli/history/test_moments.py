"""Moments as people write them."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from gangline.base.errors import InputError
from gangline.cli.history.moments import moment_text, parse_moment, split_moment

NOW = datetime(2026, 11, 18, 15, 30, tzinfo=UTC)


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine two hours east of Greenwich, where it is 17:30."""
    monkeypatch.setenv("TZ", "UTC-2")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("14:02", "2026-11-18T12:02:00+00:00"),
        ("9:05:07", "2026-11-18T07:05:07+00:00"),
        ("14:02:03.25", "2026-11-18T12:02:03.250000+00:00"),
        ("14:02:03.9999999", "2026-11-18T12:02:03.999999+00:00"),
        ("-0m", "2026-11-18T15:30:00+00:00"),
        ("today 14:02", "2026-11-18T12:02:00+00:00"),
        ("yesterday 23:59", "2026-11-17T21:59:00+00:00"),
        ("-15m", "2026-11-18T15:15:00+00:00"),
        ("-1h30m", "2026-11-18T14:00:00+00:00"),
        ("-90", "2026-11-18T15:28:30+00:00"),
        ("now", "2026-11-18T15:30:00+00:00"),
        ("2026-11-18T14:02:03Z", "2026-11-18T14:02:03+00:00"),
        ("2026-11-18T14:02:03+05:00", "2026-11-18T09:02:03+00:00"),
        ("2026-11-17 14:02", "2026-11-17T12:02:00+00:00"),
        ("2026-11-17", "2026-11-16T22:00:00+00:00"),
    ],
)
def test_a_moment_is_understood(text: str, moment: str) -> None:
    assert parse_moment(text, NOW).isoformat() == moment


@pytest.mark.parametrize(
    "text", ["", "soon", "25:00", "12:60", "12:00:61", "yesterday", "yesterday soon", "-", "-soon", "15m", "2026-13-01"]
)
def test_other_texts_are_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(InputError, match=r"is no time; write one of 14:02, yesterday 14:02, -15m, 2026"):
        parse_moment(text, NOW)


@pytest.mark.parametrize("text", ["-99999999h", "-999999999d", "0001-01-01", "0001-01-01T00:00:00+14:00"])
def test_a_moment_before_all_calendars_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no time that a clock can show"):
        parse_moment(text, NOW)


def test_the_future_is_refused() -> None:
    with pytest.raises(InputError, match="18:00: is in the future; write yesterday 18:00"):
        parse_moment("18:00", NOW)
    with pytest.raises(InputError, match=r"2027-01-01T00:00:00Z: is in the future$"):
        parse_moment("2027-01-01T00:00:00Z", NOW)


@pytest.mark.parametrize(
    ("words", "moment", "rest"),
    [
        (("14:02", "get", "pods"), "14:02", ["get", "pods"]),
        (("yesterday", "14:02", "why", "bert"), "yesterday 14:02", ["why", "bert"]),
        (("2026-11-17", "14:02", "get"), "2026-11-17 14:02", ["get"]),
        (("2026-11-17", "get"), "2026-11-17", ["get"]),
        (("-15m", "get"), "-15m", ["get"]),
        (("yesterday 14:02", "get"), "yesterday 14:02", ["get"]),
        (("now",), "now", []),
    ],
)
def test_the_words_of_a_moment_end_where_the_command_begins(
    words: tuple[str, ...], moment: str, rest: list[str]
) -> None:
    assert split_moment(words) == (moment, rest)


def test_a_moment_of_another_day_has_its_date() -> None:
    assert moment_text(NOW, NOW) == "17:30:00"
    assert moment_text(datetime(2026, 11, 17, 12, tzinfo=UTC), NOW) == "2026-11-17 14:00:00"
