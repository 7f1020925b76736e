"""The tutorials, word for word: every file saved, every command typed, every line of output there."""

import os
import sys
from pathlib import Path

import pytest

from support.frameworks import FrameworkEnvironments
from support.readme import Person, PersonShell
from support.tutorials import SavedFile, TypedCommand, follow, make_environment, missing_lines, tutorial_steps

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
NAMES = sorted(page.stem for page in TUTORIALS.glob("*.md"))
LAPTOP, CLUSTER, QUEUE, OWN_KIND = (
    "laptop-in-five-minutes",
    "the-same-script-in-a-cluster",
    "a-queue-for-two-teams",
    "your-own-job-kind",
)
TAGS = {"": "typed", "fails": "typed, and ends with an error", "setup": "the environment that this file makes"}
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


def own_packages() -> list[Path]:
    return [ROOT / "src", *(Path(path) for path in sys.path if Path(path).name == "site-packages")]


def shell_of(tmp_path: Path, *, with_torch: bool) -> tuple[PersonShell, Path]:
    """A shell in an empty folder, with gangline and, if asked for, torch in its Python."""
    python, packages = Path(sys.executable), own_packages()
    if with_torch:
        environment = FrameworkEnvironments().environment("torch")
        python = environment / "bin" / "python"
        packages += environment.glob("lib/python*/site-packages")
    programs = make_environment(tmp_path / "try", python, packages)
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    person = Person(home, os.getuid(), 0o022, f"{programs}:{SYSTEM_PATH}")
    return PersonShell(person, folder, 200), folder


def play(tmp_path: Path, *names: str, with_torch: bool = False) -> list[str]:
    shell, folder = shell_of(tmp_path, with_torch=with_torch)
    with shell:
        try:
            for name in names:
                follow((TUTORIALS / f"{name}.md").read_text(), shell, folder)
        finally:
            if any("gangline up" in command for command in shell.typed) and shell.typed[-1] != "gangline down":
                shell.type("gangline down")
    return shell.typed


@pytest.mark.frameworks
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("frameworks")
def test_a_script_runs_on_a_laptop_and_then_in_a_cluster(tmp_path: Path) -> None:
    typed = play(tmp_path, LAPTOP, CLUSTER, with_torch=True)
    assert "gangline why broken" in typed
    assert typed[-1] == "gangline down"


@pytest.mark.first_minutes
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [QUEUE, OWN_KIND])
def test_a_tutorial_that_needs_no_framework(name: str, tmp_path: Path) -> None:
    assert play(tmp_path, name)[-1] == "gangline down"


def test_every_tutorial_is_played() -> None:
    assert sorted([LAPTOP, CLUSTER, QUEUE, OWN_KIND]) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_block_is_a_file_to_save_or_commands_with_a_known_tag(name: str) -> None:
    page = (TUTORIALS / f"{name}.md").read_text()
    steps = list(tutorial_steps(page))
    assert {step.tag for step in steps if isinstance(step, TypedCommand)} <= set(TAGS)
    files = sum(isinstance(step, SavedFile) for step in steps)
    assert page.count("\n```console") + files == page.count("\n```") // 2


def test_a_page_is_read_as_files_and_commands() -> None:
    page = "Save this as `a.py`:\n\n```py\nx = 1\n```\n\n```console fails\n$ one\nprinted …\n$ two\n```\n"
    assert list(tutorial_steps(page)) == [
        SavedFile("a.py", "x = 1\n"),
        TypedCommand("fails", "one", ("printed …",)),
        TypedCommand("fails", "two", ()),
    ]


def test_a_line_that_was_not_printed_is_noticed() -> None:
    output = "NAME    PHASE\nbig     Running  4   4   8s"
    assert missing_lines(["big   Running 4 4 …", "NAME … PHASE"], output) == []
    assert missing_lines(["big Pending …"], output) == ["big Pending …"]
