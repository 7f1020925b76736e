"""Log lines of several replicas merged into one stream."""

from datetime import UTC, datetime, timedelta

import pytest

from gangline.summary.log_lines import (
    MERGE_DELAY,
    LineMerger,
    TimedLine,
    merge_lines,
    normalized_time,
    parse_line,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def line(second: int, member: str, text: str = "") -> TimedLine:
    return TimedLine(f"2026-01-01T00:00:{second:02}.000000000Z", member, text)


def texts(lines: list[TimedLine]) -> list[str]:
    return [f"{item.replica}{item.text}" for item in lines]


def test_lines_of_several_replicas_come_in_order_of_time() -> None:
    first, second = [line(1, "a"), line(4, "a")], [line(2, "b"), line(3, "b")]
    assert [item.replica for item in merge_lines([first, second])] == ["a", "b", "b", "a"]


def test_lines_of_one_replica_keep_their_order_even_when_a_time_goes_back() -> None:
    jumping = [line(5, "a", "1"), line(1, "a", "2"), line(6, "a", "3")]
    assert texts(list(merge_lines([jumping, [line(2, "b")]]))) == ["b", "a1", "a2", "a3"]


@pytest.mark.parametrize(
    ("stamp", "same"),
    [
        ("2026-01-01T00:00:01Z", "2026-01-01T00:00:01.000000000Z"),
        ("2026-01-01T00:00:01.5Z", "2026-01-01T00:00:01.500000000Z"),
        ("2026-01-01T02:00:01.123456789+02:00", "2026-01-01T00:00:01.123456789Z"),
        ("hello", ""),
        ("", ""),
    ],
)
def test_normalized_times_compare_as_texts(stamp: str, same: str) -> None:
    assert normalized_time(stamp) == same


def test_the_text_of_a_line_follows_its_time() -> None:
    parsed = parse_line("worker-0", b"2026-01-01T00:00:01.5Z step 3  loss 0.1")
    assert parsed == TimedLine("2026-01-01T00:00:01.500000000Z", "worker-0", "step 3  loss 0.1")
    assert parsed.as_text() == "worker-0| step 3  loss 0.1"
    assert parsed.as_text(prefix=False, timestamps=True) == "2026-01-01T00:00:01.500000000Z step 3  loss 0.1"


def test_a_line_without_a_time_is_kept_whole() -> None:
    assert parse_line("w", b"no time here").text == "no time here"


def test_a_live_line_is_held_back_for_an_earlier_one_of_another_replica() -> None:
    merger = LineMerger()
    merger.add(line(2, "a"), NOW)
    merger.add(line(1, "b"), NOW + MERGE_DELAY / 2)
    assert list(merger.due_lines(NOW + MERGE_DELAY / 2)) == []
    assert texts(list(merger.due_lines(NOW + MERGE_DELAY))) == ["b", "a"]


def test_drained_lines_come_in_order() -> None:
    merger = LineMerger()
    for item in (line(3, "a"), line(1, "b"), line(2, "c")):
        merger.add(item, NOW)
    assert texts(list(merger.drain())) == ["b", "c", "a"]
    assert list(merger.due_lines(NOW + timedelta(hours=1))) == []
