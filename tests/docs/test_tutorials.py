"""The tutorials, word for word: every file saved, every command typed, every line of output there.

The person has the pages, a home folder with the wheel in it, and Python. Only PyTorch is not fetched, because it has
gigabytes: the environment that a page says to make sees the one that `make test-frameworks` made.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.frameworks import FrameworkEnvironments
from support.readme import Person, PersonShell, python_folder
from support.requirements import skip_or_fail
from support.tutorials import SavedFile, TypedCommand, build_wheel, follow, missing_lines, tutorial_steps

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"
NAMES = sorted(page.stem for page in TUTORIALS.glob("*.md"))
LAPTOP, CLUSTER, QUEUE, OWN_KIND = (
    "laptop-in-five-minutes",
    "the-same-script-in-a-cluster",
    "a-queue-for-two-teams",
    "your-own-job-kind",
)
TAGS = {"": "typed", "fails": "typed, and ends with an error", "setup": "typed: how the environment is made"}
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
MAKES_ENVIRONMENT = "python3 -m venv ~/try"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """gangline as people install it."""
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


class Reader(NamedTuple):
    """Somebody with a home folder, and a Python to make environments with."""

    home: Path
    python: Path
    others: tuple[Path, ...] = ()
    """Folders of packages that the new environment sees."""

    def shell(self) -> PersonShell:
        """A new terminal, in the home folder."""
        cache = os.environ.get("PIP_CACHE_DIR") or str(Path.home() / ".cache" / "pip")
        person = Person(self.home, os.getuid(), 0o022, f"{self.python}:{SYSTEM_PATH}", {"PIP_CACHE_DIR": cache})
        return PersonShell(person, self.home, 200, patience=600)

    def link_packages(self, command: str) -> None:
        """Show the packages of others to the environment, once it is there."""
        if command == MAKES_ENVIRONMENT and self.others:
            (site,) = (self.home / "try").glob("lib/python*/site-packages")
            (site / "others.pth").write_text("".join(f"{path}\n" for path in self.others))
            for name, version in absent_requirements("torch", self.others):
                (site / f"{name}-{version}.dist-info").mkdir()
                text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
                (site / f"{name}-{version}.dist-info" / "METADATA").write_text(text)


def absent_requirements(package: str, folders: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """What a package says that it needs and a processor without a GPU does not: names, and versions that would do."""
    found = {
        canonicalize_name(each.metadata["Name"]): each
        for each in distributions(path=[str(folder) for folder in folders])
    }
    for requirement in map(Requirement, found[canonicalize_name(package)].requires or ()):
        wanted = [each.version for each in requirement.specifier if each.operator in ("==", ">=")]
        is_wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if is_wanted and canonicalize_name(requirement.name) not in found and wanted:
            yield requirement.name.replace("-", "_"), wanted[0]


@pytest.fixture
def make_reader(tmp_path: Path, wheel: Path) -> Callable[[str], Reader]:
    """Makes a reader with the wheel at home, and with a framework ("" for none)."""

    def make(framework: str) -> Reader:
        home = tmp_path / "home"
        home.mkdir()
        shutil.copy(wheel, home)
        if framework:
            environment = FrameworkEnvironments().environment(framework)
            packages = tuple(environment.glob("lib/python*/site-packages"))
            return Reader(home, (environment / "bin" / "python3").resolve().parent, packages)
        python = python_folder(Person(home, os.getuid(), 0o022, SYSTEM_PATH))
        if python is None:
            skip_or_fail("no Python that makes environments", required="GANGLINE_REQUIRE_PYTHON")
        return Reader(home, python)

    return make


def play(reader: Reader, *names: str) -> Mapping[str, float]:
    """Do what the pages say, one after the other in one terminal. Returns the seconds that each took."""
    seconds = {}
    with reader.shell() as shell:
        try:
            for name in names:
                started = time.monotonic()
                page = (TUTORIALS / f"{name}.md").read_text()
                follow(page, shell, reader.home / "work", omit=(), after=reader.link_packages)
                seconds[name] = time.monotonic() - started
        finally:
            if any("gangline up" in command for command in shell.typed) and shell.typed[-1] != "gangline down":
                shell.type("gangline down")
    return seconds


def report(seconds: Mapping[str, float], capsys: pytest.CaptureFixture[str]) -> None:
    """Print how long each page took, also where the test passes."""
    with capsys.disabled():
        for name, each in seconds.items():
            print(f"\ntutorial {name}: {each:.0f} s", end=" ", flush=True)


@pytest.mark.frameworks
@pytest.mark.timeout(1800)
@pytest.mark.xdist_group("frameworks")
def test_a_script_runs_on_a_laptop_and_then_in_a_cluster(
    make_reader: Callable[[str], Reader], capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = play(make_reader("torch"), LAPTOP, CLUSTER)
    assert list(seconds) == [LAPTOP, CLUSTER]
    report(seconds, capsys)


@pytest.mark.first_minutes
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [QUEUE, OWN_KIND])
def test_a_tutorial_that_needs_no_framework(
    name: str, make_reader: Callable[[str], Reader], capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = play(make_reader(""), name)
    assert list(seconds) == [name]
    report(seconds, capsys)


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
