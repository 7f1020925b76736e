"""The leaderboard of a sweep, and how it is shown."""

import csv
import io
from collections.abc import Sequence

import msgspec
import pytest

from gangline.cli.output.curve import Point
from gangline.cli.output.text import plain_text
from gangline.cli.sweep.leaderboard import (
    Leaderboard,
    Objective,
    TrialRow,
    TrialState,
    leaderboard_csv,
    leaderboard_header,
    leaderboard_json,
    leaderboard_rows,
    mean_curve,
    new_leaderboard,
    parameter_labels,
    remarks,
)
from gangline.cli.sweep.screen import SweepScreen, leaderboard_lines, trial_line

TRIALS = [{"lr": lr, "batch": batch} for lr in ("0.1", "0.01") for batch in ("32", "64")]


def board(*ends: tuple[TrialState, float | None], most: bool = False) -> Leaderboard:
    """Four trials, the first of which have these states and values."""
    leaderboard = new_leaderboard(Objective("loss", most), TRIALS)
    for at, (state, value) in enumerate(ends):
        leaderboard = leaderboard.with_row(
            msgspec.structs.replace(leaderboard.rows[at], state=state, value=value, step=9, share=0.5, seconds=2.25)
        )
    return leaderboard


FULL = board(
    (TrialState.SUCCEEDED, 0.5),
    (TrialState.FAILED, 0.01),
    (TrialState.SUCCEEDED, 0.25),
    (TrialState.RUNNING, 0.3),
)


def numbers(rows: Sequence[TrialRow]) -> list[int]:
    return [row.number for row in rows]


def test_trials_that_succeeded_with_a_value_are_ranked_lowest_first() -> None:
    assert numbers(FULL.ranked_rows()) == [3, 1]
    best = FULL.best_row()
    assert best is not None
    assert best.number == 3


def test_with_goal_max_the_highest_is_first() -> None:
    leaderboard = board(
        (TrialState.SUCCEEDED, 0.5), (TrialState.SUCCEEDED, 0.9), (TrialState.SUCCEEDED, None), most=True
    )
    assert numbers(leaderboard.ranked_rows()) == [2, 1]


def test_rows_are_sorted_from_ranked_to_running_queued_and_failed() -> None:
    leaderboard = board((TrialState.FAILED, None), (TrialState.SUCCEEDED, 1.0), (TrialState.SUCCEEDED, None))
    assert numbers(leaderboard.sorted_rows()) == [2, 3, 4, 1]
    assert numbers(FULL.sorted_rows()) == [3, 1, 4, 2]


def test_a_new_leaderboard_has_no_best_row() -> None:
    leaderboard = new_leaderboard(Objective(), TRIALS)
    assert leaderboard.best_row() is None
    assert leaderboard.count(TrialState.QUEUED) == 4


def test_the_table_has_ranks_values_and_progress() -> None:
    assert leaderboard_header(FULL) == ["RANK", "TRIAL", "lr", "batch", "LOSS", "STATE", "TIME", "CAUSE"]
    assert leaderboard_rows(FULL)[0] == ["1", "3", "0.01", "32", "0.25", "Succeeded", "2.2 s", "-"]
    assert leaderboard_rows(FULL)[2][:6] == ["-", "4", "0.01", "64", "0.3", "Running 50%"]


def test_a_parameter_with_one_value_is_in_the_csv_only() -> None:
    leaderboard = new_leaderboard(Objective(), [{"lr": "1", "n": "8"}, {"lr": "2", "n": "8"}])
    assert parameter_labels(leaderboard.rows) == {"lr": "lr"}
    assert leaderboard_csv(leaderboard).splitlines()[0] == "trial,state,lr,n,loss,step,seconds,cause"


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (("spec.a.replicas", "lr"), ("replicas", "lr")),
        (("spec.a.replicas", "spec.b.replicas"), ("spec.a.replicas", "spec.b.replicas")),
        (("spec.replicas", "replicas"), ("spec.replicas", "replicas")),
    ],
)
def test_a_path_is_labelled_by_its_last_part_if_that_is_unique(names: tuple[str, ...], short: tuple[str, ...]) -> None:
    leaderboard = new_leaderboard(Objective(), [dict.fromkeys(names, "1"), dict.fromkeys(names, "2")])
    assert tuple(parameter_labels(leaderboard.rows).values()) == short


def test_the_csv_has_every_trial_in_order_and_text_with_commas() -> None:
    row = msgspec.structs.replace(FULL.rows[1], cause='it said "no", twice')
    lines = list(csv.reader(io.StringIO(leaderboard_csv(FULL.with_row(row)))))
    assert lines[1] == ["1", "Succeeded", "0.1", "32", "0.5", "9", "2.25", ""]
    assert lines[2] == ["2", "Failed", "0.1", "64", "0.01", "9", "2.25", 'it said "no", twice']
    assert [each[0] for each in lines] == ["trial", "1", "2", "3", "4"]


def test_the_json_has_the_best_and_all_trials() -> None:
    report = leaderboard_json(FULL)
    assert (report["metric"], report["goal"], report["best"]["trial"]) == ("loss", "min", 3)
    assert report["trials"][0] == {
        "trial": 3,
        "state": "Succeeded",
        "parameters": {"lr": "0.01", "batch": "32"},
        "value": 0.25,
        "step": 9,
        "seconds": 2.25,
        "cause": "",
    }
    assert leaderboard_json(new_leaderboard(Objective(), TRIALS))["best"] is None


def test_the_curve_of_a_trial_is_the_mean_of_its_replicas() -> None:
    curves = {"a": [Point(1, 4.0), Point(2, 2.0)], "b": [Point(2, 4.0), Point(3, 1.0)]}
    assert mean_curve(curves) == [Point(1, 4.0), Point(2, 3.0), Point(3, 1.0)]


def test_equal_results_are_remarked_on() -> None:
    leaderboard = board((TrialState.SUCCEEDED, 1.0), (TrialState.SUCCEEDED, 1.0))
    assert remarks(leaderboard) == ["all trials ended with the same loss; does the program read $lr and $batch?"]
    assert remarks(FULL) == []


def test_an_unreported_metric_is_remarked_on_with_the_reported_ones() -> None:
    leaderboard = board((TrialState.SUCCEEDED, None))
    assert remarks(leaderboard, {"error", "accuracy"}) == [
        "no trial reported loss; it reports accuracy, error: give --metric accuracy"
    ]
    assert remarks(leaderboard) == ["no trial reported loss; see docs/progress.md"]


def test_a_change_is_one_line() -> None:
    assert trial_line(FULL, FULL.rows[2]) == (
        "trial 3 of 4  lr=0.01 batch=32  Succeeded in 2.2 s  loss 0.25  best so far"
    )
    failed = msgspec.structs.replace(FULL.rows[1], cause="out of memory")
    assert trial_line(FULL, failed).endswith("Failed in 2.2 s  loss 0.01  out of memory")
    assert trial_line(FULL, FULL.rows[3]) == "trial 4 of 4  lr=0.01 batch=64  Running"


def test_a_terminal_shows_the_best_and_the_number_of_hidden_rows() -> None:
    whole = [plain_text(each) for each in leaderboard_lines(FULL)]
    assert whole[0] == "sweep  3 of 4 trials done · 1 running · lowest loss"
    assert whole[2].split() == ["1", "3", "0.01", "32", "0.25", "Succeeded", "2.2", "s", "-"]
    assert len(whole) == 6
    small = [plain_text(each) for each in leaderboard_lines(FULL, width=30, rows=5)]
    assert [len(each) <= 30 for each in small] == [True] * len(small)
    assert small[-1] == "… and 2 more"


def test_files_and_pipes_get_plain_lines() -> None:
    stream = io.StringIO()
    with SweepScreen(stream) as shown:
        shown.draw(FULL)
        shown.show_trial(FULL, FULL.rows[3])
    assert stream.getvalue() == "trial 4 of 4  lr=0.01 batch=64  Running\n"
