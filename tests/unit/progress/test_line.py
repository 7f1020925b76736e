"""What a program says of its progress, and what is read from it."""

import json
import subprocess
import sys

import pytest

from gangline.progress import report
from gangline.progress.line import Progress, bounded_progress, parse_progress, progress_line


def test_what_is_reported_is_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    report(step=240, total=400, loss=0.113, accuracy=0.5)
    line = capsys.readouterr().out
    assert line == '{"progress": {"step": 240, "total": 400, "loss": 0.113, "accuracy": 0.5}}\n'
    assert parse_progress(line) == Progress(240, 400, {"loss": 0.113, "accuracy": 0.5})


def test_a_total_may_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    report(step=3)
    found = parse_progress(capsys.readouterr().out)
    assert found == Progress(3)
    assert found.fraction is None


def test_numbers_of_numpy_are_taken_by_their_value(capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    report(step=np.int64(7), total=np.float32(8), loss=np.float64(0.25))  # type: ignore[arg-type]
    assert parse_progress(capsys.readouterr().out) == Progress(7, 8, {"loss": 0.25})


def test_what_json_has_not_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    report(step=1, loss=float("nan"), rate=float("inf"), name="x")  # type: ignore[arg-type]
    assert json.loads(capsys.readouterr().out) == {"progress": {"step": 1}}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "step 240 loss 0.113",
        "{",
        '{"progress": 0.4}',
        '{"progress": null}',
        '{"progress": {"total": 4}}',
        '{"progress": {"step": "4"}}',
        '{"progress": {"step": true}}',
        '{"progress": {"step": NaN}}',
        '{"progress": {"step": 1e999}}',
        '{"progress": {"step": 1}, "of": "something else"}',
        '[{"progress": {"step": 1}}]',
        '{"progress": {"step": 1' + "0" * 20_000 + "}}",
        '{"progress": ' + "[" * 9_000,
    ],
)
def test_any_other_line_is_no_report(line: str) -> None:
    assert parse_progress(line) is None


def test_members_that_are_no_numbers_are_passed_over() -> None:
    found = parse_progress('{"progress": {"step": 1, "total": "many", "loss": null, "note": "x", "lr": 0.1}}')
    assert found == Progress(1, None, {"lr": 0.1})


@pytest.mark.parametrize("name", [r"\ud800", r"\u001b[31m", r"a\nb", r"\u202e"])
def test_names_that_cannot_be_printed_are_passed_over(name: str) -> None:
    # Half of a surrogate pair cannot be sent to a server at all: its job could never end.
    found = parse_progress(f'{{"progress": {{"step": 1, "{name}": 2, "损失 😀": 3}}}}')
    assert found == Progress(1, None, {"损失 😀": 3})
    metrics = {json.loads(f'"{name}"'): 2.0, "loss": 3.0}
    assert bounded_progress(Progress(1, None, metrics)).metrics == {"loss": 3.0}


@pytest.mark.parametrize("seconds", [-1, 1e18, 1e308])
def test_a_remaining_time_that_no_calendar_has_is_passed_over(seconds: float) -> None:
    assert parse_progress(f'{{"progress": {{"step": 1, "remaining_seconds": {seconds}}}}}') == Progress(1)
    assert bounded_progress(Progress(1, remaining_seconds=seconds)) == Progress(1)


def test_a_metric_takes_no_place_of_another_number() -> None:
    progress = bounded_progress(Progress(1, 2, {"step": 7.0, "total": 9.0, "remaining_seconds": 5.0, "loss": 3.0}, 4))
    assert parse_progress(progress_line(progress)) == Progress(1, 2, {"loss": 3.0}, 4)


@pytest.mark.parametrize(
    ("step", "total", "share"), [(5, 10, 0.5), (20, 10, 1.0), (-1, 10, 0.0), (1, 0, None), (1, None, None)]
)
def test_share_is_between_none_and_all(step: float, total: float | None, share: float | None) -> None:
    assert Progress(step, total).fraction == share


def test_the_helper_needs_nothing_but_the_standard_library() -> None:
    code = "import gangline.progress, sys; print({'click', 'msgspec', 'numpy', 'asyncio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_what_goes_to_the_api_is_small_and_reads_back() -> None:
    many = Progress(2**70, 10, {**{f"m{number}": 0.5 for number in range(50)}, "n" * 100: 1.0, "": 2.0})
    small = bounded_progress(many)
    assert (small.step, small.total, len(small.metrics)) == (float(2**70), 10, 16)
    assert parse_progress(progress_line(small)) == small
    assert len(progress_line(small)) < 2000
    assert bounded_progress(Progress(3)) == Progress(3)


def test_a_line_may_say_that_a_checkpoint_is_being_saved(capsys: pytest.CaptureFixture[str]) -> None:
    report(step=3, checkpoint="begin")
    report(step=3, checkpoint="end")
    # As before there was such a word, a number is a metric.
    report(step=4, checkpoint=7)
    begin, end, number = (parse_progress(line) for line in capsys.readouterr().out.splitlines())
    assert begin == Progress(3, checkpoint="begin")
    assert end == Progress(3, checkpoint="end")
    assert number == Progress(4, metrics={"checkpoint": 7})
    assert parse_progress(progress_line(bounded_progress(begin))) == begin
    unknown = parse_progress('{"progress": {"step": 1, "checkpoint": ["begin"]}}')
    assert unknown == Progress(1)
