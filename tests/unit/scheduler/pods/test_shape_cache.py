"""Shapes are computed once."""

from typing import Any

import pytest

from gangline.scheduler.pods.decode import ShapeCache, bound_pod_of, shape_of
from support.builders.scheduler_inputs import make_scheduler_pod

INDEX = "training.kubeflow.org/replica-index"
SPREAD = {"topologyKey": "zone", "maxSkew": 1, "labelSelector": {"matchLabels": {INDEX: "1"}}}


def test_pods_written_alike_share_a_shape() -> None:
    shapes = ShapeCache()
    one = shapes.shape_for(make_scheduler_pod("a", labels={INDEX: "1"}, cpu=1))
    assert (
        shapes.shape_for(make_scheduler_pod("b", labels={INDEX: "2"}, cpu=1, spec={"nodeName": "n", "priority": 5}))
        is one
    )


def test_a_pod_that_starts_keeps_its_shape() -> None:
    shapes = ShapeCache()
    status = {
        "phase": "Running",
        "containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
    }
    assert shapes.shape_for(make_scheduler_pod(cpu=1, status=status)) is shapes.shape_for(make_scheduler_pod(cpu=1))


@pytest.mark.parametrize(
    "other",
    [
        {"namespace": "other"},
        {"labels": {"app": "b"}},
        {"cpu": 2},
        {"spec": {"nodeSelector": {"a": "b"}}},
        {"spec": {"tolerations": [{"operator": "Exists"}]}},
        {"spec": {"overhead": {"cpu": "1"}}},
        {"spec": {"resources": {"requests": {"cpu": "5"}}}},
        {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}},
        {"spec": {"volumes": [{"name": "v", "ephemeral": {}}]}},
        {"spec": {"resourceClaims": [{"name": "gpu"}]}},
        {"spec": {"schedulingGates": [{"name": "scheduling.gangline.dev/gang"}]}},
        {"spec": {"topologySpreadConstraints": [SPREAD]}},
        {"spec": {"initContainers": [{"name": "i", "resources": {"requests": {"cpu": "9"}}}]}},
        {"status": {"containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "7"}}}]}},
    ],
    ids=str,
)
def test_whatever_makes_a_shape_another_is_noticed(other: dict[str, Any]) -> None:
    shapes = ShapeCache()
    plain = make_scheduler_pod(labels={"app": "a"}, cpu=1)
    fields: dict[str, Any] = {"labels": {"app": "a"}, "cpu": 1, **other}
    changed = make_scheduler_pod(**fields)
    assert shapes.shape_for(plain) == shape_of(plain)
    assert shapes.shape_for(changed) == shape_of(changed) != shape_of(plain)


def test_a_members_own_label_is_noticed_where_a_rule_asks_for_it() -> None:
    shapes = ShapeCache()
    pods = [make_scheduler_pod(labels={INDEX: str(n)}, spec={"topologySpreadConstraints": [SPREAD]}) for n in range(2)]
    assert [shapes.shape_for(pod) for pod in pods] == [shape_of(pod) for pod in pods]
    assert shapes.shape_for(pods[0]) != shapes.shape_for(pods[1])
    plain = [make_scheduler_pod(labels={INDEX: str(n)}) for n in range(2)]
    assert shapes.shape_for(plain[0], selected_labels=[INDEX]) != shapes.shape_for(plain[1], selected_labels=[INDEX])
    assert shapes.shape_for(plain[0]) is shapes.shape_for(plain[1])
    assert shapes.shape_for(plain[0], selected_labels=["app"]) is shapes.shape_for(plain[1], selected_labels=["other"])


def test_a_claim_of_a_pods_own_name_is_its_own() -> None:
    shapes = ShapeCache()
    spec = {"volumes": [{"name": "v", "ephemeral": {}}]}
    assert shapes.shape_for(make_scheduler_pod("a", spec=spec)).claims == ("a-v",)
    assert shapes.shape_for(make_scheduler_pod("b", spec=spec)).claims == ("b-v",)


def test_residents_are_the_same_as_without_a_memory() -> None:
    pod = make_scheduler_pod("a", labels={INDEX: "1", "app": "a"}, spec={"nodeName": "n", "priority": 3}, cpu=1)
    assert bound_pod_of(pod, ShapeCache().shape_for(pod)) == bound_pod_of(pod) is not None
    assert bound_pod_of(make_scheduler_pod("a")) is None


def test_when_too_many_are_kept_all_are_forgotten() -> None:
    shapes = ShapeCache(max_size=2)
    first = shapes.shape_for(make_scheduler_pod(cpu=1))
    for number in range(2, 5):
        shapes.shape_for(make_scheduler_pod(cpu=number))
    assert shapes.shape_for(make_scheduler_pod(cpu=1)) == first
