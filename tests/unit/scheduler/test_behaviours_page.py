"""The page of behaviours is complete, and every test that it names exists."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "tests" / "data" / "scheduling-behaviours.md"
ROW = re.compile(r"^\| (?P<name>[A-Z]+\d+(?:\.\d+)?) \| (?P<cells>.*) \|$", re.MULTILINE)
TEST = re.compile(r"`([\w/.]+\.py)::(\w+)`")
FILE = re.compile(r"`([\w/]+\.py)`")

NUMBERED = {"T": range(8), "F": range(1, 7), "D": range(1, 10), "L": range(1, 11), "K": range(1, 51)}
NUMBERED |= {"A5.": range(1, 9), "A6.": range(1, 6), "A7.": range(1, 5), "G2.": range(1, 19)}
NUMBERED |= {"W": range(1, 8), "M": range(1, 7)}
EVERY = {f"{letter}{number}" for letter, numbers in NUMBERED.items() for number in numbers}
# These are tested on a real server and with real processes too.
EVERYWHERE = {f"T{number}" for number in range(8)} | {"L1", "L4", "L6", "L7"}
EVERYWHERE |= {f"K{number}" for number in (*range(23, 31), 34, 35, 36)}
# These have no test: one is not implemented, and speed is measured.
OTHERWISE = {"D7", "M4"}


class Row(NamedTuple):
    then: str
    engine: str
    server: str
    processes: str


def rows() -> list[tuple[str, Row]]:
    text = PAGE.read_text()
    return [
        (result["name"], Row(*(cell.strip() for cell in result["cells"].split("|")))) for result in ROW.finditer(text)
    ]


@cache
def defined_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / path).read_text())
    classes = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, classes))


def test_every_behaviour_is_on_the_page_once() -> None:
    names = [name for name, _ in rows()]
    assert sorted(names) == sorted(EVERY)


@pytest.mark.parametrize(("name", "row"), [pytest.param(*each, id=each[0]) for each in rows()])
def test_every_test_on_the_page_exists(name: str, row: Row) -> None:
    result = TEST.findall("".join(row[1:]))
    assert bool(result) != (name in OTHERWISE)
    for path, test in result:
        assert test in defined_in(path), f"{name}: there is no {path}::{test}"
    for path in FILE.findall("".join(row[1:])):
        assert (ROOT / path).is_file()


@pytest.mark.parametrize("name", sorted(EVERYWHERE))
def test_what_must_be_shown_everywhere_is(name: str) -> None:
    row = dict(rows())[name]
    assert TEST.search(row.engine)
    assert all(path.startswith("contract/") for path, _ in TEST.findall(row.server))
    assert TEST.search(row.server)
    assert all(path.startswith("e2e/") for path, _ in TEST.findall(row.processes))
    assert TEST.search(row.processes)
