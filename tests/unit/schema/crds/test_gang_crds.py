"""The definitions of PodGroup and Queue: valid, complete, and refusing meaningless values."""

from typing import Any

import msgspec
import pytest

from gangline.api.core import PodPhase
from gangline.api.meta import JSON
from gangline.api.scheduling import PODGROUPS, QUEUES, PodGroup, Queue
from gangline.api.scheme import Resource
from gangline.apiserver.kinds.crd.validation import crd_problems
from gangline.schema.crds.gang_crds import GANG_RESOURCES, gang_crd, gang_schema
from gangline.schema.nodes import SchemaNode
from gangline.schema.structural.validation import validate

both = pytest.mark.parametrize("resource", GANG_RESOURCES, ids=lambda one: one.kind)


def problems(resource: Resource[Any], value: JSON) -> list[str]:
    return [str(problem) for problem in validate(value, SchemaNode(gang_schema(resource)))]


@both
@pytest.mark.parametrize("described", [False, True], ids=["plain", "described"])
def test_server_finds_nothing_wrong(resource: Resource[Any], described: bool) -> None:
    definition = gang_crd(resource, described=described)
    definition["status"] = {"storedVersions": ["v1alpha1"]}
    definition["spec"]["conversion"] = {"strategy": "None"}
    assert crd_problems(definition) == []


@both
def test_every_field_is_in_the_schema_and_described(resource: Resource[Any]) -> None:
    result = gang_schema(resource, described=True)["properties"]
    for part in ("spec", "status"):
        model = resource.model.__annotations__[part]
        assert result[part]["properties"].keys() == {field.encode_name for field in msgspec.structs.fields(model)}
        assert all("description" in field for field in result[part]["properties"].values())


def test_short_names_are_nobody_elses() -> None:
    other_names = {"pg", "pgs", "podgroup-v1beta1", "q", "queue-v1beta1", "wl", "cq", "lq"}
    names = [name for resource in GANG_RESOURCES for name in gang_crd(resource)["spec"]["names"]["shortNames"]]
    assert names == ["gang", "gangs", "gangqueue", "gangqueues"]
    assert not other_names & set(names)


@both
def test_status_is_a_subresource(resource: Resource[Any]) -> None:
    (version,) = gang_crd(resource)["spec"]["versions"]
    assert version["subresources"] == {"status": {}}


def test_a_group_shows_its_phase_its_minimum_and_who_runs() -> None:
    (version,) = gang_crd(PODGROUPS)["spec"]["versions"]
    printed = [entry["name"] for entry in version["additionalPrinterColumns"] if not entry.get("priority")]
    assert printed == ["Phase", "Min", "Running", "Age"]
    assert gang_crd(QUEUES)["spec"]["scope"] == "Cluster"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"minMember": 0},
            "spec.minMember: Invalid value: 0: spec.minMember in body should be greater than or equal to 1",
        ),
        ({}, "spec.minMember: Required value"),
        (
            {"minMember": 1, "scheduleTimeoutSeconds": 0},
            "spec.scheduleTimeoutSeconds: Invalid value: 0: spec.scheduleTimeoutSeconds in body should be greater than or equal to 1",
        ),
        ({"minMember": 1, "topology": {}}, "spec.topology.key: Required value"),
    ],
)
def test_a_group_that_cannot_be_meant_is_refused(spec: JSON, message: str) -> None:
    assert problems(PODGROUPS, {"metadata": {"name": "g"}, "spec": spec}) == [message]


def test_a_weight_is_at_least_one() -> None:
    (message,) = problems(QUEUES, {"metadata": {"name": "q"}, "spec": {"weight": 0}})
    assert message.startswith("spec.weight: Invalid value: 0:")


def test_a_phase_that_no_group_has_is_refused() -> None:
    status = {"state": {"phase": PodPhase.FAILED.value}}
    (message,) = problems(PODGROUPS, {"spec": {"minMember": 1}, "status": status})
    assert message.startswith('status.state.phase: Unsupported value: "Failed"')


def test_what_the_structs_assume_is_what_the_definition_assumes() -> None:
    assert Queue().spec.weight == gang_schema(QUEUES)["properties"]["spec"]["properties"]["weight"]["default"]
    assert Queue().spec.reclaimable
    assert PodGroup().spec.min_member == 1
