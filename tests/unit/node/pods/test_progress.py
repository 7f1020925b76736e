"""Progress reports: written at a limited rate, the last always."""

from datetime import timedelta
from pathlib import Path

import pytest

from gangline.node.checkpoint import RunFiles
from gangline.node.pods.progress import MIN_REPORT_INTERVAL, ProgressReporter, ReportLimiter
from gangline.testing.clock import FakeClock

PERIOD = timedelta(seconds=5)


class Desk:
    """The progress file of a run, and the lines reported from it."""

    def __init__(self, folder: Path, reported: str = "") -> None:
        self.clock, self.reported = FakeClock(), list[str]()
        self.files = RunFiles(folder, 0)
        self.reports = ProgressReporter("u", reported, self.reported.append, ReportLimiter(PERIOD), self.clock)

    def says(self, text: str) -> None:
        """Write the file as the shim does: a new file each time."""
        new = self.files.progress_file.with_suffix(".new")
        new.write_text(text)
        new.replace(self.files.progress_file)

    def step(self, number: int) -> str:
        self.says(f'{{"progress": {{"step": {number}}}}}')
        return f'{{"progress":{{"step":{number}}}}}'

    def poll(self, *, final: bool = False) -> None:
        self.reports.poll([self.files], final=final)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_program_that_reports_nothing_is_not_told_of(desk: Desk) -> None:
    desk.poll()
    desk.poll(final=True)
    assert desk.reported == []


async def test_the_first_is_told_at_once_and_the_next_when_it_is_due(desk: Desk) -> None:
    reported = [desk.step(1)]
    desk.poll()
    assert desk.reported == reported
    desk.step(2)
    desk.poll()
    await desk.clock.advance(PERIOD / 2)
    reported.append(desk.step(3))
    desk.poll()
    assert desk.reported == reported[:1]
    await desk.clock.advance(PERIOD / 2)
    desk.poll()
    assert desk.reported == reported


def test_the_last_is_told_though_it_is_not_due(desk: Desk) -> None:
    desk.step(1)
    desk.poll()
    last = desk.step(2)
    desk.poll(final=True)
    desk.poll(final=True)
    assert desk.reported[1:] == [last]


def test_what_is_no_report_is_not_told(desk: Desk) -> None:
    desk.says('{"progress": "fine", "of": "something else"}')
    desk.poll(final=True)
    desk.says("x" * 100_000)
    desk.poll(final=True)
    assert desk.reported == []


def test_what_the_api_has_already_is_not_told_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path, reported='{"progress":{"step":7}}')
    desk.step(7)
    desk.poll(final=True)
    assert desk.reported == []


def test_many_pods_together_are_told_of_less_often() -> None:
    pace = ReportLimiter(PERIOD)
    assert {pace.interval(str(number)) for number in range(50)} == {PERIOD}
    for number in range(100):
        pace.interval(str(number))
    assert pace.interval("0") == MIN_REPORT_INTERVAL * 100
    for number in range(1, 100):
        pace.forget(str(number))
    assert pace.interval("0") == PERIOD
