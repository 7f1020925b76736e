"""Translations are as new as their sources, and have the same code."""

import importlib.util
import json
from pathlib import Path
from typing import Any

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


def test_a_source_that_changed_is_noticed() -> None:
    old = {**RECORDED, "docs/index.md": "0" * 16}
    assert list(TRANSLATIONS.problems(old)) == ["docs/zh/index.md: is older than docs/index.md"]
