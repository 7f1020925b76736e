"""The words for an object that a strategic patch has made a wrong one of."""

from typing import Any

import pytest

from gangline.schema.typed.conversion import conversion_error
from gangline.schema.typed.openapi import builtin_type


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"replicas": 2, "template": {"spec": {"containers": [{"name": "c"}]}}}, ""),
        ({"replicas": None}, ""),
        ({"replicas": 1.5}, "cannot convert float64 to int32"),
        ({"replicas": "x"}, "unrecognized type: int32"),
        ({"paused": "yes"}, "unrecognized type: bool"),
        ({"template": {"spec": {"schedulerName": 7}}}, "cannot convert int64 to string"),
        ({"template": {"spec": {"schedulerName": True}}}, "unrecognized type: string"),
        ({"template": {"spec": {"restartPolicy": 7}}}, "cannot convert int64 to v1.RestartPolicy"),
        ({"template": {"spec": {"containers": "x"}}}, "cannot restore slice from string"),
        ({"template": {"metadata": {"labels": [1]}}}, "cannot restore map from slice"),
        ({"template": 5}, "cannot restore struct from: int64"),
    ],
)
def test_first_value_of_a_wrong_type_is_named(spec: Any, expected: str) -> None:
    tree = builtin_type("apps/v1", "Deployment")
    assert tree is not None
    assert conversion_error({"kind": "Deployment", "spec": spec}, tree) == expected
