"""The how-to pages, word for word; a page that cannot be played here says why not."""

import os
import re
import sys
from pathlib import Path

import pytest

from support.how_to import PAGE_NOT_PLAYED, named_tests
from support.readme import Person, PersonShell
from support.tutorials import TypedCommand, follow, make_environment, tutorial_steps

ROOT = Path(__file__).parents[2]
PAGES = {page.stem: page.read_text() for page in sorted((ROOT / "docs" / "how-to").glob("*.md"))}
PLAYED = sorted(name for name, text in PAGES.items() if not PAGE_NOT_PLAYED.search(text))
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@pytest.mark.first_minutes
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLAYED)
def test_a_how_to_page_word_for_word(name: str, tmp_path: Path) -> None:
    packages = [ROOT / "src", *(Path(path) for path in sys.path if Path(path).name == "site-packages")]
    programs = make_environment(tmp_path / "try", Path(sys.executable), packages)
    home, folder = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    folder.mkdir()
    with PersonShell(Person(home, os.getuid(), 0o022, f"{programs}:{SYSTEM_PATH}"), folder, 200) as shell:
        try:
            follow(PAGES[name], shell, folder)
        finally:
            if "gangline up --detach" in shell.typed and shell.typed[-1] != "gangline down":
                shell.type("gangline down")


def test_some_pages_are_played_and_the_others_name_the_tests_that_do_their_work() -> None:
    assert len(PAGES) >= 25
    assert len(PLAYED) >= 25
    for name in set(PAGES) - set(PLAYED):
        found = PAGE_NOT_PLAYED.search(PAGES[name])
        assert found is not None
        paths = named_tests(found[1])
        assert paths, f"{name}: name the test"
        assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_list_of_how_to_pages_has_every_one_once() -> None:
    listed = re.findall(r"\]\(how-to/([\w-]+)\.md\)", (ROOT / "docs" / "how-to.md").read_text())
    assert sorted(listed) == sorted(PAGES)


def test_a_block_that_is_not_played_has_a_known_tag() -> None:
    tags = {step.tag for text in PAGES.values() for step in tutorial_steps(text) if isinstance(step, TypedCommand)}
    assert tags <= {"", "fails", "setup", "other-terminal", "cluster"}
