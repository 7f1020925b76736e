"""Signs of life of a running job."""

from gangline.cli.follow.life_signs import HangWatch, LifeSigns, hang_lines, is_lifeless, silence_lines, stall_lines
from gangline.cli.output.text import plain_text

WATCH = HangWatch(60.0, "gangline why net")


def shown(signs: LifeSigns, now: float) -> list[str]:
    return [plain_text(line).strip() for line in silence_lines(signs, now, WATCH)]


def test_a_job_that_logs_is_not_talked_about() -> None:
    signs = LifeSigns().with_line(100.0)
    assert shown(signs, 100.0) == shown(signs, 109.0) == []


def test_a_quiet_job_says_how_long_ago_its_last_line_was() -> None:
    assert shown(LifeSigns().with_line(100.0), 123.0) == ["last log line 23 s ago"]
    assert shown(LifeSigns().with_sign(20.0), 25.0) == ["no log line yet"]


def test_a_job_that_computes_without_a_line_is_alive() -> None:
    signs = LifeSigns().with_line(10.0).with_sign(400.0)
    assert not is_lifeless(signs, 459.0, WATCH)
    assert shown(signs, 430.0) == ["last log line 7 min 0 s ago"]


def test_a_job_that_is_silent_and_idle_is_reported_with_what_to_type() -> None:
    signs = LifeSigns().with_line(10.0).with_sign(30.0)
    assert is_lifeless(signs, 90.0, WATCH)
    assert shown(signs, 100.0) == [
        "no sign of life for 1 min 10 s: no CPU use, last log line 1 min 30 s ago",
        "in another terminal: gangline why net",
    ]
    assert hang_lines(LifeSigns(), 61.0, WATCH)[0][1].text.endswith("no log line yet")


def test_it_is_over_with_the_next_sign() -> None:
    signs = LifeSigns().with_line(10.0)
    assert is_lifeless(signs, 100.0, WATCH)
    assert not is_lifeless(signs.with_sign(100.0), 100.0, WATCH)
    assert not is_lifeless(signs.with_line(100.0), 100.0, WATCH)


def test_the_lines_about_a_hang_change_once_a_second() -> None:
    signs, watch = LifeSigns().with_line(10.0), HangWatch(2.0, "gangline why x")
    assert hang_lines(signs, 13.1, watch) == hang_lines(signs, 13.9, watch) != hang_lines(signs, 14.0, watch)


def test_a_stalled_job_says_what_its_operator_says() -> None:
    lines = [plain_text(line).strip() for line in stall_lines("no progress for 96 s: both wait", "gangline why net")]
    assert lines == ["stalled: no progress for 96 s: both wait", "in another terminal: gangline why net"]
