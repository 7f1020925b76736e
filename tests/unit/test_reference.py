"""docs/reference is what hack/reference.py writes, and everything in it is said."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("reference")  # whose pages take seconds
ROOT = Path(__file__).parents[2]


def loaded() -> Any:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "hack" / "reference.py")
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
    assert list(pages) == ["fields.md", "labels.md", "python.md"]
    for page, text in pages.items():
        assert (ROOT / "docs" / "reference" / page).read_text() == text, f"{page}: run: make reference"


def test_every_key_says_what_it_means() -> None:
    assert [key for key, what in REFERENCE.keys().items() if not what] == []


def test_every_field_of_a_job_says_what_it_means(pages: dict[str, str]) -> None:
    rows = [line for line in pages["fields.md"].splitlines() if line.startswith("| `")]
    assert len(rows) > 200
    assert [row for row in rows if row.endswith("|  |")] == []
