"""Translations are as new as their sources, and have the same code."""

import importlib.util
import json
from pathlib import Path
from typing import Any

from gangline.cli.main import COMMAND_SECTIONS, COMMANDS

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


def test_a_source_that_changed_is_noticed() -> None:
    old = {**RECORDED, "docs/index.md": "0" * 16}
    assert list(TRANSLATIONS.problems(old)) == ["docs/zh/index.md: is older than docs/index.md"]
