"""The README, word for word: every command in it, in a fresh clone, and every `next:` that is printed on the way."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.frameworks import FrameworkEnvironments
from support.readme import ConsoleBlock, Person, PersonShell, console_blocks, fresh_clone, next_commands, python_folder

ROOT = Path(__file__).parents[2]
BLOCKS = console_blocks((ROOT / "README.md").read_text())
UNPRIVILEGED = 54321
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
TAGS = {
    "": "played here",
    "alternatives": "each by itself, in an environment of its own",
    "torch": "with a Python that has torch: make test-frameworks",
    "tests": "is what runs this file",
    "cluster": "needs a cluster: tests/contract/test_install.py",
}

first_minutes = pytest.mark.first_minutes


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """A folder that others than root can enter, with a space in its name."""
    folder = Path(tempfile.mkdtemp(prefix="first minutes "))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def person(place: Path, name: str, *, privileged: bool) -> Person:
    """Oneself with the usual umask, or (for root alone) a user without rights and with umask 077."""
    uid, umask = (os.getuid(), 0o022) if privileged else (UNPRIVILEGED, 0o077)
    if not privileged and os.getuid() != 0:
        pytest.skip("only root can become another user; played as oneself only")
    home = place / name / "home"
    home.mkdir(parents=True)
    someone = Person(home, uid, umask, SYSTEM_PATH)
    python = python_folder(someone)
    if python is None:
        pytest.skip(f"no Python 3.11 with venv that user {uid} may run")
    own_cache = Path(os.environ.get("PIP_CACHE_DIR") or Path.home() / ".cache" / "pip")
    cache = own_cache if privileged else place / f"cache of {uid}"
    cache.mkdir(parents=True, exist_ok=True)
    someone.own(cache)
    someone.own(home)
    return someone._replace(path=f"{python}:{SYSTEM_PATH}", environment={"PIP_CACHE_DIR": str(cache)})


def playable(commands: tuple[str, ...]) -> list[str]:
    """Without those of kubectl, where it is not installed."""
    return [line for line in commands if not line.startswith("kubectl ") or shutil.which("kubectl", path=SYSTEM_PATH)]


@first_minutes
@pytest.mark.timeout(900)
@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("privileged", [True, False], ids=["as-oneself", "unprivileged-umask-077"])
def test_the_readme_word_for_word(place: Path, columns: int, privileged: bool) -> None:
    name = f"{columns}-{privileged}"
    someone = person(place, name, privileged=privileged)
    clone = fresh_clone(ROOT, place / name / "a clone")
    someone.own(clone)
    with PersonShell(someone, clone, columns) as shell:
        printed = "".join(shell.play(playable(block.commands)) for block in BLOCKS if not block.tag)
    assert re.search(r"set-up: [12]\d packages in [\d.]+ s", printed)
    # What the demo prints before the command is on PATH.
    assert ".venv/bin/gangline why linear" in shell.typed
    assert "gangline get jobs" in shell.typed


@first_minutes
@pytest.mark.timeout(600)
@pytest.mark.parametrize("tool", ["pip", "pipx", "uv"])
def test_each_way_to_get_the_command_leads_to_the_demo(place: Path, tool: str) -> None:
    (block,) = (block for block in BLOCKS if block.tag == "alternatives")
    (command,) = (line for line in block.commands if line.split()[0] == tool)
    someone = person(place, f"with {tool}", privileged=True)
    clone = fresh_clone(ROOT, place / f"with {tool}" / "a clone")
    tools = place / f"with {tool}" / "tools"
    subprocess.run([sys.executable, "-m", "venv", str(tools)], check=True)
    if tool != "pip":
        subprocess.run([str(tools / "bin" / "pip"), "install", "--quiet", tool], check=True)
    path = f"{someone.home}/.local/bin:{tools / 'bin'}:{someone.path}"
    elsewhere = someone.home / "some where"
    elsewhere.mkdir()
    with PersonShell(someone._replace(path=path), clone, 100) as shell:
        shell.type(command)
        shell.type("cd ~/'some where'")
        shell.play(["gangline --version", "gangline demo --pace 0.005"])
    assert "gangline why linear" in shell.typed


@pytest.mark.frameworks
@pytest.mark.timeout(600)
def test_the_torch_script_of_the_readme_runs(place: Path) -> None:
    (block,) = (block for block in BLOCKS if block.tag == "torch")
    environment = FrameworkEnvironments().environment("torch")
    someone = person(place, "torch", privileged=True)
    path = f"{Path(sys.executable).parent}:{someone.path}"
    with PersonShell(someone._replace(path=path), ROOT, 100) as shell:
        # The Python of the shell is the one with torch; the command is found after it.
        shell.type(f"export PATH={environment}/bin:$PATH")
        shell.play(block.commands)


def test_every_tag_of_a_block_says_where_it_is_played() -> None:
    assert {block.tag for block in BLOCKS} == set(TAGS)


def test_two_commands_come_first_and_then_how_to_get_the_command() -> None:
    assert BLOCKS[0] == ConsoleBlock("", ("make demo",))
    assert BLOCKS[1] == ConsoleBlock("tests", ("make test",))
    assert BLOCKS[2] == ConsoleBlock("", (". .venv/bin/activate", "gangline doctor"))


@pytest.fixture
def me(tmp_path: Path) -> Person:
    return Person(tmp_path, os.getuid(), 0o077, SYSTEM_PATH)


def test_a_readme_whose_command_fails_is_noticed(me: Person, tmp_path: Path) -> None:
    page = "```console\n$ echo fine\nfine\n$ gangline-is-not-here\n```\n"
    with PersonShell(me, tmp_path, 80) as shell, pytest.raises(AssertionError, match="exit code 127"):
        shell.play(console_blocks(page)[0].commands)
    assert shell.typed == ["echo fine", "gangline-is-not-here"]


def test_a_next_line_that_fails_is_noticed(me: Person, tmp_path: Path) -> None:
    with PersonShell(me, tmp_path, 80) as shell, pytest.raises(AssertionError, match=r"(?s)\$ false.*exit code 1"):
        shell.play(["printf 'next: %s\\n' true; printf '      %s\\n' false"])
    assert shell.typed[1:] == ["true", "false"]


def test_the_shell_has_the_umask_the_folder_and_the_width_it_was_given(me: Person, tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    with PersonShell(me, folder, 120) as shell:
        assert shell.type("umask; pwd; tput cols; echo $HOME") == f"0077\n{folder}\n120\n{tmp_path}"


def test_what_comes_next_is_read_line_by_line() -> None:
    output = "✔ Succeeded\nnext: a get\n      a why 'x y'\ncurve: x\n      not this\n"
    assert next_commands(output) == ["a get", "a why 'x y'"]
