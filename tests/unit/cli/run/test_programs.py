"""The program of a command, before anything is started."""

import re
import sys
from pathlib import Path

import pytest

from gangline.base.errors import InputError
from gangline.cli.run.programs import check_command_files, shell_command


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["python", "missing.py"], "missing.py: no such file; processes start in "),
        (["python", "tran.py"], "tran.py: no such file; processes start in .*; did you mean train.py?"),
        (["no-such-program"], "no-such-program: no such program on PATH"),
        (["train.py"], "train.py: no such program on PATH; write: -- python train.py"),
        (["run.sh"], "run.sh: no such program on PATH; write: -- bash run.sh"),
        (["./train.py"], "./train.py: is not executable; .*python ./train.py"),
        (["./missing"], "./missing: no such file"),
    ],
)
def test_a_command_that_cannot_start_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], message: str
) -> None:
    for name in ("train.py", "run.sh"):
        (tmp_path / name).touch(mode=0o600)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as raised:
        check_command_files(command)
    assert re.match(message.replace("?", r"\?"), str(raised.value)), raised.value


def test_what_can_start_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    for command in (["python", "train.py"], [sys.executable, "train.py"], ["sh", "-c", "exit"], []):
        check_command_files(command)


def other_python(folder: Path) -> Path:
    program = folder / "python"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


def test_the_python_of_an_active_environment_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = other_python(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    active = {"VIRTUAL_ENV": str(tmp_path)}
    assert shell_command(["python", "train.py"], active) == (str(program), "train.py")


def test_a_gangline_that_was_started_by_its_path_uses_the_python_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_python(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shell_command(["python", "train.py"], {}) == ("python", "train.py")
    assert shell_command(["./python", "train.py"], {"VIRTUAL_ENV": "x"}) == ("./python", "train.py")


def test_a_gangline_on_path_uses_the_python_of_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = other_python(tmp_path)
    (tmp_path / "gangline").symlink_to(Path(sys.executable).parent / "gangline")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "gangline")])
    assert shell_command(["python", "train.py"], {}) == (str(program), "train.py")
