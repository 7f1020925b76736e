"""Rows of tables. tests/contract/test_tables.py compares them with those of a real server."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from gangline.api.jsonpath import JSONPathError
from gangline.apiserver.tables.builtin_rows import builtin_printer
from gangline.apiserver.tables.columns import BUILTIN_COLUMNS
from gangline.apiserver.tables.table import GENERIC_PRINTER, custom_printer

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
CREATED = "2026-01-02T03:00:05Z"


def cells(kind: str, obj: dict[str, Any]) -> list[Any]:
    found: list[Any] = builtin_printer(kind).row(obj, NOW)["cells"]
    return found


def pod(status: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "creationTimestamp": CREATED, **metadata},
        "spec": {
            "containers": [{"name": "c"}, {"name": "d"}],
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
        },
        "status": status,
    }


@pytest.mark.parametrize("kind", sorted(BUILTIN_COLUMNS))
def test_every_printer_fills_every_column_of_an_empty_object(kind: str) -> None:
    assert len(cells(kind, {})) == len(BUILTIN_COLUMNS[kind])
    hollow = {"metadata": {}, "spec": {"containers": None}, "status": {}}
    assert len(cells(kind, hollow)) == len(BUILTIN_COLUMNS[kind])


CRASH = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": "2026-01-02T02:59:05Z"}}


@pytest.mark.parametrize(
    ("status", "ready", "shown", "restarts"),
    [
        ({"phase": "Pending"}, "0/3", "Pending", "0"),
        ({"phase": "Failed", "reason": "Evicted"}, "0/3", "Evicted", "0"),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]},
            "0/3",
            "SchedulingGated",
            "0",
        ),
        (
            {
                "containerStatuses": [
                    {"name": "c", "restartCount": 5, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": CRASH}
                ]
            },
            "0/3",
            "CrashLoopBackOff",
            "5 (5m ago)",
        ),
        (
            {"initContainerStatuses": [{"name": "i", "restartCount": 1, "state": CRASH}]},
            "0/3",
            "Init:Error",
            "1",
        ),
        ({"initContainerStatuses": [{"name": "i", "state": {"waiting": {}}}]}, "0/3", "Init:0/2", "0"),
        (
            {
                "phase": "Running",
                "initContainerStatuses": [
                    {"name": "i", "restartCount": 9, "state": {"terminated": {"exitCode": 0}}},
                    {"name": "s", "started": True, "ready": True, "state": {"running": {}}},
                ],
                "containerStatuses": [{"name": "c", "ready": True, "state": {"running": {}}}],
            },
            "2/3",
            "Running",
            "0",
        ),
        (
            {"containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 137, "signal": 9}}}]},
            "0/3",
            "Signal:9",
            "0",
        ),
    ],
)  # fmt: skip
def test_pod_row_summarizes_its_containers(status: dict[str, Any], ready: str, shown: str, restarts: str) -> None:
    assert cells("Pod", pod(status))[1:4] == [ready, shown, restarts]


def test_pod_that_is_being_deleted_is_terminating_unless_it_has_ended() -> None:
    assert cells("Pod", pod({"phase": "Running"}, deletionTimestamp=CREATED))[2] == "Terminating"
    assert cells("Pod", pod({"phase": "Succeeded"}, deletionTimestamp=CREATED))[2] == "Succeeded"
    assert cells("Pod", pod({"reason": "NodeLost"}, deletionTimestamp=CREATED))[2] == "Unknown"


def test_row_of_an_ended_pod_has_a_completed_condition() -> None:
    row = builtin_printer("Pod").row(pod({"phase": "Failed"}), NOW)
    assert row["conditions"] == [
        {"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}
    ]
    assert "conditions" not in builtin_printer("Pod").row(pod({"phase": "Running"}), NOW)


def test_job_duration_ends_with_the_job() -> None:
    job = {
        "spec": {"completions": 2},
        "status": {"succeeded": 2, "startTime": "2026-01-02T02:00:00Z", "completionTime": "2026-01-02T02:01:30Z",
                   "conditions": [{"type": "Complete", "status": "True"}]},
    }  # fmt: skip
    assert cells("Job", job)[1:4] == ["Complete", "2/2", "90s"]


def test_autoscaler_of_the_first_version_shows_its_processor_target() -> None:
    spec = {"targetCPUUtilizationPercentage": 80, "maxReplicas": 3}
    assert cells("HorizontalPodAutoscaler", {"spec": spec})[2] == "cpu: <unknown>/80%"
    status = {"currentCPUUtilizationPercentage": 12}
    assert cells("HorizontalPodAutoscaler", {"spec": spec, "status": status})[2] == "cpu: 12%/80%"


def test_unknown_kind_shows_when_it_was_created() -> None:
    assert builtin_printer("Role") is GENERIC_PRINTER
    assert cells("Role", {"metadata": {"name": "r", "creationTimestamp": CREATED}}) == ["r", CREATED]


def test_custom_resource_without_columns_shows_its_age() -> None:
    shown = custom_printer([])
    assert [(column.name, column.type) for column in shown.columns] == [("Name", "string"), ("Age", "date")]
    assert shown.row({"metadata": {"name": "a", "creationTimestamp": CREATED}}, NOW) == {"cells": ["a", "4m"]}


def test_custom_columns_are_typed() -> None:
    kinds = ["string", "integer", "number", "boolean", "date"]
    cells = custom_printer([{"name": kind, "type": kind, "jsonPath": ".v"} for kind in kinds])
    values: list[Any] = ["x", 3, 2.5, True, CREATED, [1], None]
    rows = [cells.row({"metadata": {"name": ""}, "v": value}, NOW)["cells"][1:] for value in values]
    assert rows == [
        ["x", None, None, None, "<invalid>"],
        ["3", 3, 3, None, None],
        ["2.5", 2, 2.5, None, None],
        ["true", None, None, True, None],
        [CREATED, None, None, None, "4m"],
        ["[1]", None, None, None, None],
        ["<no value>", None, None, None, None],
    ]
    assert cells.row({"metadata": {}}, NOW)["cells"] == ["", None, None, None, None, None]


def test_custom_column_has_the_fields_of_its_definition() -> None:
    column = custom_printer(
        [
            {"name": "A", "type": "integer", "format": "int32", "priority": 2, "jsonPath": ".a", "description": "d"},
            {"name": "B", "type": "string", "jsonPath": ".b"},
        ]
    )  # fmt: skip
    header = json.loads(bytes(column.column_definitions))
    assert header[1] == {"name": "A", "type": "integer", "format": "int32", "priority": 2, "description": "d"}
    assert header[2]["description"] == "Custom resource definition column (in JSONPath format): .b"


def test_custom_column_with_a_bad_path_is_refused() -> None:
    with pytest.raises(JSONPathError):
        custom_printer([{"name": "A", "type": "string", "jsonPath": ".a[x]"}])
