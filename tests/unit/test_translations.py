"""Translations are as new as their sources, and have the same code."""

import importlib.util
import json
import unicodedata
from pathlib import Path
from typing import Any

import click.testing
import pytest

from gangline.cli.main import COMMAND_SECTIONS, COMMANDS, cli

ROOT = Path(__file__).parents[2]


def loaded() -> Any:
    spec = importlib.util.spec_from_file_location("translations", ROOT / "hack" / "translations.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TRANSLATIONS = loaded()
RECORDED = json.loads(TRANSLATIONS.RECORD.read_text())


def test_no_translation_is_older_than_its_source() -> None:
    hint = "bring it up to date, then: python hack/translations.py --accept"
    assert list(TRANSLATIONS.problems(RECORDED)) == [], hint


def test_the_home_page_and_all_tutorials_are_translated() -> None:
    tutorials = (ROOT / "docs" / "tutorials").glob("*.md")
    assert {ROOT / "docs" / "index.md", *tutorials} <= set(TRANSLATIONS.sources().values())


def test_ten_how_to_pages_are_translated() -> None:
    how_to = ROOT / "docs" / "how-to"
    assert sum(source.parent == how_to for source in TRANSLATIONS.sources().values()) >= 10


def test_the_summaries_of_all_commands_are_translated_as_they_are_now() -> None:
    sections = json.loads(TRANSLATIONS.COMMANDS.read_text())["sections"]
    translated = {title: tuple(section["commands"]) for title, section in sections.items()}
    assert translated == COMMAND_SECTIONS
    english = {name: each["en"] for section in sections.values() for name, each in section["commands"].items()}
    assert english == {name: COMMANDS[name][1] for names in COMMAND_SECTIONS.values() for name in names}


def test_the_page_of_commands_is_written_from_its_summaries() -> None:
    summaries = json.loads(TRANSLATIONS.COMMANDS.read_text())
    hint = "python hack/translations.py --accept"
    assert TRANSLATIONS.COMMANDS_PAGE.read_text() == TRANSLATIONS.commands_page(summaries), hint


@pytest.mark.parametrize(
    ("variables", "chinese"),
    [
        ({"LANG": "zh_CN.UTF-8"}, True),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "zh_TW.UTF-8"}, True),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "C.UTF-8"}, False),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": ""}, True),
        ({}, False),
    ],
)
def test_the_help_lists_commands_in_the_language_of_the_user(variables: dict[str, str], chinese: bool) -> None:
    unset = dict.fromkeys(("LANG", "LC_ALL", "LC_MESSAGES"))
    shown = click.testing.CliRunner().invoke(cli, ["--help"], env={**unset, **variables}).output
    assert ("运行和查看:\n" in shown) is chinese
    assert ("  wait        等待任务结束；退出码说明结果。\n" in shown) is chinese
    assert ("Run and look:\n" in shown) is not chinese
    assert "gangline get jobs" in shown


def test_the_summaries_fit_into_80_columns() -> None:
    sections = json.loads(TRANSLATIONS.COMMANDS.read_text())["sections"]
    texts = [each["zh"] for section in sections.values() for each in section["commands"].values()]
    widths = {text: sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text) for text in texts}
    assert {text: width for text, width in widths.items() if width > 80 - 14} == {}


def test_a_source_that_changed_is_noticed() -> None:
    old = {**RECORDED, "docs/index.md": "0" * 16}
    assert list(TRANSLATIONS.problems(old)) == ["docs/zh/index.md: is older than docs/index.md"]
