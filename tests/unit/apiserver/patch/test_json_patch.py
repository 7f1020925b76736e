from typing import Any

import pytest

from gangline.apiserver.errors import StatusError
from gangline.apiserver.patch import json_patch as patch_json_patch
from gangline.apiserver.patch.json_patch import json_patch, merge_patch

OBJECT = {"data": {"a": "1", "b": "2"}, "list": [1, 2, 3], "none": None}


def op(kind: str, path: str, **more: Any) -> dict[str, Any]:
    return {"op": kind, "path": path, **more}


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (op("add", "/data/c", value="3"), {"data": {"a": "1", "b": "2", "c": "3"}}),
        (op("add", "/list/1", value=9), {"list": [1, 9, 2, 3]}),
        (op("add", "/list/-", value=9), {"list": [1, 2, 3, 9]}),
        (op("add", "/list/3", value=9), {"list": [1, 2, 3, 9]}),
        (op("add", "/list/-1", value=9), {"list": [1, 2, 3, 9]}),
        (op("remove", "/list/-1"), {"list": [1, 2]}),
        (op("remove", "/data/a"), {"data": {"b": "2"}}),
        (op("replace", "/data/a", value=None), {"data": {"a": None, "b": "2"}}),
        (op("replace", "/data/new", value="x"), {"data": {"a": "1", "b": "2", "new": "x"}}),
        (op("move", "/data/c", **{"from": "/data/a"}), {"data": {"b": "2", "c": "1"}}),
        (op("copy", "/data/c", **{"from": "/list"}), {"data": {"a": "1", "b": "2", "c": [1, 2, 3]}}),
        (op("add", "/data/x~1y~01", value=1), {"data": {"a": "1", "b": "2", "x/y~1": 1}}),
        (op("test", "/data/a", value="1"), {}),
        (op("test", "/data/absent", value=None), {}),
        (op("add", "no-slash/top", value=1), {"top": 1}),
    ],
)
def test_one_operation_changes_what_it_names(operation: dict[str, Any], expected: dict[str, Any]) -> None:
    assert json_patch(OBJECT, [operation]) == {**OBJECT, **expected}


@pytest.mark.parametrize(
    "operation",
    [
        op("remove", "/data/absent"),
        op("remove", ""),
        op("add", "/absent/x", value=1),
        op("add", "/none/x", value=1),
        op("add", "/list/5", value=1),
        op("add", "/list/x", value=1),
        op("add", "/list/1_0", value=1),
        op("replace", "/list/3", value=1),
        op("move", "/data/x", **{"from": "/data/absent"}),
        op("move", "/data/x"),
        op("test", "/data/a", value="2"),
        op("test", "/list/0", value=True),
        op("test", "/list/0", value=1.0),
        op("replace", "", value=1),
        op("frobnicate", "/data"),
        {"op": "add"},
        {},
        None,
    ],
)
def test_an_operation_that_does_not_apply_is_422_without_details(operation: Any) -> None:
    with pytest.raises(StatusError) as caught:
        json_patch(OBJECT, [op("add", "/data/z", value=1), operation])
    assert (caught.value.code, caught.value.reason) == (422, "Invalid")
    assert caught.value.message == "the server rejected our request due to an error in our request"
    assert "z" not in OBJECT["data"]  # type: ignore[operator]


@pytest.mark.parametrize("operations", [{}, 1, "x", [1], [{"op": 1}], [{"op": "add", "path": 5}]])
def test_a_json_patch_that_is_no_list_of_operations_is_400(operations: Any) -> None:
    with pytest.raises(StatusError, match=r"^error decoding patch: json: cannot unmarshal") as caught:
        json_patch(OBJECT, operations)
    assert caught.value.code == 400


def test_too_many_operations_are_413() -> None:
    with pytest.raises(StatusError, match="maximum operations in a JSON patch is 10000, got 10001") as caught:
        json_patch(OBJECT, [op("test", "/data/a", value="1")] * 10_001)
    assert caught.value.code == 413


def test_copies_cannot_grow_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patch_json_patch, "MAX_COPIED_BYTES", 1000)
    doubling = [op("copy", "/data/a", **{"from": "/data"})] * 20
    with pytest.raises(StatusError) as caught:
        json_patch({"data": {"a": "x" * 10}}, doubling)
    assert caught.value.code == 422


def test_result_of_a_json_patch_shares_nothing_with_its_arguments() -> None:
    document = {"data": {"deep": {"a": 1}}}
    value = {"inner": [1]}
    operations = [
        op("add", "/new", value=value),
        op("copy", "/twin", **{"from": "/new"}),
        op("add", "/new/x", value=2),
    ]
    result = json_patch(document, operations)
    assert result["twin"] == {"inner": [1]}
    result["data"]["deep"]["a"] = 2
    assert document == {"data": {"deep": {"a": 1}}}
    assert value == {"inner": [1]}


def test_a_null_json_patch_changes_nothing() -> None:
    assert json_patch(OBJECT, None) == OBJECT


@pytest.mark.parametrize(
    ("merge", "expected"),
    [
        ({"data": {"a": None, "c": "3"}}, {"data": {"b": "2", "c": "3"}}),
        ({"list": [{"x": None, "y": 1}]}, {"list": [{"y": 1}]}),
        ({"data": [{"x": None}]}, {"data": [{"x": None}]}),
        ({"new": {"x": None, "y": {"z": None}}}, {"new": {"y": {}}}),
        ({"list": {"a": 1}}, {"list": {"a": 1}}),
        ({}, {}),
    ],
)
def test_merge_patch_merges_objects_and_replaces_the_rest(merge: dict[str, Any], expected: dict[str, Any]) -> None:
    assert merge_patch(OBJECT, merge) == {**OBJECT, **expected}


@pytest.mark.parametrize(("merge", "message"), [(None, "Invalid JSON Patch"), ([], "array into"), (1, "number into")])
def test_a_merge_patch_that_is_no_object_is_400(merge: Any, message: str) -> None:
    with pytest.raises(StatusError, match=message) as caught:
        merge_patch(OBJECT, merge)
    assert caught.value.code == 400
