"""Every threat on the page names tests, and they exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()
HEADER = "| threat | what is done | guarded by |"
ROWS = [
    row
    for table in PAGE.split(HEADER)[1:]
    for row in re.findall(r"^\| [^-].*\|$", table.partition("\n\n")[0], re.MULTILINE)
]


def test_both_tables_are_read() -> None:
    assert PAGE.count(HEADER) == 2
    assert len(ROWS) > 20


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_each_threat_has_tests_that_exist(row: str) -> None:
    guards = re.findall(r"`(tests/[^`]+)`", row.rstrip("|").rpartition("|")[2])
    assert guards
    assert [guard for guard in guards if not (ROOT / guard).is_file()] == []
