"""The pages are plain English, and hack/prose.py notices those that are not."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def loaded() -> Any:
    spec = importlib.util.spec_from_file_location("prose", ROOT / "hack" / "prose.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROSE = loaded()


@pytest.mark.parametrize("page", PROSE.checked_pages(), ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_a_page_is_plain_english(page: Path) -> None:
    assert [str(finding) for finding in PROSE.findings(page.name, page.read_text())] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Each replica is told its rank.", '"is told"'),
        ("The table has it.", '"has it"'),
        ("You can simply run it.", '"simply"'),
        ("The file goes into a map.", '"goes into"'),
        ("word " * 40 + ".", "a sentence of 40 words"),
        (
            "Notwithstanding considerable administrative complications, organizational responsibilities accumulate.",
            "ease",
        ),
    ],
)
def test_old_habits_and_hard_sentences_are_noticed(text: str, expected: str) -> None:
    assert any(expected in str(finding) for finding in PROSE.findings("page.md", text + "\n"))


def test_code_and_names_do_not_count() -> None:
    page = "Run `is told simply` now.\n\n```text\nEach one is told.\n```\n\n| it is told |\n| --- |\n"
    assert list(PROSE.findings("page.md", page)) == []


@pytest.mark.parametrize(
    ("word", "count"),
    [("time", 1), ("jumped", 1), ("started", 2), ("table", 2), ("cluster", 2), ("operator", 4), ("takes", 1), ("a", 1)],
)
def test_syllables_are_counted(word: str, count: int) -> None:
    assert PROSE.syllables(word) == count


def test_words_per_sentence_are_counted() -> None:
    assert PROSE.sentence_words("One two three. Four five.\n") == 2.5
    assert PROSE.sentence_words("```text\ncode\n```\n") == 0.0


def test_a_comparison_has_both_figures_of_every_page() -> None:
    rows = list(PROSE.comparison("HEAD"))[2:]
    assert len(rows) == len(PROSE.checked_pages())
    row = next(row for row in rows if "`docs/jobs.md`" in row)
    assert all(cell.strip() for cell in row.strip("|").split("|"))
