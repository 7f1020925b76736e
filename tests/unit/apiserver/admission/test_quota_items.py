"""What objects count in quotas."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gangline.apiserver.admission.quota.items import QuotaItem, count_name, counted_resource, quota_item
from gangline.apiserver.admission.quota.usage import is_in_scopes, used_amounts

JSON = dict[str, Any]
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PODS = ("", "pods")


def texts(item: QuotaItem, now: datetime = NOW) -> JSON:
    return {name: str(amount) for name, amount in item.usage(now).items()}


def pod(amounts: JSON | None = None, *, status: JSON | None = None, metadata: JSON | None = None, **spec: Any) -> JSON:
    container = {"name": "c", "image": "x", "resources": amounts or {}}
    return {"metadata": metadata or {}, "spec": {"containers": [container], **spec}, "status": status or {}}


def test_a_pod_counts_its_resources_under_all_their_names() -> None:
    resources = {
        "requests": {"cpu": "1", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": "2"},
        "limits": {"cpu": "2", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": "2"},
    }
    assert texts(quota_item(PODS, pod(resources))) == {
        "count/pods": "1",
        "pods": "1",
        "cpu": "1",
        "requests.cpu": "1",
        "limits.cpu": "2",
        "hugepages-2Mi": "4Mi",
        "requests.hugepages-2Mi": "4Mi",
        "requests.nvidia.com/gpu": "2",
    }


def test_overhead_is_added_to_requests_and_to_limits_that_are_set() -> None:
    counted = texts(quota_item(PODS, pod({"limits": {"cpu": "2"}}, overhead={"cpu": "500m", "memory": "1Mi"})))
    assert counted["requests.cpu"] == "500m"
    assert counted["requests.memory"] == "1Mi"
    assert counted["limits.cpu"] == "2500m"
    assert "limits.memory" not in counted


def test_resources_of_the_pod_replace_those_of_its_containers() -> None:
    item = quota_item(PODS, pod({"requests": {"cpu": "1"}}, resources={"requests": {"cpu": "4"}}))
    assert texts(item)["requests.cpu"] == "4"
    assert item.missing == {}


@pytest.mark.parametrize(
    ("condition", "cpu"), [([], "3"), ([{"type": "PodResizePending", "reason": "Infeasible"}], "2")]
)
def test_a_resize_counts_the_larger_of_spec_and_status(condition: list[JSON], cpu: str) -> None:
    in_status = {"name": "c", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "2"}}
    status = {"containerStatuses": [in_status], "conditions": condition}
    assert texts(quota_item(PODS, pod({"requests": {"cpu": "3"}}, status=status)))["cpu"] == cpu


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_pod_counts_as_an_object_only(phase: str) -> None:
    assert texts(quota_item(PODS, pod({"requests": {"cpu": "1"}}, status={"phase": phase}))) == {"count/pods": "1"}


def test_a_pod_that_outlives_its_grace_period_counts_as_an_object_only() -> None:
    metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}
    item = quota_item(PODS, pod(metadata=metadata))
    assert texts(item, NOW + timedelta(seconds=30)) == {"count/pods": "1", "pods": "1"}
    assert texts(item, NOW + timedelta(seconds=31)) == {"count/pods": "1"}


def test_missing_resources_name_their_containers() -> None:
    item = quota_item(PODS, pod({"requests": {"cpu": "1"}}, initContainers=[{"name": "a", "resources": {}}]))
    assert item.missing["cpu"] == ("a",)
    assert item.missing["limits.memory"] == ("a", "c")


@pytest.mark.parametrize(
    ("operator", "values", "classes", "expected"),
    [
        ("Exists", [], ["a"], True),
        ("Exists", [], [], False),
        ("DoesNotExist", [], [], True),
        ("DoesNotExist", [], ["a"], False),
        ("In", ["a"], ["a", "b"], True),
        ("In", ["a"], [], False),
        ("NotIn", ["a"], ["a"], False),
        ("NotIn", ["a"], ["a", "b"], True),
        ("NotIn", ["a"], [], True),
    ],
)
def test_claims_are_in_the_scope_of_their_attribute_classes(
    operator: str, values: list[str], classes: list[str], expected: bool
) -> None:
    fields = ("volumeAttributesClassName", "currentVolumeAttributesClassName")
    wanted, current = (dict(zip(fields, classes, strict=False)).get(field) for field in fields)
    claim = {"metadata": {}, "spec": {fields[0]: wanted}, "status": {fields[1]: current}}
    selector = {"scopeName": "VolumeAttributesClass", "operator": operator, "values": values}
    assert is_in_scopes(quota_item(("", "persistentvolumeclaims"), claim), [selector]) is expected
    assert not is_in_scopes(quota_item(("", "services"), {"spec": {}}), [selector])


def test_devices_of_alternatives_count_as_their_worst_case() -> None:
    requests = [
        {"exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}},
        {
            "firstAvailable": [
                {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
                {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 3},
                {"deviceClassName": "tpu", "allocationMode": "All"},
            ]
        },
    ]
    claim = {"metadata": {}, "spec": {"devices": {"requests": requests}}}
    assert texts(quota_item(("resource.k8s.io", "resourceclaims"), claim)) == {
        "count/resourceclaims.resource.k8s.io": "1",
        "gpu.deviceclass.resource.k8s.io/devices": "5",
        "tpu.deviceclass.resource.k8s.io/devices": "32",
    }


@pytest.mark.parametrize(
    ("name", "resource"),
    [
        ("count/jobs.batch", ("batch", "jobs")),
        ("count/tfjobs.kubeflow.org", ("kubeflow.org", "tfjobs")),
        ("secrets", ("", "secrets")),
        ("count/pods", None),
        ("count/events", None),
        ("cpu", None),
    ],
)
def test_names_of_counts(name: str, resource: tuple[str, str] | None) -> None:
    assert counted_resource(name) == resource
    if resource is not None:
        assert count_name(resource) == f"count/{name.removeprefix('count/')}"


def test_amounts_that_nobody_counts_stay_as_they_are() -> None:
    quota = {
        "spec": {"hard": {"secrets": "5", "example.com/other": "1"}},
        "status": {"used": {"example.com/other": "1", "gone": "1"}},
    }
    used = used_amounts(quota, {}, {("", "secrets"): 2}, NOW)
    assert {name: str(amount) for name, amount in used.items()} == {"secrets": "2", "example.com/other": "1"}
