"""docs/why.md says what the code says."""

from pathlib import Path

import click

from gangline.cli.jobs.why import report_text, why
from gangline.why.diagnosis.diagnose import diagnose
from gangline.why.diagnosis.rules.table import rules_table
from support.cases.why import DOCS_EXAMPLE, HEALTHY_SNAPSHOTS

PAGE = (Path(__file__).parents[3] / "docs" / "why.md").read_text()


def test_table_of_rules_is_the_rules() -> None:
    hint = "put this between the marks: python -c 'from gangline.why.diagnosis.rules.table import rules_table; print(rules_table())'"
    _, _, rest = PAGE.partition("<!-- rules -->\n")
    table, _, _ = rest.partition("\n<!-- end of rules -->")
    assert table == rules_table(), hint


def test_screens_are_what_the_command_prints() -> None:
    assert report_text(diagnose(DOCS_EXAMPLE)) in PAGE
    assert report_text(diagnose(HEALTHY_SNAPSHOTS["running under the Kubeflow operator"])) in PAGE


def test_exit_codes_are_in_the_page_and_in_the_help() -> None:
    shown = why.get_help(click.Context(why))
    for text in (shown, PAGE):
        assert all(code in text for code in ("0", "3", "102", "1"))
    assert "nothing is wrong" in shown


def test_lines_are_broken_on_a_terminal_under_their_own_beginning() -> None:
    lines = report_text(diagnose(DOCS_EXAMPLE), width=60).splitlines()
    assert max(len(line) for line in lines if "│" not in line and "spec." not in line) <= 60
    assert any(line.startswith(" " * 10) for line in lines)
