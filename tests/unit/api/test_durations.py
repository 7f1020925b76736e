from datetime import UTC, datetime, timedelta

import pytest

from gangline.api.durations import human_age, human_duration

MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (-5, "<invalid>"),
        (-2, "<invalid>"),
        (-1.9, "0s"),
        (0, "0s"),
        (0.9, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (10 * MINUTE - 1, "9m59s"),
        (10 * MINUTE, "10m"),
        (3 * HOUR - 1, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 5 * MINUTE, "3h5m"),
        (8 * HOUR - 1, "7h59m"),
        (8 * HOUR + 59 * MINUTE, "8h"),
        (48 * HOUR - 1, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + 3 * HOUR, "2d3h"),
        (8 * DAY - 1, "7d23h"),
        (8 * DAY + 23 * HOUR, "8d"),
        (2 * YEAR - 1, "729d"),
        (2 * YEAR, "2y"),
        (2 * YEAR + 5 * DAY, "2y5d"),
        (8 * YEAR - 1, "7y364d"),
        (8 * YEAR + 100 * DAY, "8y"),
    ],
)
def test_duration_has_two_digits_that_matter(seconds: float, expected: str) -> None:
    assert human_duration(timedelta(seconds=seconds)) == expected


def test_moment_on_the_wire_is_told_as_time_since() -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert human_age("2026-01-02T03:04:00Z", now) == "5s"
    assert human_age("2026-01-02T03:04:00.500000Z", now) == "4s"
    assert human_age(None, now) == "<unknown>"
    assert human_age("", now) == "<unknown>"
    assert human_age("soon", now) == "<invalid>"
    assert human_age("2026-01-02", now) == "<invalid>"
