"""Our TrainingClient has every call of Kubeflow's, as the real package declares them."""

import inspect
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gangline import TrainingClient
from realclients import CLIENTS, find_kubeflow

OTHER_DEFAULTS = {
    # Theirs is fixed when the module is imported.
    ("__init__", "namespace"): "None",
    # Pip's own, as it is configured where the job runs.
    ("create_job", "pip_index_url"): "None",
    # The same one condition, in a set that nobody can change.
    ("wait_for_job_conditions", "expected_conditions"): "frozenset({'Succeeded'})",
}
"""What is meant to be different, and what it is here. docs/sdk.md says so."""

Calls = dict[str, list[tuple[str, str]]]


@pytest.fixture(scope="module")
def theirs() -> Calls:
    """By name: the parameters in order, with the text of their defaults, empty for none."""
    environment = {**os.environ, "KUBECONFIG": "/nonexistent"}
    command = [find_kubeflow(), CLIENTS / "signatures.py"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    found = json.loads(done.stdout)
    return {name: [tuple(each) for each in parameters] for name, parameters in found.items()}


def positional(call: Any) -> list[tuple[str, str]]:
    return [
        (each.name, "" if each.default is each.empty else repr(each.default))
        for each in inspect.signature(call).parameters.values()
        if each.kind is each.POSITIONAL_OR_KEYWORD
    ]


def test_every_call_takes_the_same_in_the_same_order_with_the_same_defaults(theirs: Calls) -> None:
    expected = {
        name: [(each, OTHER_DEFAULTS.get((name, each), default)) for each, default in parameters]
        for name, parameters in theirs.items()
    }
    assert {name: positional(vars(TrainingClient)[name]) for name in theirs} == expected


def test_the_list_of_differences_has_nothing_that_is_the_same(theirs: Calls) -> None:
    for (name, parameter), ours in OTHER_DEFAULTS.items():
        assert dict(theirs[name])[parameter] != ours


def test_what_is_meant_to_be_different_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sdk.md").read_text()
    assert [parameter for _, parameter in OTHER_DEFAULTS if f"`{parameter}`" not in page] == []
