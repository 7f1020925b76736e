"""Which folders are shipped with a job, and the notes about it."""

from pathlib import Path

import pytest

from gangline.base.errors import InputError
from gangline.cli.manifests.from_command import CommandJob, job_from_command
from gangline.cli.manifests.processes import ProcessCount
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
    kind, body = job_from_command(CommandJob("PyTorchJob", command, ProcessCount(2, 2)))
    return RunJob(kind, body, folder, from_command=not from_file)


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
def test_files_of_the_folder_that_a_command_mentions(folder: Path, command: list[str], files: set[str]) -> None:
    assert set(mentioned_files(job(folder, *command))) == files


def test_a_manifest_ships_its_folder_if_the_command_mentions_a_file_of_it(folder: Path, tmp_path: Path) -> None:
    assert bundle_of(job(folder, "python", "train.py"), tmp_path, GIB).shipment is not None
    assert bundle_of(job(folder, "python", "/opt/train.py"), tmp_path, GIB).shipment is None
    assert bundle_of(job(folder, "python", "/opt/train.py"), tmp_path, GIB, ship=True).shipment is not None
    assert bundle_of(job(folder, "python", "train.py"), tmp_path, GIB, ship=False).shipment is None


def test_a_command_always_ships_its_folder(folder: Path, tmp_path: Path) -> None:
    asked = job(folder, "python", "-c", "import train", from_file=False)
    assert bundle_of(asked, tmp_path, GIB).shipment is not None
    assert bundle_of(asked, tmp_path, GIB, ship=False).shipment is None


def test_an_empty_folder_is_not_shipped(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert bundle_of(job(empty, "nvidia-smi", from_file=False), tmp_path, GIB) == (
        job(empty, "nvidia-smi", from_file=False),
        None,
        (),
    )


def test_containers_with_a_working_dir_get_no_folder(folder: Path, tmp_path: Path) -> None:
    asked = job(folder, "python", "train.py")
    for container in training_containers(asked.body, asked.kind):
        container["workingDir"] = "/app"
    assert bundle_of(asked, tmp_path, GIB).shipment is None
    with pytest.raises(InputError, match="--ship: pytorchjob/train has a workingDir in every container"):
        bundle_of(asked, tmp_path, GIB, ship=True)


def test_notes_say_what_is_shipped_and_what_is_not(folder: Path, tmp_path: Path) -> None:
    (folder / ".gitignore").write_text("*.bin\n")
    (folder / "data").symlink_to(tmp_path)
    bundle = bundle_of(job(folder, "python", "train.py", "model.bin"), tmp_path, GIB)
    assert bundle.notes == (
        f"shipping {folder}: 5 files, 6 bytes, in a ConfigMap",
        "warning: not shipped, because they are not regular files: data",
        "warning: model.bin is not shipped: .gitignore leaves it out, and the command names it",
    )


def test_too_large_a_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "model.bin").write_text("x" * 2000)
    with pytest.raises(InputError, match=r"more than 1 KiB; the biggest: model.bin \(2.0 KiB\)"):
        bundle_of(job(folder, "python", "train.py"), tmp_path, 1024)


def test_credentials_are_refused_by_name_unless_the_user_insists(folder: Path, tmp_path: Path) -> None:
    (folder / ".env").write_text("PASSWORD=hunter2\n")
    (folder / "data.txt").symlink_to(tmp_path / "outside")
    (tmp_path / "outside").write_text("private")
    command = job(folder, "python", "train.py")
    with pytest.raises(InputError) as refusal:
        bundle_of(command, tmp_path, GIB)
    message = str(refusal.value)
    assert ".env (environment variables with secrets), data.txt (a link out of the folder)" in message
    assert "hunter2" not in message
    shipped = bundle_of(command, tmp_path, GIB, ship_secrets=True)
    assert shipped.notes[1].startswith("warning: ships what looks like credentials: .env (")
    assert bundle_of(command, tmp_path, GIB, ship=False).shipment is None
