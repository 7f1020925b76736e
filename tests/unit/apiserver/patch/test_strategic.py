from typing import Any

import pytest

from gangline.apiserver.errors import StatusError
from gangline.apiserver.patch.strategic import strategic_merge
from gangline.schema.typed.openapi import builtin_type

POD = builtin_type("v1", "Pod")
PDB = builtin_type("policy/v1", "PodDisruptionBudget")
DEPLOYMENT = builtin_type("apps/v1", "Deployment")


def pod(*containers: Any, **metadata: Any) -> dict[str, Any]:
    return {"metadata": metadata, "spec": {"containers": list(containers)}}


def named(*names: str) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


def names(document: dict[str, Any]) -> list[str]:
    return [container["name"] for container in document["spec"]["containers"]]


def refusal(document: dict[str, Any], patch: Any) -> tuple[int, str]:
    with pytest.raises(StatusError) as caught:
        strategic_merge(document, patch, POD)
    return caught.value.code, caught.value.message


def test_lists_with_a_merge_key_merge_by_it() -> None:
    before = pod({"name": "a", "image": "1", "env": [{"name": "E", "value": "1"}]}, {"name": "b", "image": "1"})
    patch = {"spec": {"containers": [{"name": "a", "env": [{"name": "F", "value": "2"}]}]}}
    after = strategic_merge(before, patch, POD)
    assert after["spec"]["containers"] == [
        {"name": "a", "image": "1", "env": [{"name": "F", "value": "2"}, {"name": "E", "value": "1"}]},
        {"name": "b", "image": "1"},
    ]


def test_an_element_of_the_patch_merges_into_one_that_the_patch_adds() -> None:
    """Found by the fuzzer (seed 1635): the second element with a new key gave 500."""
    patch = pod({"name": "c", "image": "1"}, {"name": "d"}, {"name": "c", "image": "2"})
    after = strategic_merge(pod(*named("a", "b")), patch, POD)
    assert after["spec"]["containers"] == [{"name": "c", "image": "2"}, *named("d", "a", "b")]


def test_new_elements_come_before_unpatched_ones_that_follow_no_patched_one() -> None:
    assert names(strategic_merge(pod(*named("a", "b", "c")), pod(*named("b", "new")), POD)) == [
        "a",
        "b",
        "new",
        "c",
    ]


def test_order_directive_overrides_the_order_of_patch_and_live_list() -> None:
    order = {"$setElementOrder/containers": named("c", "new", "a", "b"), "containers": named("new")}
    assert names(strategic_merge(pod(*named("a", "b", "c")), {"spec": order}, POD)) == ["c", "new", "a", "b"]


def test_order_directive_that_contradicts_the_patch_is_refused() -> None:
    patch = {"spec": {"$setElementOrder/containers": named("b", "a"), "containers": named("a", "b")}}
    code, message = refusal(pod(*named("a", "b")), patch)
    assert code == 500
    assert message.startswith("The order in patch list:\n[map[name:a] map[name:b]]\n doesn't match $setElementOrder")


def test_elements_can_be_deleted_and_lists_replaced() -> None:
    before = pod(*named("a", "b"))
    assert names(strategic_merge(before, pod({"$patch": "delete", "name": "a"}), POD)) == ["b"]
    assert names(strategic_merge(before, pod({"$patch": "replace"}, {"name": "c"}), POD)) == ["c"]


def test_maps_can_be_emptied_and_replaced() -> None:
    before = pod(labels={"a": "1"})
    assert strategic_merge(before, pod(labels={"$patch": "delete"}), POD)["metadata"] == {"labels": {}}
    after = strategic_merge(before, pod(labels={"$patch": "replace", "b": "2"}), POD)
    assert after["metadata"] == {"labels": {"b": "2"}}


def test_plain_lists_with_the_merge_strategy_are_sets() -> None:
    before = pod(finalizers=["a", "b"])
    after = strategic_merge(before, {"metadata": {"finalizers": ["c", "a"]}}, POD)
    assert after["metadata"]["finalizers"] == ["c", "a", "b"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a", "none"], "finalizers": ["d"]}}
    assert strategic_merge(after, patch, POD)["metadata"]["finalizers"] == ["d", "c", "b"]


def test_other_lists_are_replaced_and_null_deletes() -> None:
    before = {"spec": {"tolerations": [{"key": "a"}], "nodeSelector": {"x": "1", "y": "2"}, "hostname": "h"}}
    patch = {"spec": {"tolerations": [{"key": "b"}], "nodeSelector": {"x": None}, "hostname": None}}
    after = strategic_merge(before, patch, POD)
    assert after == {"spec": {"tolerations": [{"key": "b"}], "nodeSelector": {"y": "2"}}}


def test_retain_keys_removes_all_other_keys() -> None:
    before = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert strategic_merge(before, patch, DEPLOYMENT) == {"spec": {"strategy": {"type": "Recreate"}}}


def test_retain_keys_must_name_all_that_the_patch_sets() -> None:
    patch = {"metadata": {"$retainKeys": ["name"], "labels": {"a": "b"}}}
    assert refusal(pod(), patch) == (400, "invalid patch format of retainKeys")


def test_map_with_the_replace_strategy_is_replaced() -> None:
    before = {"spec": {"selector": {"matchLabels": {"a": "1"}}}}
    after = strategic_merge(before, {"spec": {"selector": {"matchLabels": {"b": "2"}}}}, PDB)
    assert after == {"spec": {"selector": {"matchLabels": {"b": "2"}}}}


@pytest.mark.parametrize(
    ("patch", "code", "message"),
    [
        (pod({"image": "x"}), 500, "map: map[image:x] does not contain declared merge key: name"),
        (pod({"$patch": "delete"}), 500, "map: map[$patch:delete] does not contain declared merge key: name"),
        (pod({"$patch": "merge", "name": "a"}), 500, "merging lists cannot yet be specified in the patch"),
        (pod({"$patch": "x", "name": "a"}), 500, "unknown patch type: x in map: map[$patch:x name:a]"),
        (pod(labels={"$patch": "x"}), 500, "unknown patch type: x in map: map[$patch:x]"),
        (pod({"$patch": None}), 500, "unknown patch type: %!s(<nil>) in map: map[$patch:<nil>]"),
        (pod([]), 500, "list element types are not identical: [[map[name:a]] [[]]]"),
        (pod({"name": "a"}, []), 500, "list element types are not identical: [[map[name:a]] [map[name:a] []]]"),
        (pod("a"), 500, "list element types are not identical: [[map[name:a]] [a]]"),
        (
            {"metadata": {"$setElementOrder/finalizers": 1}},
            500,
            "expected a []interface {}, but received a int64",
        ),
        ({"metadata": {"$setElementOrder": []}}, 400, "invalid patch format of setElementOrder list"),
        ({"metadata": {"$deleteFromPrimitiveList": ["a"]}}, 400, "invalid patch format of primitive list"),
        (
            {"metadata": {"$setElementOrder/nope": ["a"]}},
            500,
            "unable to find api field in struct ObjectMeta",
        ),
        ([], 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ],
)
def test_invalid_patches_are_refused_with_kube_apiservers_message(patch: Any, code: int, message: str) -> None:
    found, told = refusal(pod({"name": "a"}, labels={"x": "y"}), patch)
    assert found == code
    assert told.startswith(message)


def test_arguments_stay_as_they_were() -> None:
    before, patch = (
        pod(*named("a"), labels={"a": "1"}),
        pod({"name": "a", "image": "2"}, labels={"$patch": "delete"}),
    )
    copies = repr(before), repr(patch)
    after = strategic_merge(before, patch, POD)
    after["spec"]["containers"][0]["image"] = "3"
    assert (repr(before), repr(patch)) == copies


def test_a_null_patch_changes_nothing() -> None:
    assert strategic_merge(pod(labels={"a": "1"}), None, POD) == pod(labels={"a": "1"})
