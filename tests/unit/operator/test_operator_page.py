"""docs/operator.md lists all flags."""

import re
from pathlib import Path

import click

from gangline.operator.main import IGNORED_FLAGS, operator

PAGE = (Path(__file__).parents[3] / "docs" / "operator.md").read_text()
ROW = re.compile(r"^\| (`--[^|]+) \| ([^|]*)\| (.+) \|$", re.MULTILINE)
OPTIONS = [option for option in operator.params if isinstance(option, click.Option) and not option.hidden]


def default(option: click.Option) -> str:
    """The default as in the table: empty if there is none."""
    value = option.default
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else ""


def test_every_flag_is_in_the_table_with_its_default_and_no_other() -> None:
    written = {
        tuple(re.findall(r"`(--[\w-]+)`", flags)): shown.strip().strip("`") for flags, shown, _ in ROW.findall(PAGE)
    }
    assert written == {tuple(option.opts): default(option) for option in OPTIONS}


def test_flags_without_effect_are_named() -> None:
    assert [name for name in IGNORED_FLAGS if f"`{name}`" not in PAGE] == []


def test_every_flag_says_what_it_does() -> None:
    assert [option.name for option in OPTIONS if not option.help] == []
