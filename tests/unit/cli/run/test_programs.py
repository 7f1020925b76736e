"""The program of a command, before anything is started."""

import re
import sys
from pathlib import Path

import pytest

from gangline.base.errors import InputError
from gangline.cli.run.programs import check_command_files, hidden_modules


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["python", "missing.py"], "missing.py: no such file; processes start in "),
        (["python", "tran.py"], "tran.py: no such file; processes start in .*; did you mean train.py?"),
        (["python", "-u", "tran.py"], "tran.py: no such file; processes start in .*; did you mean train.py?"),
        (["bash", "missing.sh"], "missing.sh: no such file; processes start in "),
        (["python", "-"], "python -: reads its program from standard input, which processes of a run do not have"),
        (["python3"], "python3: reads its program from standard input"),
        (["no-such-program"], "no-such-program: no such program on PATH"),
        (["train.py"], "train.py: no such program on PATH; write: -- python train.py"),
        (["run.sh"], "run.sh: no such program on PATH; write: -- bash run.sh"),
        (["./train.py"], "./train.py: is not executable; .*python ./train.py"),
        (["./missing"], "./missing: no such file"),
        (["pyhton", "train.py"], "pyhton: no such program on PATH; did you mean python?"),
        (["horovodrun", "-np", "2", "a.py"], "horovodrun: is not installed .*horovod.*, write: -- python a.py$"),
        (["python train.py"], "python train.py: is no program; leave the quotes out: -- python train.py$"),
        (["python ./train.py"], "python ./train.py: is no program; leave the quotes out: -- python ./train.py$"),
        (["cd /; python a.py"], "cd /; python a.py: is no program; .* -- bash -c 'cd /; python a.py'$"),
        (["A=b", "python", "x y.py"], "A=b: is a variable and no program; write: -- env A=b python 'x y.py'$"),
        (["source", "activate"], "source: is of the shell and no program; do it before the run"),
        (["python", "-m", "pkg/train.py"], "-m pkg/train.py: a module has no .py; write: -- python -m pkg.train$"),
        (["python", "."], ".: is a folder without __main__.py; name the script in it"),
        (["python", "sub\\a.py"], ".*a.py: no such file; .*; write sub/a.py$"),
        (["python", "numpy.py"], "numpy.py: imports numpy, which is the script itself by its name; rename it"),
        (["./plain.sh"], "./plain.sh: does not begin with #!; write: -- bash ./plain.sh$"),
        (["./windows.sh"], "./windows.sh: has line endings of Windows; convert it: sed -i 's/.*' ./windows.sh$"),
    ],
)
def test_a_command_that_cannot_start_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], message: str
) -> None:
    for name in ("train.py", "run.sh"):
        (tmp_path / name).touch(mode=0o600)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.py").touch()
    (tmp_path / "numpy.py").write_text("x = 1\nfrom numpy.linalg import norm\n")
    for name, text in {"plain.sh": "date\n", "windows.sh": "#!/bin/sh\r\ndate\r\n"}.items():
        (tmp_path / name).write_bytes(text.encode())
        (tmp_path / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as raised:
        check_command_files(command)
    assert re.match(message.replace("?", r"\?"), str(raised.value)), raised.value


def test_what_can_start_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    for command in (["python", "train.py"], [sys.executable, "train.py"], ["sh", "-c", "exit"], []):
        check_command_files(command)


def test_a_script_may_import_itself_by_a_name_that_is_no_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("import train\n")
    monkeypatch.chdir(tmp_path)
    check_command_files(["python", "train.py"])


def test_a_file_that_hides_a_module_which_the_script_imports_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("queue.py", "torch.py", "model.py", "random.py"):
        (tmp_path / name).touch()
    (tmp_path / "train.py").write_text("import model\nfrom torch import nn\nif True:\n    import queue\n")
    assert hidden_modules(["python", "train.py"]) == [
        "queue.py: hides the module queue, which train.py imports; rename it",
        "torch.py: hides the module torch, which train.py imports; rename it",
    ]
    assert hidden_modules(["python", "-m", "train"]) == hidden_modules([]) == []
