"""hack/behaviours.py: from the results of tests to a report about behaviours."""

import importlib.util
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
TABLE = """| | then | engine | server | processes |
| --- | --- | --- | --- | --- |
| T0 | New is Pending | `unit/a.py::test_one`<br>`unit/a.py::test_two` | `contract/b.py::test_three` |  |
| K2 | Never twice | `unit/a.py::test_two` |  |  |
"""
RESULTS = """<testsuites><testsuite>
<testcase classname="tests.unit.a" name="test_one[x]"/>
<testcase classname="tests.unit.a" name="test_one[y]"><failure message="no"/></testcase>
<testcase classname="tests.unit.a" name="test_two"/>
</testsuite></testsuites>"""


def loaded() -> Any:
    spec = importlib.util.spec_from_file_location("behaviours", ROOT / "hack" / "behaviours.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REPORT = loaded()


def test_a_behaviour_fails_with_one_of_its_tests(tmp_path: Path) -> None:
    file = tmp_path / "results.xml"
    file.write_text(RESULTS)
    text = REPORT.report(list(REPORT.behaviours(TABLE)), REPORT.outcomes([file]))
    assert "| T0 | New is Pending | 3 | failed |" in text
    assert "| K2 | Never twice | 1 | passed |" in text
    assert "1 failed, 1 passed" in text


def test_a_behaviour_whose_tests_were_not_run_has_not_passed() -> None:
    text = REPORT.report(list(REPORT.behaviours(TABLE)), {"tests.unit.a::test_one": "passed"})
    assert "| T0 | New is Pending | 3 | not run |" in text


def test_the_table_of_the_repository_is_read() -> None:
    rows = list(REPORT.behaviours(REPORT.TABLE.read_text()))
    assert len(rows) > 100
    assert all(test.startswith("tests.") for row in rows for test in row.tests)
