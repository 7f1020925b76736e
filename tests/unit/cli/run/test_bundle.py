"""Whether a folder goes along with a job, and what is said about it."""

from pathlib import Path

import pytest

from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.base.errors import InputError
from gangline.cli.manifests.from_command import job_from_command
from gangline.cli.run.bundle import bundle_of, mentioned_files
from gangline.cli.run.request import RunJob
from gangline.sdk.build.pod_templates import training_containers
from gangline.sdk.ship.archive import GIB


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "project"
    (found / "pkg").mkdir(parents=True)
    for name in ("train.py", "pkg/__main__.py", "pkg/tool.py", "job.yaml", "model.bin"):
        (found / name).write_text("")
    return found


def job(folder: Path, *command: str, from_file: bool = True) -> RunJob:
    return RunJob(PYTORCHJOB, job_from_command("PyTorchJob", command, 2)[1], folder, from_command=not from_file)


@pytest.mark.parametrize(
    ("command", "files"),
    [
        (["python", "train.py", "--lr", "0.1"], {"train.py"}),
        (["python", "./pkg/../train.py"], {"train.py"}),
        (["python", "-m", "pkg"], {"pkg/__main__.py"}),
        (["python", "-m", "pkg.tool"], {"pkg/tool.py"}),
        (["sh", "-c", "cd . && python train.py --weights=model.bin; true"], {"train.py", "model.bin"}),
        (["python", "/opt/train.py"], set()),
        (["python", "../project/train.py"], set()),
        (["python", "-c", "x" * 5000], set()),
        (["pkg"], set()),
    ],
)
def test_files_of_the_folder_that_a_command_names(folder: Path, command: list[str], files: set[str]) -> None:
    assert set(mentioned_files(job(folder, *command))) == files


def test_with_a_file_the_folder_goes_if_the_command_names_a_file_of_it(folder: Path, tmp_path: Path) -> None:
    assert bundle_of(job(folder, "python", "train.py"), tmp_path, GIB).shipment is not None
    assert bundle_of(job(folder, "python", "/opt/train.py"), tmp_path, GIB).shipment is None
    assert bundle_of(job(folder, "python", "/opt/train.py"), tmp_path, GIB, ship=True).shipment is not None
    assert bundle_of(job(folder, "python", "train.py"), tmp_path, GIB, ship=False).shipment is None


def test_with_a_command_the_folder_always_goes(folder: Path, tmp_path: Path) -> None:
    asked = job(folder, "python", "-c", "import train", from_file=False)
    assert bundle_of(asked, tmp_path, GIB).shipment is not None
    assert bundle_of(asked, tmp_path, GIB, ship=False).shipment is None


def test_an_empty_folder_need_not_go(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert bundle_of(job(empty, "nvidia-smi", from_file=False), tmp_path, GIB) == (
        job(empty, "nvidia-smi", from_file=False),
        None,
        (),
    )


def test_containers_with_a_place_of_their_own_get_no_folder(folder: Path, tmp_path: Path) -> None:
    asked = job(folder, "python", "train.py")
    for container in training_containers(asked.body, asked.kind):
        container["workingDir"] = "/app"
    assert bundle_of(asked, tmp_path, GIB).shipment is None
    with pytest.raises(InputError, match="--ship: pytorchjob/train has a workingDir in every container"):
        bundle_of(asked, tmp_path, GIB, ship=True)


def test_what_goes_is_told_and_what_does_not_as_well(folder: Path, tmp_path: Path) -> None:
    (folder / ".gitignore").write_text("*.bin\n")
    (folder / "data").symlink_to(tmp_path)
    cargo = bundle_of(job(folder, "python", "train.py", "model.bin"), tmp_path, GIB)
    assert cargo.notes == (
        f"shipping {folder}: 5 files, 6 bytes, in a ConfigMap",
        "warning: not shipped, for they are no files: data",
        "warning: model.bin is not shipped: .gitignore leaves it out, and the command names it",
    )


def test_too_large_a_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "model.bin").write_text("x" * 2000)
    with pytest.raises(InputError, match=r"more than 1 KiB; the biggest: model.bin \(2.0 KiB\)"):
        bundle_of(job(folder, "python", "train.py"), tmp_path, 1024)
