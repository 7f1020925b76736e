"""Bounds and defaults of limit ranges."""

from typing import Any

import pytest

from gangline.apiserver.admission.limit_ranger import (
    ANNOTATION,
    claim_violations,
    pod_violations,
    set_default_resources,
)

JSON = dict[str, Any]


def limit_range(*limits: JSON) -> JSON:
    return {"spec": {"limits": list(limits)}}


def pod(resources: JSON, **spec: Any) -> JSON:
    return {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": resources}], **spec}}


def test_defaults_of_a_second_range_apply_to_what_is_still_missing() -> None:
    made = pod({})
    set_default_resources(made, limit_range({"type": "Container", "default": {"cpu": "1"}}))
    set_default_resources(made, limit_range({"type": "Container", "default": {"cpu": "2", "memory": "1Gi"}}))
    set_default_resources(made, limit_range({"type": "Container", "max": {"cpu": "2"}}))
    assert made["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "1", "memory": "1Gi"}}
    assert made["metadata"]["annotations"] == {ANNOTATION: "LimitRanger plugin set: memory limit for container c"}


def test_amounts_are_compared_in_thousandths_unless_they_are_too_large() -> None:
    bounds = limit_range({"type": "Container", "max": {"cpu": "1"}})
    assert list(pod_violations(pod({"limits": {"cpu": "1001m"}}), bounds)) == [
        "maximum cpu usage per Container is 1, but limit is 1001m"
    ]
    huge = limit_range({"type": "Container", "max": {"memory": "9223372036854775807"}})
    assert list(pod_violations(pod({"limits": {"memory": "9223372036854775807"}}), huge)) == []


@pytest.mark.parametrize(
    ("resources", "violations"),
    [
        ({"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}, []),
        (
            {"requests": {"cpu": "100m"}, "limits": {"cpu": "300m"}},
            ["cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"],
        ),
        (
            {"requests": {"cpu": "0"}, "limits": {"cpu": "300m"}},
            ["cpu max limit to request ratio per Container is 2, but no request is specified or request is 0"],
        ),
    ],
)
def test_ratio_of_limit_to_request(resources: JSON, violations: list[str]) -> None:
    bounds = limit_range({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}})
    assert list(pod_violations(pod(resources), bounds)) == violations


def test_a_pod_is_as_large_as_its_containers_and_sidecars_or_its_start() -> None:
    started = [
        {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
        {"name": "i", "resources": {"requests": {"cpu": "5"}}},
    ]
    bounds = limit_range({"type": "Pod", "min": {"cpu": "7"}})
    made = pod({"requests": {"cpu": "2"}}, initContainers=started)
    assert list(pod_violations(made, bounds)) == ["minimum cpu usage per Pod is 7, but request is 6"]
    made["spec"]["resources"] = {"requests": {"cpu": "7"}}
    assert list(pod_violations(made, bounds)) == []


def test_a_claim_without_a_bounded_resource() -> None:
    bounds = limit_range({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}})
    assert list(claim_violations({"spec": {"resources": {}}}, bounds)) == [
        "minimum storage usage per PersistentVolumeClaim is 1Gi.  No request is specified",
        "maximum storage usage per PersistentVolumeClaim is 2Gi.  No request is specified",
    ]
