"""The terminal of the tests misses nothing, however late they come to look at it."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.terminal import PtyTerminal

# Three states in one place, as a block that is drawn anew: all of them are there before anybody reads.
DRAWS = "import sys; sys.stdout.write('failed' + '\\r\\x1b[2Krestarting' + '\\r\\x1b[2Krunning\\n')"


def shows(word: str) -> Callable[[str], bool]:
    return lambda text: text == word


def test_what_was_shown_for_a_moment_is_seen_by_one_who_comes_later(tmp_path: Path) -> None:
    with PtyTerminal([sys.executable, "-c", DRAWS], cwd=tmp_path) as terminal:
        terminal.process.wait(60)
        for word in ("failed", "restarting", "running"):
            terminal.wait_for(shows(word))
        assert terminal.wait_for_exit() == 0


def test_what_is_not_shown_is_not_seen(tmp_path: Path) -> None:
    with PtyTerminal([sys.executable, "-c", DRAWS], cwd=tmp_path) as terminal:
        terminal.wait_for(shows("running"))
        with pytest.raises(AssertionError, match="running"):
            terminal.wait_for(shows("failed"))


HALVES = """
import pathlib, sys, time
sys.stdout.write("old\\r\\x1b[")
sys.stdout.flush()
while not pathlib.Path("go").exists():
    time.sleep(0.01)
print("2Knew")
"""


def test_an_order_that_comes_in_two_halves_is_obeyed_all_the_same(tmp_path: Path) -> None:
    with PtyTerminal([sys.executable, "-c", HALVES], cwd=tmp_path) as terminal:
        terminal.wait_for(shows("old"))
        (tmp_path / "go").touch()
        terminal.wait_for(shows("new"))
        assert terminal.wait_for_exit() == 0
