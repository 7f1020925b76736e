"""Pods as shapes and bound pods."""

from typing import Any

import pytest

from gangline.api.selectors import LabelSelector
from gangline.scheduler.pods.decode import ShapeCache, bound_pod_of, shape_of
from gangline.scheduler.types.shape import shape_excluding
from support.builders.scheduler_inputs import (
    make_gang_request,
    make_node_cache,
    make_pod_shape,
    make_scheduler_node,
    make_scheduler_pod,
    placed_nodes,
)

INDEX = "training.kubeflow.org/replica-index"


def test_members_of_a_role_have_one_shape() -> None:
    one, two = (
        shape_of(make_scheduler_pod(f"w-{number}", labels={"job": "j", INDEX: str(number)}, cpu=1))
        for number in range(2)
    )
    assert one == two
    assert hash(one) == hash(two)
    assert one.labels == (("job", "j"),)


def test_the_order_in_which_things_are_written_is_no_part_of_a_shape() -> None:
    tolerations = [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]
    one = make_scheduler_pod(
        labels={"a": "1", "b": "2"}, spec={"tolerations": tolerations, "nodeSelector": {"x": "1", "y": "2"}}
    )
    two = make_scheduler_pod(
        labels={"b": "2", "a": "1"},
        spec={"tolerations": tolerations[::-1], "nodeSelector": {"y": "2", "x": "1"}},
    )
    assert shape_of(one) == shape_of(two)


def test_how_long_a_taint_is_tolerated_is_no_part_of_a_shape() -> None:
    one, two = (
        shape_of(
            make_scheduler_pod(spec={"tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": seconds}]})
        )
        for seconds in (30, 300)
    )
    assert one == two


def test_a_members_own_label_is_kept_when_a_rule_asks_for_it() -> None:
    labels = {INDEX: "3", "job": "j"}
    assert shape_of(make_scheduler_pod(labels=labels), selected_labels=[INDEX]).labels == (("job", "j"), (INDEX, "3"))
    rule = {"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": [INDEX]}
    own = make_scheduler_pod(labels=labels, spec={"topologySpreadConstraints": [rule]})
    assert dict(shape_of(own).labels)[INDEX] == "3"


def test_labels_left_out_of_the_shape_are_the_residents_own() -> None:
    result = bound_pod_of(make_scheduler_pod(labels={INDEX: "3", "job": "j"}, spec={"nodeName": "n"}))
    assert result is not None
    assert result.identity_labels == ((INDEX, "3"),)
    assert result.shape.labels == (("job", "j"),)


def test_label_keys_of_the_pod_become_part_of_its_selectors() -> None:
    term = {
        "topologyKey": "zone",
        "labelSelector": {"matchLabels": {"app": "a"}},
        "matchLabelKeys": ["rev", "absent"],
        "mismatchLabelKeys": ["tenant"],
    }
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    shape = shape_of(make_scheduler_pod(labels={"rev": "7", "tenant": "t"}, spec={"affinity": affinity}))
    assert shape.pod_constraints.affinity[0].selector == LabelSelector.parse("app=a,rev in (7),tenant notin (t)")
    assert shape.pod_constraints.affinity[0].namespaces == {"default"}


def test_a_rule_without_a_selector_means_nobody() -> None:
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}
    selector = shape_of(make_scheduler_pod(spec={"affinity": affinity})).pod_constraints.anti_affinity[0].selector
    assert not selector.matches({})
    assert not selector.matches({"app": "a"})


def test_ports_of_containers_and_sidecars_count_and_of_init_containers_do_not() -> None:
    spec = {
        "containers": [{"name": "a", "ports": [{"hostPort": 80}, {"containerPort": 90}]}],
        "initContainers": [
            {"name": "b", "ports": [{"hostPort": 81}]},
            {"name": "c", "restartPolicy": "Always", "ports": [{"hostPort": 82, "hostIP": "0.0.0.0"}]},
        ],
    }
    assert [(port.port, port.ip) for port in shape_of(make_scheduler_pod(spec=spec)).host_ports] == [
        (80, ""),
        (82, ""),
    ]


def test_a_rule_that_cannot_be_understood_is_an_obstacle() -> None:
    term = {"matchExpressions": [{"key": "a", "operator": "Near", "values": []}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    shape = shape_of(make_scheduler_pod(spec={"affinity": {"nodeAffinity": required}}))
    assert shape.unsupported.startswith("spec.affinity: operator 'Near' is not known; write one of In, ")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_ended_holds_no_room(phase: str) -> None:
    assert bound_pod_of(make_scheduler_pod(spec={"nodeName": "n"}, status={"phase": phase})) is None


def test_a_pod_without_a_node_holds_no_room_and_a_nominated_one_is_promised_some() -> None:
    assert bound_pod_of(make_scheduler_pod()) is None
    result = bound_pod_of(make_scheduler_pod(status={"nominatedNodeName": "n"}, spec={"priority": 7}))
    assert result is not None
    assert (result.node, result.nominated, result.priority, result.terminating) == ("n", True, 7, False)


def test_a_pod_that_is_being_deleted_is_terminating_and_holds_its_room() -> None:
    result = bound_pod_of(make_scheduler_pod("w", deleted=True, spec={"nodeName": "n"}))
    assert result is not None
    assert (result.uid, result.key, result.terminating, result.nominated) == (
        "uid-default-w",
        ("default", "w"),
        True,
        False,
    )


def test_conditions_that_say_nothing_of_placing_are_not_kept() -> None:
    conditions = [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}]
    assert [each.type for each in make_scheduler_pod(status={"conditions": conditions}).status.conditions] == [
        "PodScheduled"
    ]


def test_a_pod_that_is_to_avoid_nodes_is_of_another_shape() -> None:
    term = {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term, {}]}}
    cluster = make_node_cache(
        make_scheduler_node("a", labels={"disk": "1"}), make_scheduler_node("b", labels={"disk": "1"})
    )
    cluster.put_node(make_scheduler_node("c"))
    for spec in ({}, {"affinity": {"nodeAffinity": required}}):
        shape = make_pod_shape(make_scheduler_pod(spec=spec))
        assert shape_excluding(shape, ()) is shape
        assert placed_nodes(cluster, make_gang_request((shape_excluding(shape, {"a"}), 1))) == [["b"]]


# Shapes are computed once.

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
