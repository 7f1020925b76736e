"""The files of a folder that are shipped, and their archive."""

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from gangline.base.errors import InputError
from gangline.sdk.ship.archive import FileEntry, list_files, size_text, write_archive


def write(folder: Path, *names: str, text: str = "x") -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def paths(folder: Path) -> list[str]:
    return [item.path for item in list_files(folder).files]


def test_everything_is_sent_in_the_order_of_its_path(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "lib/a.py", "lib/b/c.txt", ".hidden")
    assert paths(tmp_path) == [".hidden", "lib/a.py", "lib/b/c.txt", "train.py"]


def test_what_nobody_means_is_left_out_even_if_git_would_take_it(tmp_path: Path) -> None:
    write(tmp_path, ".git/config", ".venv/lib/x.py", "a/__pycache__/a.pyc", "web/node_modules/x.js", "train.py")
    write(tmp_path, "env/pyvenv.cfg", "env/lib/y.py", ".gitignore", text="!.venv\n!__pycache__\n")
    assert paths(tmp_path) == [".gitignore", "train.py"]


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        ({".gitignore": "*.log\n"}, ["data/x.bin", "lib/x.py", "train.py"]),
        ({".gitignore": "# no\n\n/data/\n"}, ["a.log", "lib/deep/a.log", "lib/x.py", "train.py"]),
        (
            {".gitignore": "*.log\n!lib/deep/a.log\n"},
            ["data/x.bin", "lib/deep/a.log", "lib/x.py", "train.py"],
        ),
        # A file below an ignored folder cannot be included again.
        ({".gitignore": "lib/\n!lib/x.py\n"}, ["a.log", "data/x.bin", "train.py"]),
        # The deeper file takes precedence, in both directions.
        (
            {".gitignore": "*.log\n", "lib/.gitignore": "!*.log\nx.py\n"},
            ["data/x.bin", "lib/deep/a.log", "train.py"],
        ),
        # Difficult patterns.
        ({".gitignore": "lib/*\n!lib/x.py\n"}, ["a.log", "data/x.bin", "lib/x.py", "train.py"]),
        ({".gitignore": "**/deep\n"}, ["a.log", "data/x.bin", "lib/x.py", "train.py"]),
        ({".gitignore": "lib/**/a.log\nx.*  \n"}, ["a.log", "train.py"]),
        ({".gitignore": "\\#x\ntrain.p[xyz]\n"}, ["a.log", "data/x.bin", "lib/deep/a.log", "lib/x.py"]),
        ({".gitignore": "*\n!*/\n!*.py\n"}, ["lib/x.py", "train.py"]),
        (
            {".gitignore": "deep/\n!deep/\n"},
            ["a.log", "data/x.bin", "lib/deep/a.log", "lib/x.py", "train.py"],
        ),
        ({".gitignore": "train.py/\ndata\n"}, ["a.log", "lib/deep/a.log", "lib/x.py", "train.py"]),
        ({".gitignore": "deep\n!lib/\n"}, ["a.log", "data/x.bin", "lib/x.py", "train.py"]),
        ({".gitignore": "*.log\n!lib/\n"}, ["data/x.bin", "lib/x.py", "train.py"]),
        ({".gitignore": "/*\n!/lib\n/lib/*\n!/lib/deep\n"}, ["lib/deep/a.log"]),
        ({".gitignore": "lib/**\n!lib/x.py\n"}, ["a.log", "data/x.bin", "lib/x.py", "train.py"]),
        ({".gitignore": "lib/**/\n"}, ["a.log", "data/x.bin", "lib/x.py", "train.py"]),
        ({"lib/.gitignore": "/a.log\n"}, ["a.log", "data/x.bin", "lib/deep/a.log", "lib/x.py", "train.py"]),
    ],
)
def test_gitignore_is_honoured_as_git_does(tmp_path: Path, rules: dict[str, str], kept: list[str]) -> None:
    write(tmp_path, "train.py", "a.log", "data/x.bin", "lib/x.py", "lib/deep/a.log")
    for name, text in rules.items():
        write(tmp_path, name, text=text)
    found = paths(tmp_path)
    assert [path for path in found if not path.endswith(".gitignore")] == kept
    assert found == git_takes(tmp_path)


def git_takes(folder: Path) -> list[str]:
    """The files that git would add."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True, env=environment)
    command = ["git", "ls-files", "--others", "--exclude-standard"]
    said = subprocess.run(command, cwd=folder, check=True, env=environment, capture_output=True, text=True)
    return sorted(said.stdout.splitlines())


def test_the_rules_of_the_repository_above_hold_too(tmp_path: Path) -> None:
    write(tmp_path, ".git/info/exclude", text="*.secret\n")
    write(tmp_path, ".gitignore", text="*.ckpt\n/exp/out/\n")
    write(tmp_path, "exp/train.py", "exp/a.ckpt", "exp/out/x", "exp/my.secret", "exp/deep/out/x")
    assert paths(tmp_path / "exp") == ["deep/out/x", "train.py"]


def test_without_a_repository_what_lies_above_is_nobodys_business(tmp_path: Path) -> None:
    write(tmp_path, ".gitignore", text="*\n")
    write(tmp_path, "exp/train.py")
    assert paths(tmp_path / "exp") == ["train.py"]


def test_links_to_files_are_followed_and_links_to_folders_are_told(tmp_path: Path) -> None:
    write(tmp_path, "far/data.txt", text="far away")
    here = tmp_path / "here"
    here.mkdir()
    (here / "data.txt").symlink_to(tmp_path / "far" / "data.txt")
    (here / "folder").symlink_to(tmp_path / "far")
    (here / "lost").symlink_to(tmp_path / "nowhere")
    os.mkfifo(here / "pipe")
    found = list_files(here)
    assert [item.path for item in found.files] == ["data.txt"]
    assert found.content(found.files[0]) == b"far away"
    assert found.skipped == ("folder", "lost", "pipe")


def test_a_folder_that_is_too_large_is_refused_with_the_biggest_files(tmp_path: Path) -> None:
    for name, size in {"a.bin": 3000, "train.py": 10, "data/b.bin": 5000, "c.bin": 2000}.items():
        write(tmp_path, name, text="x" * size)
    with pytest.raises(InputError) as refused:
        list_files(tmp_path, limit=4096)
    assert str(refused.value) == (
        f"{tmp_path}: 9.8 KiB in 4 files is more than 4 KiB; the biggest: data/b.bin (4.9 KiB), a.bin (2.9 KiB), "
        "c.bin (2.0 KiB); leave them out with .gitignore, or raise --ship-limit"
    )
    write(tmp_path, ".gitignore", text="*.bin\n")
    assert paths(tmp_path) == [".gitignore", "train.py"]


def test_a_folder_of_very_many_files_is_the_wrong_one(tmp_path: Path) -> None:
    write(tmp_path, "a", "b", "c", "d")
    with pytest.raises(InputError, match="has more than 3 files; run in the folder of the program"):
        list_files(tmp_path, most=3)


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")).write_text("x")
    with pytest.raises(InputError, match="its name is no text; rename it"):
        list_files(tmp_path)


def test_no_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: is no folder"):
        list_files(tmp_path / "nowhere")


def packed(folder: Path) -> tuple[bytes, str]:
    to = io.BytesIO()
    digest = write_archive(list_files(folder), to)
    return to.getvalue(), digest


def test_an_archive_holds_the_files_and_nothing_of_this_machine(tmp_path: Path) -> None:
    write(tmp_path, "train.py", "lib/x.py", "ünïcode " + "long" * 30, text="print(1)\n")
    (tmp_path / "train.py").chmod(0o700)
    data, _ = packed(tmp_path)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        members = archive.getmembers()
        held = archive.extractfile("lib/x.py")
        assert held is not None
        assert held.read() == b"print(1)\n"
    assert {member.name: member.mode for member in members} == {
        "lib/x.py": 0o644,
        "train.py": 0o755,
        "ünïcode " + "long" * 30: 0o644,
    }
    assert {(member.uid, member.uname, member.isfile()) for member in members} == {(0, "", True)}


def test_the_same_files_make_the_same_bytes_wherever_and_whenever_they_lie(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        write(folder, "train.py", "lib/x.py")
    os.utime(second / "train.py", (1, 1))
    (second / "lib" / "x.py").chmod(0o600)
    assert packed(first) == packed(second)
    write(second, "train.py", text="y")
    assert packed(first)[1] != packed(second)[1]


@pytest.mark.parametrize(
    ("size", "told"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (20_000_000, "19 MiB"),
        (2**30, "1 GiB"),
    ],
)
def test_amounts_are_told_shortly(size: int, told: str) -> None:
    assert size_text(size) == told


def test_an_executable_stays_one() -> None:
    assert (FileEntry("a", 1, executable=True).mode, FileEntry("a", 1).mode) == (0o755, 0o644)
