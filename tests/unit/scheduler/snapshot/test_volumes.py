"""Volume filters: K17, K18, K19."""

from typing import Any

import msgspec
import pytest

from gangline.api.meta import ObjectMeta, OwnerReference
from gangline.api.scheduler_views import CSINode, PersistentVolume, StorageClass, VolumeClaim
from gangline.api.scheduling import GANG_GATE
from gangline.scheduler.cache.nodes import NodeCache
from gangline.scheduler.types.cycle import Placement
from gangline.scheduler.types.shape import PodShape
from support.builders.scheduler_inputs import (
    GANG_CREATED_AT,
    make_bound_pod,
    make_gang_request,
    make_node_cache,
    make_pod_shape,
    make_scheduler_node,
    make_scheduler_pod,
    placed_nodes,
    placement_shortage,
)

ZONE = "topology.kubernetes.io/zone"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
USES = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
SHAPE = make_pod_shape(make_scheduler_pod(cpu=1, spec=USES))


def claim(name: str = "data", *, volume: str = "pv", storage: str = "fast", **status: Any) -> VolumeClaim:
    spec = {
        "volumeName": volume,
        "storageClassName": storage,
        "accessModes": [status.pop("mode", "ReadWriteMany")],
    }
    body = {"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": status}
    return msgspec.convert(body, VolumeClaim)


def volume(*, labels: dict[str, str] | None = None, zones: list[str] | None = None) -> PersistentVolume:
    spec: dict[str, Any] = {}
    if zones:
        term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": zones}]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    return msgspec.convert({"metadata": {"name": "pv", "labels": labels or {}}, "spec": spec}, PersistentVolume)


def storage(mode: str) -> StorageClass:
    return msgspec.convert({"metadata": {"name": "fast"}, "volumeBindingMode": mode}, StorageClass)


def zones(*found: PersistentVolume | VolumeClaim) -> NodeCache:
    cluster = make_node_cache(*(make_scheduler_node(zone, labels={ZONE: zone}) for zone in ("a", "b", "c")))
    for each in found:
        if isinstance(each, VolumeClaim):
            cluster.volumes.claims.put(each)
        else:
            cluster.volumes.volumes.put(each)
    return cluster


@pytest.mark.parametrize(
    "there",
    [
        volume(zones=["b"]),
        volume(labels={ZONE: "b"}),
        volume(labels={OLD_ZONE: "b"}),
        volume(zones=["a", "b"], labels={ZONE: "b__c"}),
    ],
    ids=["node affinity", "zone label", "old zone label", "both"],
)
def test_a_volume_in_zone_b_is_used_in_zone_b(there: PersistentVolume) -> None:
    cluster = zones(there, claim())
    assert placed_nodes(cluster, make_gang_request((SHAPE, 2))) == [["b", "b"]]
    assert placement_shortage(cluster, make_gang_request((SHAPE, 9))).nodes_by_reason == {
        "cannot reach the volume": 2,
        "lack cpu": 1,
    }


def test_a_volume_of_several_zones_is_used_in_any_of_them() -> None:
    cluster = zones(volume(labels={ZONE: "b__c"}), claim())
    assert placed_nodes(cluster, make_gang_request((SHAPE, 8))) == [["b"] * 4 + ["c"] * 4]


def test_a_node_that_says_nothing_of_zones_reaches_a_volume_that_only_has_a_label() -> None:
    cluster = zones(volume(labels={ZONE: "z"}), claim())
    assert placement_shortage(cluster, make_gang_request((SHAPE, 1))).nodes_by_reason == {"cannot reach the volume": 3}
    cluster.put_node(make_scheduler_node("plain"))
    assert placed_nodes(cluster, make_gang_request((SHAPE, 1))) == [["plain"]]


def test_a_volume_without_a_place_is_used_anywhere() -> None:
    assert len(placed_nodes(zones(volume(), claim()), make_gang_request((SHAPE, 12)))[0]) == 12


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ([], 'persistentvolumeclaim "data" not found'),
        ([claim(volume="")], 'persistentvolumeclaim "data" is not bound yet'),
        ([volume(), claim(phase="Pending")], 'persistentvolumeclaim "data" is not bound yet'),
        ([claim()], 'persistentvolume "pv" of claim "data" not found'),
        ([volume(), claim(phase="Lost")], 'persistentvolumeclaim "data" has lost its volume'),
    ],
    ids=["missing", "unbound", "half bound", "no volume", "lost"],
)
def test_a_claim_that_nobody_can_use_is_named(there: list[Any], words: str) -> None:
    result = placement_shortage(zones(*there), make_gang_request((SHAPE, 1)))
    assert result.message == words
    assert result.unsupported


def test_a_claim_that_waits_for_its_first_pod_is_refused_with_the_remedy() -> None:
    cluster = zones(claim(volume=""))
    cluster.volumes.storage_classes.put(storage("WaitForFirstConsumer"))
    result = placement_shortage(cluster, make_gang_request((SHAPE, 1)))
    assert result.unsupported
    assert 'persistentvolumeclaim "data"' in result.message
    assert "WaitForFirstConsumer" in result.message
    assert "scheduling.gangline.dev/commit: pin" in result.message
    cluster.volumes.storage_classes.put(storage("Immediate"))
    assert (
        placement_shortage(cluster, make_gang_request((SHAPE, 1))).message
        == 'persistentvolumeclaim "data" is not bound yet'
    )


def test_when_the_claim_is_bound_the_gang_is_placed() -> None:
    cluster = zones(volume(zones=["c"]), claim(volume=""))
    assert placement_shortage(cluster, make_gang_request((SHAPE, 2))).unsupported
    before = cluster.version
    cluster.volumes.claims.put(claim())
    assert cluster.version > before
    assert placed_nodes(cluster, make_gang_request((SHAPE, 2))) == [["c", "c"]]


def test_a_claim_for_one_pod_at_a_time_is_for_one_pod() -> None:
    cluster = zones(volume(), claim(mode="ReadWriteOncePod"))
    result = placement_shortage(cluster, make_gang_request((SHAPE, 2)))
    assert result.message == 'persistentvolumeclaim "data" is for one pod at a time (ReadWriteOncePod), 2 use it'
    assert placed_nodes(cluster, make_gang_request((SHAPE, 1))) == [["a"]]
    cluster.put_pod(make_bound_pod("other", "a", SHAPE))
    result = placement_shortage(cluster, make_gang_request((SHAPE, 1)))
    assert result.message == 'persistentvolumeclaim "data" is for one pod at a time, and other uses it'
    assert isinstance(cluster.what_if().place_after_eviction(make_gang_request((SHAPE, 1)), ["other"]), Placement)


def test_two_roles_do_not_share_a_claim_for_one_pod() -> None:
    cluster = zones(volume(), claim(mode="ReadWriteOncePod"))
    other = make_pod_shape(make_scheduler_pod(cpu=2, spec=USES))
    assert "2 use it" in placement_shortage(cluster, make_gang_request(("a", SHAPE, 1), ("b", other, 1))).message
    what_if, request = cluster.what_if(), make_gang_request((SHAPE, 1))
    result = what_if.place(request)
    assert isinstance(result, Placement)
    what_if.assume(request, result)
    assert not isinstance(what_if.place(request), Placement)


def test_saying_the_same_again_changes_nothing_and_dropping_does() -> None:
    cluster = zones(volume(zones=["a"]), claim())
    cluster.volumes.storage_classes.put(storage("Immediate"))
    version = cluster.version
    cluster.volumes.claims.put(claim())
    cluster.volumes.volumes.put(volume(zones=["a"]))
    cluster.volumes.storage_classes.put(storage("Immediate"))
    assert cluster.version == version
    cluster.volumes.storage_classes.drop(storage("Immediate"))
    cluster.volumes.claims.drop(claim())
    cluster.volumes.volumes.drop(volume())
    assert cluster.version == version + 3
    assert (
        placement_shortage(cluster, make_gang_request((SHAPE, 1))).message == 'persistentvolumeclaim "data" not found'
    )


def limits(node: str, count: int | None) -> CSINode:
    driver = {"name": "disk.example.com", "allocatable": {} if count is None else {"count": count}}
    return msgspec.convert({"metadata": {"name": node}, "spec": {"drivers": [driver]}}, CSINode)


def disk(name: str) -> tuple[PersistentVolume, VolumeClaim]:
    csi = {"driver": "disk.example.com", "volumeHandle": name}
    body = {"metadata": {"name": name}, "spec": {"csi": csi}}
    return msgspec.convert(body, PersistentVolume), claim(name, volume=name)


def using(*names: str) -> PodShape:
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    return make_pod_shape(make_scheduler_pod(cpu=1, spec={"volumes": volumes}))


def test_a_node_takes_as_many_volumes_as_its_driver_can_attach() -> None:
    cluster = zones(*disk("one"), *disk("two"), *disk("three"))
    for node in "abc":
        cluster.volumes.csi_nodes.put(limits(node, 1))
    assert placement_shortage(cluster, make_gang_request((using("one", "two"), 1))).nodes_by_reason == {
        "at their limit of volumes": 3
    }
    # A volume that is attached already is not attached again.
    assert placed_nodes(cluster, make_gang_request((using("one"), 4))) == [["a"] * 4]
    cluster.put_pod(make_bound_pod("r", "a", using("one")))
    assert placed_nodes(cluster, make_gang_request((using("two"), 4))) == [["b"] * 4]
    assert placed_nodes(cluster, make_gang_request((using("one"), 3))) == [["a"] * 3]
    roles = make_gang_request(("x", using("two"), 3), ("y", using("three"), 3))
    assert placed_nodes(cluster, roles) == [["b"] * 3, ["c"] * 3]
    assert isinstance(cluster.what_if().place_after_eviction(make_gang_request((using("two"), 9)), ["r"]), Placement)
    cluster.volumes.csi_nodes.put(limits("a", 2))
    cluster.volumes.csi_nodes.put(limits("b", None))
    cluster.volumes.csi_nodes.drop(limits("c", None))
    assert placed_nodes(cluster, make_gang_request((using("two", "three"), 8))) == [["b"] * 4 + ["c"] * 4]


def test_limits_of_other_drivers_and_other_volumes_do_not_matter() -> None:
    cluster = zones(volume(), claim(), *disk("one"))
    cluster.volumes.csi_nodes.put(limits("a", 0))
    assert placed_nodes(cluster, make_gang_request((SHAPE, 1))) == [["a"]]
    assert placed_nodes(cluster, make_gang_request((using("one"), 1))) == [["b"]]
    version = cluster.version
    cluster.volumes.csi_nodes.put(limits("a", 0))
    assert cluster.version == version


def test_a_claim_made_for_the_pod_has_its_name() -> None:
    shape = make_pod_shape(make_scheduler_pod("w-0", spec={"volumes": [{"name": "scratch", "ephemeral": {}}]}))
    assert shape.claims == ("w-0-scratch",)


def test_volumes_that_tie_nobody_down_are_not_kept() -> None:
    pod = make_scheduler_pod(spec={"volumes": [{"name": "c", "configMap": {"name": "x"}}, *USES["volumes"]]})
    assert [each.name for each in pod.spec.volumes] == ["v"]


def test_a_member_with_a_resource_claim_is_refused_with_the_field_named() -> None:
    shape = make_pod_shape(make_scheduler_pod(spec={"resourceClaims": [{"name": "gpu"}]}))
    result = placement_shortage(make_node_cache(make_scheduler_node("n")), make_gang_request((shape, 1)))
    assert result.unsupported
    assert result.message.startswith("spec.resourceClaims (gpu): ")
    assert result.message.endswith("annotate the job with scheduling.gangline.dev/commit: pin")


GATED = {"schedulingGates": [{"name": "scheduling.gangline.dev/gang"}]}


def test_what_kube_scheduler_does_in_the_end_is_no_obstacle_to_a_pinned_pod() -> None:
    shape = make_pod_shape(make_scheduler_pod(cpu=1, spec=USES | GATED | {"resourceClaims": [{"name": "gpu"}]}))
    cluster = zones(volume(zones=["b"]), claim(volume=""))
    cluster.volumes.storage_classes.put(storage("WaitForFirstConsumer"))
    assert placed_nodes(cluster, make_gang_request((shape, 2))) == [["a", "a"]]
    cluster.volumes.claims.put(claim())
    assert placed_nodes(cluster, make_gang_request((shape, 2))) == [["b", "b"]]
    cluster.volumes.claims.drop(claim())
    assert placement_shortage(cluster, make_gang_request((shape, 1))).unsupported


def test_a_claim_that_is_being_deleted_is_no_place_for_a_new_pod() -> None:
    cluster = zones(volume(), claim())
    assert placed_nodes(cluster, make_gang_request((SHAPE, 1))) == [["a"]]
    leaving = msgspec.structs.replace(
        claim(), metadata=ObjectMeta(name="data", namespace="default", deletion_timestamp=GANG_CREATED_AT)
    )
    cluster.volumes.claims.put(leaving)
    result = placement_shortage(cluster, make_gang_request((SHAPE, 1)))
    assert (result.unsupported, result.message) == (True, 'persistentvolumeclaim "data" is being deleted')


def test_a_claim_of_the_right_name_that_was_made_for_somebody_else_is_not_taken() -> None:
    pod = make_scheduler_pod("w-0", spec={"volumes": [{"name": "scratch", "ephemeral": {}}]})
    request = make_gang_request((make_pod_shape(pod), 1))
    cluster = zones(volume(), claim("w-0-scratch"))
    assert (
        placement_shortage(cluster, request).message == 'persistentvolumeclaim "w-0-scratch" was not made for this pod'
    )
    owner = OwnerReference(kind="Pod", name="w-0", uid=pod.metadata.uid, controller=True)
    metadata = ObjectMeta(name="w-0-scratch", namespace="default", owner_references=(owner,))
    cluster.volumes.claims.put(msgspec.structs.replace(claim(), metadata=metadata))
    assert placed_nodes(cluster, request) == [["a"]]


def waits(provisioner: str = "disk.example.com", *allowed: str) -> StorageClass:
    body = {
        "metadata": {"name": "fast"},
        "volumeBindingMode": "WaitForFirstConsumer",
        "provisioner": provisioner,
        "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": list(allowed)}]}] if allowed else [],
    }
    return msgspec.convert(body, StorageClass)


def local(name: str, zone: str, phase: str = "Available", **spec: Any) -> PersistentVolume:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    body = {
        "metadata": {"name": name},
        "spec": {
            "storageClassName": "fast",
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            **spec,
        },
        "status": {"phase": phase},
    }
    return msgspec.convert(body, PersistentVolume)


def unbound(name: str, selected: str = "", **spec: Any) -> VolumeClaim:
    metadata = {"name": name, "namespace": "default"}
    wants = {
        "storageClassName": "fast",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    annotations = {"volume.kubernetes.io/selected-node": selected} if selected else {}
    return msgspec.convert(
        {
            "metadata": {**metadata, "annotations": annotations},
            "spec": {**wants, **spec},
            "status": {"phase": "Pending"},
        },
        VolumeClaim,
    )


def pinned(*claims: str) -> PodShape:
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    return make_pod_shape(make_scheduler_pod(spec={"volumes": volumes, "schedulingGates": [{"name": GANG_GATE}]}))


def test_a_pinned_pod_is_told_a_node_where_its_volume_can_be_made() -> None:
    cluster = zones(unbound("data"))
    cluster.volumes.storage_classes.put(waits())
    assert placed_nodes(cluster, make_gang_request((pinned("data"), 1))) == [["a"]]
    cluster.volumes.storage_classes.put(waits("disk.example.com", "c"))
    assert placed_nodes(cluster, make_gang_request((pinned("data"), 1))) == [["c"]]
    # Its volume is being provisioned.
    cluster.volumes.claims.put(unbound("data", selected="b"))
    assert placed_nodes(cluster, make_gang_request((pinned("data"), 1))) == [["b"]]


def test_where_volumes_are_not_made_a_pinned_pod_is_told_a_node_that_has_one_to_spare() -> None:
    cluster = zones(unbound("one"), unbound("two"), local("b1", "b"), local("c1", "c"))
    cluster.volumes.storage_classes.put(waits("kubernetes.io/no-provisioner"))
    assert placed_nodes(cluster, make_gang_request((pinned("one"), 1), (pinned("two"), 1))) == [["b"], ["c"]]
    cluster.put_pod(make_bound_pod("first", "b", pinned("one")))
    assert placed_nodes(cluster, make_gang_request((pinned("two"), 1))) == [["c"]]
    cluster.volumes.volumes.drop(local("c1", "c"))
    assert placement_shortage(cluster, make_gang_request((pinned("two"), 1))).nodes_by_reason == {
        "cannot reach the volume": 3
    }


@pytest.mark.parametrize(
    "other",
    [
        local("pv", "b", "Bound", claimRef={"namespace": "default", "name": "other"}),
        local("pv", "b", "Released"),
        local("pv", "b", capacity={"storage": "1023Mi"}),
        local("pv", "b", accessModes=["ReadOnlyMany"]),
        local("pv", "b", volumeMode="Block"),
        local("pv", "b", storageClassName="slow"),
    ],
    ids=["of another", "released", "too small", "other access", "block", "other class"],
)
def test_a_volume_that_will_not_do_is_none(other: PersistentVolume) -> None:
    cluster = zones(unbound("data"), other)
    cluster.volumes.storage_classes.put(waits("kubernetes.io/no-provisioner"))
    request = make_gang_request((pinned("data"), 1))
    assert placement_shortage(cluster, request).nodes_by_reason == {"cannot reach the volume": 3}
    cluster.volumes.volumes.put(local("pv", "b", claimRef={"namespace": "default", "name": "data"}))
    assert placed_nodes(cluster, request) == [["b"]]


def test_a_claim_may_choose_its_volume_by_labels() -> None:
    cluster = zones(unbound("data", selector={"matchLabels": {"disk": "nvme"}}), local("pv", "b"))
    cluster.volumes.storage_classes.put(waits("kubernetes.io/no-provisioner"))
    request = make_gang_request((pinned("data"), 1))
    assert placement_shortage(cluster, request).nodes_by_reason == {"cannot reach the volume": 3}
    labelled = msgspec.structs.replace(local("pv", "b"), metadata=ObjectMeta(name="pv", labels={"disk": "nvme"}))
    cluster.volumes.volumes.put(labelled)
    assert placed_nodes(cluster, request) == [["b"]]
