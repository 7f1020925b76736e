"""Artifact folders: created for a run, removed if they stay empty."""

from pathlib import Path

import pytest

from gangline.api.meta import Key
from gangline.cli.run.kept_files import (
    provide_artifacts,
    remove_empty_artifacts,
    run_artifacts,
    state_artifacts,
)
from gangline.cli.sweep.results import SweepFolder
from gangline.local.home import PlaneHome

JOB = Key("team", "bert")


@pytest.fixture
def home(tmp_path: Path) -> PlaneHome:
    return PlaneHome(tmp_path)


def test_an_artifact_folder_exists_during_the_run_and_is_kept_with_its_files(home: PlaneHome) -> None:
    with provide_artifacts(state_artifacts(home), [JOB]):
        folder = home.artifacts / "team" / "bert"
        assert folder.is_dir()
        (folder / "model").write_text("weights")
    assert (folder / "model").read_text() == "weights"


def test_empty_artifact_folders_are_removed_with_their_parents(home: PlaneHome) -> None:
    with provide_artifacts(state_artifacts(home), [JOB, Key("team", "gpt")]):
        (home.artifacts / "team" / "gpt" / "model").write_text("")
    assert sorted(home.artifacts.rglob("*")) == [
        home.artifacts / "team",
        home.artifacts / "team" / "gpt",
        home.artifacts / "team" / "gpt" / "model",
    ]
    (home.artifacts / "team" / "gpt" / "model").unlink()
    remove_empty_artifacts(home)
    assert not home.artifacts.exists()


def test_a_finished_run_keeps_the_folder_that_another_run_uses(home: PlaneHome) -> None:
    with provide_artifacts(state_artifacts(home), [JOB]):
        with provide_artifacts(state_artifacts(home), [JOB]):
            pass
        remove_empty_artifacts(home)
        assert (home.artifacts / "team" / "bert").is_dir()
    assert not home.artifacts.exists()


def test_a_kept_run_has_its_artifacts_beside_its_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "bert").mkdir(parents=True)
    with provide_artifacts(run_artifacts(Path("runs")), [JOB]):
        assert run_artifacts(Path("runs")).folder(JOB) == tmp_path / "runs" / "bert" / "artifacts"
        assert (tmp_path / "runs" / "bert" / "artifacts").is_dir()
    assert list((tmp_path / "runs").rglob("*")) == [tmp_path / "runs" / "bert"]


def test_a_trial_has_its_artifacts_beside_its_logs(tmp_path: Path) -> None:
    sweep = SweepFolder(tmp_path, "bert")
    first, second = (Path(str(sweep.artifacts_pattern).replace("{namespace}", f"trial-{at}")) for at in (1, 2))
    assert first.parent == sweep.open_trial(1).folder
    for folder in (first, second):
        folder.mkdir(parents=True)
    (first / "model").write_text("weights")
    sweep.remove_empty_artifacts()
    assert (first / "model").exists()
    assert not second.exists()


def test_a_run_continues_without_an_artifact_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "artifacts").write_text("")
    with provide_artifacts(state_artifacts(PlaneHome(tmp_path)), [JOB]):
        pass
    assert (tmp_path / "artifacts").read_text() == ""
