"""The folder in which a job's programs leave what they make."""

from pathlib import Path

import pytest

from gangline.api.meta import Key
from gangline.cli.run.kept_files import in_runs, in_state, provided, tidy
from gangline.cli.sweep.results import SweepFolder
from gangline.local.home import Home

JOB = Key("team", "bert")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_it_is_there_during_the_run_and_stays_with_what_is_in_it(home: Home) -> None:
    with provided(in_state(home), [JOB]):
        folder = home.artifacts / "team" / "bert"
        assert folder.is_dir()
        (folder / "model").write_text("weights")
    assert (folder / "model").read_text() == "weights"


def test_empty_ones_go_with_the_run_and_so_do_those_above(home: Home) -> None:
    with provided(in_state(home), [JOB, Key("team", "gpt")]):
        (home.artifacts / "team" / "gpt" / "model").write_text("")
    assert sorted(home.artifacts.rglob("*")) == [
        home.artifacts / "team",
        home.artifacts / "team" / "gpt",
        home.artifacts / "team" / "gpt" / "model",
    ]
    (home.artifacts / "team" / "gpt" / "model").unlink()
    tidy(home)
    assert not home.artifacts.exists()


def test_a_run_that_ends_leaves_the_folder_to_another_of_the_same_job(home: Home) -> None:
    with provided(in_state(home), [JOB]):
        with provided(in_state(home), [JOB]):
            pass
        tidy(home)
        assert (home.artifacts / "team" / "bert").is_dir()
    assert not home.artifacts.exists()


def test_a_run_that_is_kept_has_it_beside_its_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "bert").mkdir(parents=True)
    with provided(in_runs(Path("runs")), [JOB]):
        assert in_runs(Path("runs")).of(JOB) == tmp_path / "runs" / "bert" / "artifacts"
        assert (tmp_path / "runs" / "bert" / "artifacts").is_dir()
    assert list((tmp_path / "runs").rglob("*")) == [tmp_path / "runs" / "bert"]


def test_a_trial_of_a_sweep_has_it_beside_its_logs(tmp_path: Path) -> None:
    sweep = SweepFolder(tmp_path, "bert")
    first, second = (Path(str(sweep.artifacts).replace("{namespace}", f"trial-{at}")) for at in (1, 2))
    assert first.parent == sweep.trial(1).folder
    for folder in (first, second):
        folder.mkdir(parents=True)
    (first / "model").write_text("weights")
    sweep.tidy()
    assert (first / "model").exists()
    assert not second.exists()


def test_where_none_can_be_made_the_run_goes_on_without(tmp_path: Path) -> None:
    (tmp_path / "artifacts").write_text("")
    with provided(in_state(Home(tmp_path)), [JOB]):
        pass
    assert (tmp_path / "artifacts").read_text() == ""
