"""The goals of `wait`, and their exit codes."""

from typing import Any

import pytest

from gangline.base.errors import InputError
from gangline.cli.jobs.wait import parse_goal


def job(*conditions: str, **status: Any) -> dict[str, Any]:
    items = [{"type": kind, "status": "True"} for kind in conditions]
    return {"apiVersion": "kubeflow.org/v1", "status": {"conditions": items, **status}}


def pod(ready: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "status": {"conditions": [{"type": "Ready", "status": ready}]}}


@pytest.mark.parametrize(
    ("goal", "body", "code"),
    [
        ("end", job("Running"), None),
        ("end", job("Running", "Succeeded"), 0),
        ("end", job("Failed"), 100),
        ("end", None, 103),
        ("delete", job(), None),
        ("delete", None, 0),
        ("create", job(), 0),
        ("condition=Running", job("Created"), None),
        ("condition=running", job("Created", "Running"), 0),
        ("condition=Running", job("Failed"), 100),
        ("condition=Running", job("Succeeded"), 101),
        ("condition=Succeeded", None, 103),
        ("condition=Ready=False", pod("False"), 0),
        ("condition=Ready", pod("False"), None),
        ("jsonpath={.status.phase}=Done", job(phase="Done"), 0),
        ("jsonpath={.status.phase}='Done'", job(phase="Done"), 0),
        ("jsonpath={.status.phase}=Done", job(phase="Running"), None),
        ("jsonpath={.status.phase}", job(phase="x"), 0),
        ("jsonpath={.status.phase}", job(), None),
    ],
)
def test_a_goal_is_met_or_impossible_or_waited_for(goal: str, body: Any, code: int | None) -> None:
    assert parse_goal(goal)(body) == code


@pytest.mark.parametrize("text", ["", "condition", "condition=", "done", "jsonpath"])
def test_an_invalid_goal_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="--for"):
        parse_goal(text)
