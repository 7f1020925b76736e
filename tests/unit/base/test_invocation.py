"""What to type to run this gangline."""

import subprocess
import sys
from pathlib import Path

import pytest

from gangline.base.invocation import own_command, own_command_line, own_python, with_own_command


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virtual environment `some venv/` in the working directory, with a gangline script; nothing is on PATH."""
    folder = tmp_path / "some venv" / "bin"
    folder.mkdir(parents=True)
    (folder / "gangline").write_text(f'#!/bin/sh\nexec {sys.executable} -m gangline "$@"\n')
    (folder / "gangline").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setattr(sys, "argv", [str(folder / "gangline"), "demo"])
    monkeypatch.setenv("PATH", "/usr/bin")
    return folder


def test_a_command_on_the_path_is_its_name(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{environment}:/usr/bin")
    assert own_command() == "gangline"


def test_another_gangline_on_the_path_is_not_this_one(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "gangline").write_text("#!/bin/sh\n")
    (other / "gangline").chmod(0o755)
    monkeypatch.setenv("PATH", str(other))
    assert own_command() == "'some venv/bin/gangline'"


def test_a_command_below_the_working_directory_is_relative_and_quoted(environment: Path) -> None:
    assert own_command() == "'some venv/bin/gangline'"


def test_the_printed_command_runs_in_a_shell(environment: Path) -> None:
    result = subprocess.run(["sh", "-c", own_command_line("--version")], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("gangline ")


def test_a_command_elsewhere_is_absolute(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/usr")
    assert own_command() == f"'{environment}/gangline'"


def test_at_the_root_paths_are_absolute(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert own_command() == f"'{environment}/gangline'"


def test_a_library_names_the_script_beside_the_interpreter(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train.py"])
    assert own_command() == "'some venv/bin/gangline'"


def test_without_a_script_the_module_is_run(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (environment / "gangline").unlink()
    monkeypatch.setattr(sys, "argv", ["-c"])
    assert own_command() == "'some venv/bin/python' -m gangline"


def test_a_kubectl_plugin_is_named_as_kubectl_names_it(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(environment / "kubectl-gangline"), "get"])
    assert own_command() == "kubectl gangline"


def test_words_are_quoted(environment: Path) -> None:
    assert own_command_line("run", "my job.yaml") == "'some venv/bin/gangline' run 'my job.yaml'"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "see gangline get jobs -A, or gangline why x",
            "see 'some venv/bin/gangline' get jobs -A, or 'some venv/bin/gangline' why x",
        ),
        ("gangline crds | kubectl apply -f -", "'some venv/bin/gangline' crds | kubectl apply -f -"),
        ("this gangline has them; gangline runs pods", "this gangline has them; gangline runs pods"),
        (
            "kubectl gangline get, .venv/bin/gangline get, my-gangline get",
            "kubectl gangline get, .venv/bin/gangline get, my-gangline get",
        ),
    ],
)
def test_commands_in_a_text_are_replaced_and_names_stay(environment: Path, text: str, shown: str) -> None:
    assert with_own_command(text) == shown


def test_a_backslash_in_a_path_is_kept(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.base.invocation.own_command", lambda: r"'a\1b/gangline'")
    assert with_own_command("gangline up") == r"'a\1b/gangline' up"


def test_the_interpreter_is_python_where_a_shell_means_this_one(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert own_python() == f"'{environment}/python'"
    (environment / "python").symlink_to(sys.base_prefix)
    monkeypatch.setattr("shutil.which", lambda name: str(environment / name))
    assert own_python() == "python"
