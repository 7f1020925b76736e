"""The program of a command, before anything is started."""

import re
import sys
from pathlib import Path

import pytest

from gangline.base.errors import InputError
from gangline.cli.run.programs import check_command_files


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
