from typing import Any

import msgspec
import pytest

from gangline.apiserver.apply.apply import (
    LAST_APPLIED_ANNOTATION,
    ApplyConflict,
    ApplyResult,
    server_side_apply,
)
from gangline.apiserver.apply.managed_fields import updated_managed_fields
from gangline.apiserver.apply.managed_kind import ManagedKind, managed_kind
from gangline.apiserver.errors import StatusError
from gangline.schema.typed.openapi import builtin_type

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"
CONFIG_MAP = managed_kind("v1", "ConfigMap", builtin_type("v1", "ConfigMap"))
DEPLOYMENT = managed_kind("apps/v1", "Deployment", builtin_type("apps/v1", "Deployment"))
WHICH, GO_ONE = "/a; /v1, Kind=ConfigMap", "&value.valueUnstructured{Value:1}"
SERVICE = managed_kind("v1", "Service", builtin_type("v1", "Service"))


def config(data: dict[str, str], **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **metadata}, "data": data}


def deployment(*containers: Any, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {**spec, "template": {"spec": {"containers": list(containers)}}},
    }


def stored(result: ApplyResult) -> dict[str, Any]:
    document = result.object
    return {
        **document,
        "metadata": {**document["metadata"], "uid": "u", "managedFields": result.managed_fields},
    }


def apply(
    live: dict[str, Any] | None,
    config_object: dict[str, Any],
    manager: str,
    *,
    force: bool = False,
    kind: ManagedKind = CONFIG_MAP,
) -> dict[str, Any]:
    return stored(server_side_apply(live, config_object, kind, manager=manager, now=LATE, force=force))


def owners(document: dict[str, Any]) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in document["metadata"]["managedFields"]}


def test_apply_creates_a_missing_object() -> None:
    result = server_side_apply(None, config({"k": "v"}, labels={"a": "b"}), CONFIG_MAP, manager="m", now=EARLY)
    assert result.object == config({"k": "v"}, labels={"a": "b"})
    assert result.managed_fields == [
        {
            "manager": "m",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": EARLY,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}, "f:data": {"f:k": {}}},
        }
    ]


def test_fields_no_longer_applied_are_removed() -> None:
    live = apply(None, config({"k": "v", "x": "y"}, labels={"a": "b"}), "m")
    assert apply(live, config({"k": "v"}), "m")["data"] == {"k": "v"}
    assert "labels" not in apply(live, config({"k": "v"}), "m")["metadata"]


def test_fields_of_another_owner_stay_when_no_longer_applied() -> None:
    live = apply(None, config({"k": "v", "x": "y"}), "one")
    live = apply(live, config({"x": "y"}), "two")
    live = apply(live, config({"k": "v"}), "one")
    assert live["data"] == {"k": "v", "x": "y"}
    assert owners(live) == {"one": {"f:data": {"f:k": {}}}, "two": {"f:data": {"f:x": {}}}}


def test_one_conflict_is_one_line() -> None:
    live = apply(None, config({"k": "v"}), "first")
    with pytest.raises(ApplyConflict) as caught:
        apply(live, config({"k": "other"}), "second")
    assert str(caught.value) == 'Apply failed with 1 conflict: conflict with "first": .data.k'
    assert caught.value.causes == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "first"', "field": ".data.k"}
    ]


def test_several_conflicts_are_a_list_by_manager() -> None:
    live = apply(None, config({"k": "v", "x": "y"}), "first")
    live["data"]["z"] = "1"
    before = {**live, "data": {"k": "v", "x": "y"}}
    live["metadata"]["managedFields"] = updated_managed_fields(before, live, CONFIG_MAP, manager="editor", now=LATE)
    with pytest.raises(ApplyConflict) as caught:
        apply(live, config({"k": "1", "x": "2", "z": "3"}), "second")
    assert str(caught.value) == (
        'Apply failed with 3 conflicts: conflicts with "editor" using v1:\n- .data.z\n'
        'conflicts with "first":\n- .data.k\n- .data.x'
    )


def test_force_takes_the_fields() -> None:
    live = apply(None, config({"k": "v", "x": "y"}), "first")
    live = apply(live, config({"k": "other"}), "second", force=True)
    assert live["data"] == {"k": "other", "x": "y"}
    assert owners(live) == {"first": {"f:data": {"f:x": {}}}, "second": {"f:data": {"f:k": {}}}}


def test_the_same_value_is_shared_and_the_object_unchanged() -> None:
    live = apply(None, config({"k": "v"}), "first")
    result = server_side_apply(live, config({"k": "v"}), CONFIG_MAP, manager="second", now=LATE)
    assert not result.changed
    assert [entry.get("time") for entry in result.managed_fields] == [None, LATE]


def test_a_repeated_apply_keeps_its_time() -> None:
    live = stored(server_side_apply(None, config({"k": "v"}), CONFIG_MAP, manager="m", now=EARLY))
    again = server_side_apply(live, config({"k": "v"}), CONFIG_MAP, manager="m", now=LATE)
    assert (again.changed, again.managed_fields) == (False, live["metadata"]["managedFields"])


def test_fields_of_an_untracked_object_belong_to_before_first_apply() -> None:
    live = config({"k": "v", "later": "z"}, uid="u")
    with pytest.raises(ApplyConflict, match=r'conflict with "before-first-apply" using v1: \.data\.k$'):
        apply(live, config({"k": "x"}), "m")
    after = apply(live, config({"k": "v"}), "m")
    assert owners(after) == {
        "before-first-apply": {"f:data": {".": {}, "f:k": {}, "f:later": {}}},
        "m": {"f:data": {"f:k": {}}},
    }


def test_list_elements_merge_by_key_and_keep_their_neighbours() -> None:
    live = apply(None, deployment(*({"name": name} for name in "abc")), "one", kind=DEPLOYMENT)
    after = apply(live, deployment({"name": "new"}, {"name": "b", "image": "x"}), "two", kind=DEPLOYMENT)
    assert after["spec"]["template"]["spec"]["containers"] == [
        {"name": "a"},
        {"name": "new"},
        {"name": "b", "image": "x"},
        {"name": "c"},
    ]


def test_element_is_removed_with_its_last_owner() -> None:
    live = apply(None, deployment({"name": "a"}, {"name": "b"}), "one", kind=DEPLOYMENT)
    live = apply(live, deployment({"name": "b", "image": "x"}), "two", kind=DEPLOYMENT)
    live = apply(live, deployment({"name": "a"}), "one", kind=DEPLOYMENT)
    assert [each["name"] for each in live["spec"]["template"]["spec"]["containers"]] == ["a", "b"]
    live = apply(live, deployment(), "two", kind=DEPLOYMENT)
    assert [each["name"] for each in live["spec"]["template"]["spec"]["containers"]] == ["a"]


def test_atomic_maps_conflict_as_a_whole() -> None:
    def service(**selector: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "s"},
            "spec": {"selector": selector},
        }

    live = apply(None, service(a="1"), "one", kind=SERVICE)
    with pytest.raises(ApplyConflict, match=r"\.spec\.selector$"):
        apply(live, service(b="2"), "two", kind=SERVICE)
    assert apply(live, service(b="2"), "two", kind=SERVICE, force=True)["spec"] == {"selector": {"b": "2"}}


def test_default_of_a_key_field_is_in_the_key_but_owned_only_when_sent() -> None:
    live = apply(None, deployment({"name": "a", "ports": [{"containerPort": 80}]}), "m", kind=DEPLOYMENT)
    container = owners(live)["m"]["f:spec"]["f:template"]["f:spec"]["f:containers"]['k:{"name":"a"}']
    assert container["f:ports"] == {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}}


def test_kubectl_takes_over_from_its_client_side_apply() -> None:
    last = msgspec.json.encode(config({"k": "v", "x": "y"})).decode()
    live = config({"k": "v", "x": "changed"}, annotations={LAST_APPLIED_ANNOTATION: last}, uid="u")
    live["metadata"]["managedFields"] = updated_managed_fields(
        None, live, CONFIG_MAP, manager="kubectl-client-side-apply", now=EARLY
    )
    after = apply(live, config({"k": "new"}), "kubectl")
    assert after["data"] == {"k": "new", "x": "changed"}
    assert msgspec.json.decode(after["metadata"]["annotations"][LAST_APPLIED_ANNOTATION]) == config({"k": "new"})
    with pytest.raises(ApplyConflict, match=r"1 conflict: .*: \.data\.x"):
        apply(live, config({"k": "new", "x": "mine"}), "kubectl")
    with pytest.raises(ApplyConflict, match=r"2 conflicts"):
        apply(live, config({"k": "new", "x": "mine"}), "another")


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        ({"apiVersion": "v1", "kind": "Secret"}, 400, "invalid object type: /v1, Kind=Secret"),
        ({}, 400, "invalid object type: /, Kind="),
        (config({}, managedFields=[]), 400, "metadata.managedFields must be nil"),
        (
            {**config({}), "bogus": 1},
            500,
            "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .bogus: field not declared in schema",
        ),
        (
            config({}, name=["x"]),
            500,
            (
                "failed to create typed patch object (/; /v1, Kind=ConfigMap): .metadata.name: expected string, "
                'got &value.valueUnstructured{Value:[]interface {}{"x"}}'
            ),
        ),
        (
            config({}, finalizers=["f", "f"]),
            500,
            'failed to create typed patch object (/a; /v1, Kind=ConfigMap): .metadata.finalizers: duplicate entries for key [="f"]',
        ),
        (
            config({"k": 1}),  # type: ignore[dict-item]
            500,
            f"failed to create typed patch object ({WHICH}): .data.k: expected string, got {GO_ONE}",
        ),
    ],
)
def test_invalid_configuration_is_refused_with_kube_apiservers_message(wanted: Any, code: int, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        server_side_apply(None, wanted, CONFIG_MAP, manager="m", now=LATE)
    assert (caught.value.code, caught.value.message) == (code, message)


def test_arguments_stay_as_they_were() -> None:
    live, applied = apply(None, config({"k": "v"}), "m"), config({"k": "v", "x": "y"})
    before = repr((live, applied))
    result = server_side_apply(live, applied, CONFIG_MAP, manager="m", now=LATE)
    result.object["data"]["k"] = "spoilt"
    assert repr((live, applied)) == before
