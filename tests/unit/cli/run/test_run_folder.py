"""The folders of a run and a sweep, also on a full disk."""

from pathlib import Path

import pytest

from gangline.base.errors import InputError
from gangline.cli.output.curve import Point
from gangline.cli.run.kept_files import RunFolder
from gangline.cli.sweep.leaderboard import Objective, new_leaderboard
from gangline.cli.sweep.results import SweepFolder

FULL = Path("/dev/full")
CURVES = {"worker-0": [Point(1.0, 2.0), Point(2.0, 1.0)]}
needs_full = pytest.mark.skipif(not FULL.exists(), reason="the system has no device that is always full")


def test_logs_the_job_and_its_curve_are_kept(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "linear")
    folder.prepare()
    folder.add_line("worker-0", "hello")
    folder.add_line("worker-0", "world")
    folder.write_job({"kind": "TFJob"})
    assert folder.write_curve(CURVES, "loss") == tmp_path / "linear" / "loss.svg"
    assert (tmp_path / "linear" / "worker-0.log").read_text() == "hello\nworld\n"
    assert folder.write_error == ""


@needs_full
def test_on_a_full_disk_a_run_continues_and_reports_the_first_error(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path, "linear")
    folder.prepare()
    for name in ("worker-0.log", "job.json", "loss.svg"):
        (folder.folder / name).symlink_to(FULL)
    folder.add_line("worker-0", "hello")
    folder.write_job({"kind": "TFJob"})
    assert folder.write_curve(CURVES, "loss") is None
    assert folder.write_error == f"not all was kept in {folder.folder}/: No space left on device"


@needs_full
def test_on_a_full_disk_a_sweep_continues_and_reports_the_error(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path, "linear")
    folder.prepare()
    folder.csv.with_suffix(".csv.new").symlink_to(FULL)
    board = new_leaderboard(Objective("loss", maximize=False), [{"lr": "1"}])
    trial = folder.open_trial(1)
    folder.write_table(board)
    assert folder.write_error == f"not all was kept in {folder.folder}/: No space left on device"
    (trial.folder / "worker-0.log").symlink_to(FULL)
    trial.add_line("worker-0", "hello")
    assert trial.write_error


def test_a_folder_that_cannot_be_created_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="give another folder with --runs"):
        RunFolder(tmp_path / "file", "linear").prepare()
