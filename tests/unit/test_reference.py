"""docs/reference and docs/why are what hack/reference.py and hack/rule_pages.py write, and nothing in them is empty."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from gangline.cli.main import COMMANDS
from gangline.why.diagnosis.rules.table import RULES

pytestmark = pytest.mark.xdist_group("reference")  # whose pages take seconds

ROOT = Path(__file__).parents[2]


def loaded(name: str = "reference") -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "hack" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REFERENCE = loaded()


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    written: dict[str, str] = REFERENCE.pages()
    return written


def test_the_reference_is_up_to_date(pages: dict[str, str]) -> None:
    assert list(pages) == ["commands.md", "values.md", "fields.md", "labels.md", "python.md"]
    for page, text in pages.items():
        assert (ROOT / "docs" / "reference" / page).read_text() == text, f"{page}: run: make reference"


def test_every_key_says_what_it_means() -> None:
    assert [key for key, what in REFERENCE.keys().items() if not what] == []


def test_every_condition_event_and_exit_code_says_what_it_means() -> None:
    assert [name for name, what in REFERENCE.conditions().items() if not what] == []
    assert REFERENCE.event_reasons() - set(REFERENCE.EVENTS) == set()
    assert REFERENCE.known_exit_codes() == set(REFERENCE.EXIT_CODES)


def test_every_command_and_flag_is_in_the_reference(pages: dict[str, str]) -> None:
    for name in COMMANDS:
        assert f"\n### gangline {name}\n" in pages["commands.md"], name
    rows = [line for line in pages["commands.md"].splitlines() if line.startswith("| `--")]
    assert len(rows) > 200
    assert [row for row in rows if row.endswith("|  |")] == []


def test_every_field_of_a_job_says_what_it_means(pages: dict[str, str]) -> None:
    rows = [line for line in pages["fields.md"].splitlines() if line.startswith("| `")]
    assert len(rows) > 200
    assert [row for row in rows if row.endswith("|  |")] == []


def test_every_rule_of_why_has_a_page_that_is_up_to_date() -> None:
    written = loaded("rule_pages").pages()
    there = {f"why/{page.name}" for page in (ROOT / "docs" / "why").glob("*.md")}
    assert {f"why/{rule.id}.md" for rule in RULES} == there
    assert set(written) == there | {"troubleshooting.md"}
    for page, text in written.items():
        assert (ROOT / "docs" / page).read_text() == text, f"{page}: run: make reference"
