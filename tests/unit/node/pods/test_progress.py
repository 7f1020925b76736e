"""Reports on their way from a program to its pod: seldom, and the last always."""

from datetime import timedelta
from pathlib import Path

import pytest

from gangline.node.checkpoint import RunFiles
from gangline.node.pods.progress import MIN_REPORT_INTERVAL, ProgressReporter, ReportLimiter
from gangline.testing.clock import FakeClock

PERIOD = timedelta(seconds=5)


class Desk:
    """A run's file, and what was told of it."""

    def __init__(self, folder: Path, told: str = "") -> None:
        self.clock, self.told = FakeClock(), list[str]()
        self.files = RunFiles(folder, 0)
        self.reports = ProgressReporter("u", told, self.told.append, ReportLimiter(PERIOD), self.clock)

    def says(self, text: str) -> None:
        """As the shim writes it: a new file each time."""
        new = self.files.progress_file.with_suffix(".new")
        new.write_text(text)
        new.replace(self.files.progress_file)

    def step(self, number: int) -> str:
        self.says(f'{{"progress": {{"step": {number}}}}}')
        return f'{{"progress":{{"step":{number}}}}}'

    def look(self, *, final: bool = False) -> None:
        self.reports.poll([self.files], final=final)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_program_that_reports_nothing_is_not_told_of(desk: Desk) -> None:
    desk.look()
    desk.look(final=True)
    assert desk.told == []


async def test_the_first_is_told_at_once_and_the_next_when_it_is_due(desk: Desk) -> None:
    told = [desk.step(1)]
    desk.look()
    assert desk.told == told
    desk.step(2)
    desk.look()
    await desk.clock.advance(PERIOD / 2)
    told.append(desk.step(3))
    desk.look()
    assert desk.told == told[:1]
    await desk.clock.advance(PERIOD / 2)
    desk.look()
    assert desk.told == told


def test_the_last_is_told_though_it_is_not_due(desk: Desk) -> None:
    desk.step(1)
    desk.look()
    last = desk.step(2)
    desk.look(final=True)
    desk.look(final=True)
    assert desk.told[1:] == [last]


def test_what_is_no_report_is_not_told(desk: Desk) -> None:
    desk.says('{"progress": "fine", "of": "something else"}')
    desk.look(final=True)
    desk.says("x" * 100_000)
    desk.look(final=True)
    assert desk.told == []


def test_what_the_api_has_already_is_not_told_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path, told='{"progress":{"step":7}}')
    desk.step(7)
    desk.look(final=True)
    assert desk.told == []


def test_many_pods_together_are_told_of_less_often() -> None:
    pace = ReportLimiter(PERIOD)
    assert {pace.interval(str(number)) for number in range(50)} == {PERIOD}
    for number in range(100):
        pace.interval(str(number))
    assert pace.interval("0") == MIN_REPORT_INTERVAL * 100
    for number in range(1, 100):
        pace.forget(str(number))
    assert pace.interval("0") == PERIOD
