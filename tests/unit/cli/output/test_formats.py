"""Objects in the formats of `-o`, as kubectl prints them."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.base.errors import InputError
from gangline.cli.output.formats import (
    OutputFormat,
    as_yaml,
    format_objects,
    object_name,
    parse_format,
    sort_key,
)

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"a": "<b>"}, "managedFields": [{"manager": "x"}]},
    "spec": {"containers": [{"name": "c"}, {"name": "d"}]},
}
JOB: dict[str, Any] = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "j"}}


def test_one_named_object_is_printed_by_itself_and_several_as_a_list() -> None:
    single = json.loads(format_objects([POD], OutputFormat("json"), single=True))
    assert single["kind"] == "Pod"
    several = json.loads(format_objects([POD, JOB], OutputFormat("json"), single=False))
    assert several["kind"] == "List"
    assert [item["kind"] for item in several["items"]] == ["Pod", "TFJob"]


def test_managed_fields_are_printed_only_on_request() -> None:
    assert "managedFields" not in format_objects([POD], OutputFormat("yaml"), single=True)
    assert "managedFields" in format_objects([POD], OutputFormat("yaml"), single=True, managed=True)
    assert "managedFields" in POD["metadata"]


def test_json_is_indented_sorted_and_escaped_as_go_does() -> None:
    text = format_objects([{"b": 1, "a": "<&>", "metadata": {}}], OutputFormat("json"), single=True)
    assert text == '{\n    "a": "\\u003c\\u0026\\u003e",\n    "b": 1,\n    "metadata": {}\n}\n'


@pytest.mark.parametrize("text", ["yes", "1:30", "0644", "2026-01-02T15:04:05Z", "null", "1.0", "", "~", "- x", "a: b"])
def test_text_that_looks_like_something_else_stays_text_in_yaml(text: str) -> None:
    assert yaml.safe_load(as_yaml({"a": text})) == {"a": text}


def test_several_lines_become_a_block_in_yaml() -> None:
    assert as_yaml({"script": "a\nb\n"}) == "script: |\n  a\n  b\n"


def test_names_carry_their_group() -> None:
    assert object_name(POD) == "pod/p"
    assert format_objects([POD, JOB], OutputFormat("name"), single=False) == "pod/p\ntfjob.kubeflow.org/j\n"


def test_jsonpath_is_applied_to_the_list_or_the_single_object() -> None:
    assert format_objects([POD], parse_format("jsonpath={.metadata.name}"), single=True) == "p"
    assert format_objects([POD, JOB], parse_format("jsonpath={.items[*].metadata.name}"), single=False) == "p j"
    assert format_objects([POD], parse_format("jsonpath=.metadata.name"), single=True) == "p"


def test_custom_columns_show_the_values_of_paths() -> None:
    text = format_objects(
        [POD, JOB],
        parse_format("custom-columns=NAME:.metadata.name,C:.spec.containers[*].name"),
        single=False,
    )
    assert text == "NAME   C\np      c,d\nj      <none>\n"


def test_templates_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("{.metadata.name}\n")
    assert parse_format(f"jsonpath-file={tmp_path / 't'}") == OutputFormat("jsonpath", "{.metadata.name}")


@pytest.mark.parametrize("text", ["xml", "jsonpath", "jsonpath=", "wide=1", "custom-columns"])
def test_an_unknown_format_is_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(InputError, match="write"):
        parse_format(text)


def test_numbers_sort_before_text_and_text_in_natural_order() -> None:
    names: list[dict[str, Any]] = [{"n": "w-10"}, {"n": "w-9"}, {}, {"n": 3}]
    assert sorted(names, key=sort_key(".n")) == [{}, {"n": 3}, {"n": "w-9"}, {"n": "w-10"}]
