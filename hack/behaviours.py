"""Writes the test report of the gang scheduler: each behaviour that is promised, the tests that show it, how they ended.

python -m pytest -m "" --junitxml dist/scheduler.xml tests/unit/scheduler tests/property tests/contract tests/e2e
python hack/behaviours.py dist/scheduler.xml [MORE.xml ...] > dist/scheduler.md

tests/data/scheduling-behaviours.md lists the behaviours and their tests. A behaviour has passed if each of its tests
has. A test that is in no file has not run. Ends with 1 if a test failed.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "data" / "scheduling-behaviours.md"
_ROW = re.compile(r"^\| (?P<name>[A-Z]+\d+(?:\.\d+)?) \| (?P<cells>.*) \|$")
_TEST = re.compile(r"`([\w/.]+)\.py::(\w+)`")
_WORST_FIRST = ("failed", "skipped", "not run", "passed")


class Behaviour(NamedTuple):
    """A row of the table: number, sentence, and its tests as `folder.module::function`."""

    name: str
    sentence: str
    tests: tuple[str, ...]


def behaviours(table: str) -> Iterator[Behaviour]:
    """The behaviours of the table, in order."""
    for line in table.splitlines():
        if found := _ROW.match(line):
            sentence, *places = (cell.strip() for cell in found["cells"].split("|"))
            tests = [f"tests.{path.replace('/', '.')}::{test}" for path, test in _TEST.findall(" ".join(places))]
            yield Behaviour(found["name"], sentence, tuple(dict.fromkeys(tests)))


def outcomes(files: Sequence[Path]) -> dict[str, str]:
    """How each test ended, by `module::function`. Of several parameters the worst end counts."""
    ends: dict[str, str] = {}
    for file in files:
        for case in ET.parse(file).iter("testcase"):  # written by our own pytest
            name = f"{case.get('classname')}::{(case.get('name') or '').partition('[')[0]}"
            tags = {child.tag for child in case}
            end = "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"
            ends[name] = worst([end, ends.get(name, "passed")])
    return ends


def worst(ends: Sequence[str]) -> str:
    """The end that counts for several tests."""
    return min(ends, key=_WORST_FIRST.index) if ends else "not run"


def report(rows: Sequence[Behaviour], ends: Mapping[str, str]) -> str:
    """The report in Markdown."""
    results = [(row, [ends.get(test, "not run") for test in row.tests]) for row in rows]
    counts = {end: sum(worst(each) == end for _, each in results) for end in _WORST_FIRST}
    lines = ["# The gang scheduler: test report", ""]
    lines += [", ".join(f"{count} {end}" for end, count in counts.items() if count), ""]
    lines += ["| | behaviour | tests | result |", "| --- | --- | --- | --- |"]
    lines += [f"| {row.name} | {row.sentence} | {len(row.tests)} | {worst(each)} |" for row, each in results]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the report. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("results", type=Path, nargs="*", help="files of pytest --junitxml")
    options = parser.parse_args()
    ends = outcomes(options.results)
    rows = list(behaviours(TABLE.read_text()))
    sys.stdout.write(report(rows, ends))
    return 1 if any(ends.get(test) == "failed" for row in rows for test in row.tests) else 0


if __name__ == "__main__":
    sys.exit(main())
