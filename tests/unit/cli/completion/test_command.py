"""The completion script of each shell, and the candidates for PowerShell."""

import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from gangline.cli.completion.command import SHELLS
from gangline.cli.completion.powershell import PowerShellComplete
from gangline.cli.main import cli


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script_that_calls_gangline(shell: str) -> None:
    completed = CliRunner().invoke(cli, ["completion", shell], prog_name="gangline")
    assert completed.exit_code == 0, completed.output
    assert f"{shell}_complete" in completed.stdout
    assert "_GANGLINE_COMPLETE" in completed.stdout


def test_an_unknown_shell_is_an_error_that_names_the_known_ones() -> None:
    completed = CliRunner().invoke(cli, ["completion", "tcsh"], prog_name="gangline")
    assert completed.exit_code != 0
    assert "'powershell'" in completed.output


def test_the_script_for_powershell_has_its_names_filled_in_and_its_brackets_closed() -> None:
    script = PowerShellComplete(cli, {}, "gangline", "_GANGLINE_COMPLETE").source()
    assert "-CommandName 'gangline'" in script
    assert "%" not in script
    for opens, closes in ("{}", "()", "[]"):
        assert script.count(opens) == script.count(closes)


@pytest.mark.parametrize(
    ("words", "under", "args", "incomplete"),
    [
        (["gangline"], "", [], ""),
        (["gangline", "ge"], "ge", [], "ge"),
        (["gangline", "get", "jobs"], "", ["get", "jobs"], ""),
        (["gangline", "get", "get"], "get", ["get"], "get"),
        (["gangline", "logs", "'two words'", '"ha'], '"ha', ["logs", "two words"], "ha"),
    ],
)
def test_words_and_the_incomplete_word_are_read_from_powershell(
    words: list[str], under: str, args: list[str], incomplete: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMP_WORDS", "\n".join(words))
    monkeypatch.setenv("COMP_CWORD", under)
    shell = PowerShellComplete(cli, {}, "gangline", "_GANGLINE_COMPLETE")
    assert shell.get_completion_args() == (args, incomplete)


def test_powershell_gets_candidates_with_their_help_and_completes_files_itself() -> None:
    shell = PowerShellComplete(cli, {}, "gangline", "_GANGLINE_COMPLETE")
    item = click.shell_completion.CompletionItem
    assert shell.format_completion(item("--out", help="Where to.\n  Else here.")) == "--out\tWhere to. Else here."
    assert shell.format_completion(item("jobs")) == "jobs"
    assert shell.format_completion(item("", type="file")) == ""


def test_the_command_answers_powershell() -> None:
    environment = {"_GANGLINE_COMPLETE": "powershell_complete", "COMP_WORDS": "gangline\nsw", "COMP_CWORD": "sw"}
    completed = subprocess.run(
        [sys.executable, "-m", "gangline"], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.startswith("sweep\tTry a job with many parameter values")
