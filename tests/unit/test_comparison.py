"""The comparison with other tools: every figure is one of the benchmarks, and its command exists."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "comparison.md").read_text()
BENCHMARKS = (ROOT / "docs" / "benchmarks.md").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
FIGURE = re.compile(r"\d[\d,.]*\d(?: s| MB)?|\d s\b")


def measured_rows() -> Iterator[list[str]]:
    """The cells of each row of a table whose last column is the command that measures."""
    in_table = False
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            in_table = False
        elif cells[-1] == "measured by":
            in_table = True
        elif in_table and not cells[0].startswith("---"):
            yield cells


def test_every_figure_is_in_the_benchmarks() -> None:
    figures = [figure for cells in measured_rows() for cell in cells[1:-1] for figure in FIGURE.findall(cell)]
    assert len(figures) > 12
    assert [figure for figure in figures if figure not in BENCHMARKS] == []


def test_every_figure_has_a_command_that_exists() -> None:
    commands = [re.fullmatch(r"`make ([a-z-]+)`", cells[-1]) for cells in measured_rows()]
    assert commands
    assert all(command is not None and command[1] in TARGETS for command in commands)


def test_no_figure_stands_outside_of_a_table_but_ratios_with_their_page() -> None:
    prose = "\n".join(line for line in PAGE.splitlines() if not line.startswith("|"))
    measured = re.findall(r"\b\d[\d.,]*(?: s| ms| MB|/s| times)\b", prose)
    assert measured == ["1.8 times"]
    assert "benchmarks.md#the-operator" in prose


def test_every_tool_says_what_it_does_better_and_when_to_use_it() -> None:
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    named = {part.split("\n", 1)[0]: part for part in sections[1:]}
    tools = set(named) - {"What gangline is not", "Something wrong here?"}
    assert len(tools) == 8
    for name in tools:
        assert "**It does better**" in named[name], name
        assert "**gangline does better**" in named[name], name
        assert re.search(r"\*\*Use ", named[name]), name
