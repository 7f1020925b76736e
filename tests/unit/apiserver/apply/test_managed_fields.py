from typing import Any

import pytest

from gangline.apiserver.apply.managed_fields import (
    equal_ignoring_timestamps,
    manager_name,
    scaled_managed_fields,
    updated_managed_fields,
)
from gangline.apiserver.apply.managed_kind import ManagedKind, managed_kind
from gangline.schema.typed.openapi import builtin_type, crd_type

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"
CONFIG_MAP = managed_kind("v1", "ConfigMap", builtin_type("v1", "ConfigMap"))
POD = managed_kind("v1", "Pod", builtin_type("v1", "Pod"))
POD_STATUS = managed_kind("v1", "Pod", builtin_type("v1", "Pod"), subresource="status")
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        }
    },
}
THING = managed_kind("example.com/v1", "Thing", crd_type(SCHEMA), custom=True)


def config(data: dict[str, str], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "uid": "u", **metadata},
        "data": data,
    }


def written(
    old: dict[str, Any] | None,
    new: dict[str, Any],
    manager: str = "m",
    now: str = EARLY,
    kind: ManagedKind = CONFIG_MAP,
) -> dict[str, Any]:
    """The new object as it is stored."""
    managed = updated_managed_fields(old, new, kind, manager=manager, now=now)
    return {**new, "metadata": {**new["metadata"], "managedFields": managed}}


def owners(document: dict[str, Any]) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in document["metadata"]["managedFields"]}


def test_creator_owns_all_fields_but_those_that_identify_the_object() -> None:
    created = written(None, config({"k": "v"}, namespace="n", resourceVersion="1", generation=1, labels={"a": "b"}))
    assert created["metadata"]["managedFields"] == [
        {
            "manager": "m",
            "operation": "Update",
            "apiVersion": "v1",
            "time": EARLY,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:data": {".": {}, "f:k": {}}},
        }
    ]


def test_fields_that_every_object_has_are_not_owned_themselves() -> None:
    """`spec` and the list of containers belong to the zero object; a container does not."""
    created = written(
        None,
        {
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}], "resources": {}}]},
            "status": {"phase": "Pending"},
        },
        kind=POD,
    )
    container: dict[str, Any] = {
        ".": {},
        "f:name": {},
        "f:image": {},
        "f:ports": {".": {}, 'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}},
        "f:resources": {},
    }
    assert owners(created) == {"m": {"f:spec": {"f:containers": {'k:{"name":"c"}': container}}}}


def test_fields_of_custom_kinds_are_owned_from_the_spec_down() -> None:
    created = written(None, {"metadata": {}, "spec": {"free": {"a": {"b": [1]}, "n": {}}}}, kind=THING)
    assert owners(created) == {"m": {"f:spec": {".": {}, "f:free": {".": {}, "f:a": {".": {}, "f:b": {}}, "f:n": {}}}}}


def test_a_changed_field_moves_to_its_new_manager() -> None:
    created = written(None, config({"k": "v", "x": "y"}))
    changed = written(created, config({"k": "new", "x": "y"}), "other", LATE)
    assert owners(changed) == {"m": {"f:data": {".": {}, "f:x": {}}}, "other": {"f:data": {"f:k": {}}}}
    assert [entry["time"] for entry in changed["metadata"]["managedFields"]] == [EARLY, LATE]


def test_entry_without_fields_is_dropped() -> None:
    created = written(None, config({"k": "v"}))
    changed = written(created, config({"k": "new"}), "second")
    third = written(changed, config({"k": "newer"}), "third")
    assert owners(third) == {"m": {"f:data": {}}, "third": {"f:data": {"f:k": {}}}}


def test_removed_fields_have_no_owner() -> None:
    created = written(None, config({"k": "v", "x": "y"}))
    changed = written(created, config({"x": "y"}), "other")
    assert owners(changed) == {"m": {"f:data": {".": {}, "f:x": {}}}}


def test_a_write_without_change_keeps_owners_and_times() -> None:
    created = written(None, config({"k": "v"}))
    assert written(created, config({"k": "v"}), "other", LATE) == created


def test_a_second_change_of_the_same_manager_adds_to_its_entry() -> None:
    created = written(None, config({"k": "v"}))
    changed = written(created, config({"k": "v", "new": "x"}), "m", LATE)
    assert owners(changed) == {"m": {"f:data": {".": {}, "f:k": {}, "f:new": {}}}}
    assert changed["metadata"]["managedFields"][0]["time"] == LATE


def test_status_is_owned_through_its_subresource_only() -> None:
    created = written(None, {"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Pending"}}, kind=POD)
    assert owners(created) == {}
    created["metadata"]["managedFields"] = written(None, {"metadata": {"labels": {"a": "b"}}}, kind=POD)["metadata"][
        "managedFields"
    ]
    changed = {**created, "spec": {"nodeName": "ignored"}, "status": {"phase": "Running"}}
    [_, entry] = updated_managed_fields(created, changed, POD_STATUS, manager="kubelet", now=LATE)
    assert (entry["subresource"], entry["fieldsV1"]) == ("status", {"f:status": {"f:phase": {}}})


@pytest.mark.parametrize("wish", [[], [{}]])
def test_emptied_managed_fields_stay_empty(wish: list[Any]) -> None:
    created = written(None, config({"k": "v"}))
    emptied = written(created, config({"k": "v"}, managedFields=wish))
    assert emptied["metadata"]["managedFields"] == []
    assert updated_managed_fields(emptied, config({"k": "changed"}), CONFIG_MAP, manager="m", now=LATE) == []


def test_an_empty_list_resets_no_custom_kind() -> None:
    created = written(None, {"metadata": {}, "spec": {"free": {}}}, kind=THING)
    kept = written(created, {"metadata": {"managedFields": []}, "spec": {"free": {}}}, kind=THING)
    assert owners(kept) == owners(created)


def test_managed_fields_sent_by_a_client_are_used_when_valid() -> None:
    created = written(None, config({"k": "v"}))
    entry = {"manager": "hand", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    taken = written(created, config({"k": "v"}, managedFields=[{**entry, "fieldsV1": {"f:data": {"f:k": {}}}}]))
    assert owners(taken) == {"hand": {"f:data": {"f:k": {}}}}
    mistakes: list[Any] = [
        {"operation": "X"},
        {"apiVersion": ""},
        {"fieldsType": "V2"},
        {"fieldsV1": {"x": {}}},
    ]
    for bad in mistakes:
        kept = written(created, config({"k": "v"}, managedFields=[{**entry, **bad}]))
        assert owners(kept) == owners(created)


def test_more_than_ten_updaters_are_merged_oldest_first() -> None:
    document = written(None, config({"k0": "v"}), "m0", "2026-01-01T00:00:00Z")
    for index in range(1, 12):
        data = {f"k{each}": "v" for each in range(index + 1)}
        document = written(document, config(data), f"m{index}", f"2026-01-01T00:00:{index:02}Z")
    found = owners(document)
    assert len(found) == 10
    assert found["ancient-changes"] == {"f:data": {".": {}, "f:k0": {}, "f:k1": {}, "f:k2": {}}}
    [ancient] = [each for each in document["metadata"]["managedFields"] if each["manager"] == "ancient-changes"]
    assert ancient["time"] == "2026-01-01T00:00:02Z"


def test_scaling_moves_the_replicas() -> None:
    managed = [
        {"manager": "m", "operation": "Update", "apiVersion": "apps/v1", "time": EARLY, "fieldsType": "FieldsV1",
         "fieldsV1": {"f:spec": {"f:replicas": {}, "f:paused": {}}}}
    ]  # fmt: skip
    path = ("f:spec", "f:replicas")
    after = scaled_managed_fields(managed, manager="hpa", api_version="apps/v1", path=path, owned=True)
    assert after[0] == {
        "manager": "hpa",
        "operation": "Update",
        "apiVersion": "apps/v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:replicas": {}}},
        "subresource": "scale",
    }
    assert after[1]["fieldsV1"] == {"f:spec": {"f:paused": {}}}
    assert scaled_managed_fields(managed, manager="hpa", api_version="apps/v1", path=path, owned=False) == after[1:]


@pytest.mark.parametrize(
    ("asked", "agent", "name"),
    [
        ("given", "kubectl/v1", "given"),
        ("", "kubectl/v1.34 (linux)", "kubectl"),
        ("", "", "unknown"),
        ("", "/x", "unknown"),
        ("", "tab\tand\x00bell\x07", "tabandbell"),
        ("", "x" * 200, "x" * 128),
        ("", "é" * 100, "é" * 64),
    ],
)
def test_manager_is_named_by_the_request_or_by_its_user_agent(asked: str, agent: str, name: str) -> None:
    assert manager_name(asked, agent) == name


def test_objects_that_differ_only_in_times_are_equal() -> None:
    first, second = written(None, config({"k": "v"})), written(None, config({"k": "v"}), now=LATE)
    assert equal_ignoring_timestamps(first, second)
    assert not equal_ignoring_timestamps(first, written(None, config({"k": "w"})))
