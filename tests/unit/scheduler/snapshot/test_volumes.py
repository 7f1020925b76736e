"""Volumes and what else ties a pod down: K17, K18, K19."""

from typing import Any

import msgspec
import pytest

from gangline.api.meta import Key, ObjectMeta, OwnerReference
from gangline.api.scheduler_views import Claim, CSINode, PersistentVolume, StorageClass
from gangline.api.scheduling import GATE
from gangline.scheduler.cache.nodes import Cluster
from gangline.scheduler.pods.shape import Shape
from gangline.scheduler.types.cycle import Placement
from support.builders.scheduler_inputs import (
    NOON,
    make_ask,
    make_cluster,
    make_node,
    make_pod,
    make_resident,
    make_shape,
    placed,
    shortage,
)

ZONE = "topology.kubernetes.io/zone"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
USES = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
SHAPE = make_shape(make_pod(cpu=1, spec=USES))


def claim(name: str = "data", *, volume: str = "pv", storage: str = "fast", **status: Any) -> Claim:
    spec = {
        "volumeName": volume,
        "storageClassName": storage,
        "accessModes": [status.pop("mode", "ReadWriteMany")],
    }
    body = {"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": status}
    return msgspec.convert(body, Claim)


def volume(*, labels: dict[str, str] | None = None, zones: list[str] | None = None) -> PersistentVolume:
    spec: dict[str, Any] = {}
    if zones:
        term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": zones}]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    return msgspec.convert(
        {"metadata": {"name": "pv", "labels": labels or {}}, "spec": spec}, PersistentVolume
    )


def storage(mode: str) -> StorageClass:
    return msgspec.convert({"metadata": {"name": "fast"}, "volumeBindingMode": mode}, StorageClass)


def zones(*found: PersistentVolume | Claim) -> Cluster:
    cluster = make_cluster(*(make_node(zone, labels={ZONE: zone}) for zone in ("a", "b", "c")))
    for each in found:
        if isinstance(each, Claim):
            cluster.put_claim(each)
        else:
            cluster.put_volume(each)
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
    assert placed(cluster, make_ask((SHAPE, 2))) == [["b", "b"]]
    assert shortage(cluster, make_ask((SHAPE, 9))).nodes == {"cannot reach the volume": 2, "lack cpu": 1}


def test_a_volume_of_several_zones_is_used_in_any_of_them() -> None:
    cluster = zones(volume(labels={ZONE: "b__c"}), claim())
    assert placed(cluster, make_ask((SHAPE, 8))) == [["b"] * 4 + ["c"] * 4]


def test_a_node_that_says_nothing_of_zones_reaches_a_volume_that_only_has_a_label() -> None:
    cluster = zones(volume(labels={ZONE: "z"}), claim())
    assert shortage(cluster, make_ask((SHAPE, 1))).nodes == {"cannot reach the volume": 3}
    cluster.put_node(make_node("plain"))
    assert placed(cluster, make_ask((SHAPE, 1))) == [["plain"]]


def test_a_volume_without_a_place_is_used_anywhere() -> None:
    assert len(placed(zones(volume(), claim()), make_ask((SHAPE, 12)))[0]) == 12


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
    found = shortage(zones(*there), make_ask((SHAPE, 1)))
    assert found.message == words
    assert found.refused


def test_a_claim_that_waits_for_its_first_pod_is_refused_with_the_remedy() -> None:
    cluster = zones(claim(volume=""))
    cluster.put_class(storage("WaitForFirstConsumer"))
    found = shortage(cluster, make_ask((SHAPE, 1)))
    assert found.refused
    assert 'persistentvolumeclaim "data"' in found.message
    assert "WaitForFirstConsumer" in found.message
    assert "scheduling.gangline.dev/commit: pin" in found.message
    cluster.put_class(storage("Immediate"))
    assert shortage(cluster, make_ask((SHAPE, 1))).message == 'persistentvolumeclaim "data" is not bound yet'


def test_when_the_claim_is_bound_the_gang_is_placed() -> None:
    cluster = zones(volume(zones=["c"]), claim(volume=""))
    assert shortage(cluster, make_ask((SHAPE, 2))).refused
    before = cluster.version
    cluster.put_claim(claim())
    assert cluster.version > before
    assert placed(cluster, make_ask((SHAPE, 2))) == [["c", "c"]]


def test_a_claim_for_one_pod_at_a_time_is_for_one_pod() -> None:
    cluster = zones(volume(), claim(mode="ReadWriteOncePod"))
    found = shortage(cluster, make_ask((SHAPE, 2)))
    assert (
        found.message == 'persistentvolumeclaim "data" is for one pod at a time (ReadWriteOncePod), 2 use it'
    )
    assert placed(cluster, make_ask((SHAPE, 1))) == [["a"]]
    cluster.put_pod(make_resident("other", "a", SHAPE))
    found = shortage(cluster, make_ask((SHAPE, 1)))
    assert found.message == 'persistentvolumeclaim "data" is for one pod at a time, and other uses it'
    assert isinstance(cluster.trial().place_after(make_ask((SHAPE, 1)), ["other"]), Placement)


def test_two_roles_do_not_share_a_claim_for_one_pod() -> None:
    cluster = zones(volume(), claim(mode="ReadWriteOncePod"))
    other = make_shape(make_pod(cpu=2, spec=USES))
    assert "2 use it" in shortage(cluster, make_ask(("a", SHAPE, 1), ("b", other, 1))).message
    trial, ask = cluster.trial(), make_ask((SHAPE, 1))
    found = trial.place(ask)
    assert isinstance(found, Placement)
    trial.take(ask, found)
    assert not isinstance(trial.place(ask), Placement)


def test_saying_the_same_again_changes_nothing_and_dropping_does() -> None:
    cluster = zones(volume(zones=["a"]), claim())
    cluster.put_class(storage("Immediate"))
    version = cluster.version
    cluster.put_claim(claim())
    cluster.put_volume(volume(zones=["a"]))
    cluster.put_class(storage("Immediate"))
    assert cluster.version == version
    cluster.drop_class("fast")
    cluster.drop_claim(Key("default", "data"))
    cluster.drop_volume("pv")
    assert cluster.version == version + 3
    assert shortage(cluster, make_ask((SHAPE, 1))).message == 'persistentvolumeclaim "data" not found'


def limits(node: str, count: int | None) -> CSINode:
    driver = {"name": "disk.example.com", "allocatable": {} if count is None else {"count": count}}
    return msgspec.convert({"metadata": {"name": node}, "spec": {"drivers": [driver]}}, CSINode)


def disk(name: str) -> tuple[PersistentVolume, Claim]:
    csi = {"driver": "disk.example.com", "volumeHandle": name}
    body = {"metadata": {"name": name}, "spec": {"csi": csi}}
    return msgspec.convert(body, PersistentVolume), claim(name, volume=name)


def using(*names: str) -> Shape:
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names]
    return make_shape(make_pod(cpu=1, spec={"volumes": volumes}))


def test_a_node_takes_as_many_volumes_as_its_driver_can_attach() -> None:
    cluster = zones(*disk("one"), *disk("two"), *disk("three"))
    for node in "abc":
        cluster.put_limits(limits(node, 1))
    assert shortage(cluster, make_ask((using("one", "two"), 1))).nodes == {"at their limit of volumes": 3}
    # One that is attached already is attached for all.
    assert placed(cluster, make_ask((using("one"), 4))) == [["a"] * 4]
    cluster.put_pod(make_resident("r", "a", using("one")))
    assert placed(cluster, make_ask((using("two"), 4))) == [["b"] * 4]
    assert placed(cluster, make_ask((using("one"), 3))) == [["a"] * 3]
    roles = make_ask(("x", using("two"), 3), ("y", using("three"), 3))
    assert placed(cluster, roles) == [["b"] * 3, ["c"] * 3]
    assert isinstance(cluster.trial().place_after(make_ask((using("two"), 9)), ["r"]), Placement)
    cluster.put_limits(limits("a", 2))
    cluster.put_limits(limits("b", None))
    cluster.drop_limits("c")
    assert placed(cluster, make_ask((using("two", "three"), 8))) == [["b"] * 4 + ["c"] * 4]


def test_limits_of_other_drivers_and_other_volumes_do_not_matter() -> None:
    cluster = zones(volume(), claim(), *disk("one"))
    cluster.put_limits(limits("a", 0))
    assert placed(cluster, make_ask((SHAPE, 1))) == [["a"]]
    assert placed(cluster, make_ask((using("one"), 1))) == [["b"]]
    version = cluster.version
    cluster.put_limits(limits("a", 0))
    assert cluster.version == version


def test_a_claim_made_for_the_pod_has_its_name() -> None:
    shape = make_shape(make_pod("w-0", spec={"volumes": [{"name": "scratch", "ephemeral": {}}]}))
    assert shape.claims == ("w-0-scratch",)


def test_volumes_that_tie_nobody_down_are_not_kept() -> None:
    pod = make_pod(spec={"volumes": [{"name": "c", "configMap": {"name": "x"}}, *USES["volumes"]]})
    assert [each.name for each in pod.spec.volumes] == ["v"]


def test_a_member_with_a_resource_claim_is_refused_with_the_field_named() -> None:
    shape = make_shape(make_pod(spec={"resourceClaims": [{"name": "gpu"}]}))
    found = shortage(make_cluster(make_node("n")), make_ask((shape, 1)))
    assert found.refused
    assert found.message.startswith("spec.resourceClaims (gpu): ")
    assert found.message.endswith("annotate the job with scheduling.gangline.dev/commit: pin")


GATED = {"schedulingGates": [{"name": "scheduling.gangline.dev/gang"}]}


def test_what_kube_scheduler_does_in_the_end_is_no_obstacle_to_a_pinned_pod() -> None:
    shape = make_shape(make_pod(cpu=1, spec=USES | GATED | {"resourceClaims": [{"name": "gpu"}]}))
    cluster = zones(volume(zones=["b"]), claim(volume=""))
    cluster.put_class(storage("WaitForFirstConsumer"))
    assert placed(cluster, make_ask((shape, 2))) == [["a", "a"]]
    cluster.put_claim(claim())
    assert placed(cluster, make_ask((shape, 2))) == [["b", "b"]]
    cluster.drop_claim(Key("default", "data"))
    assert shortage(cluster, make_ask((shape, 1))).refused


def test_a_claim_that_is_being_deleted_is_no_place_for_a_new_pod() -> None:
    cluster = zones(volume(), claim())
    assert placed(cluster, make_ask((SHAPE, 1))) == [["a"]]
    leaving = msgspec.structs.replace(
        claim(), metadata=ObjectMeta(name="data", namespace="default", deletion_timestamp=NOON)
    )
    cluster.put_claim(leaving)
    found = shortage(cluster, make_ask((SHAPE, 1)))
    assert (found.refused, found.message) == (True, 'persistentvolumeclaim "data" is being deleted')


def test_a_claim_of_the_right_name_that_was_made_for_somebody_else_is_not_taken() -> None:
    pod = make_pod("w-0", spec={"volumes": [{"name": "scratch", "ephemeral": {}}]})
    ask = make_ask((make_shape(pod), 1))
    cluster = zones(volume(), claim("w-0-scratch"))
    assert shortage(cluster, ask).message == 'persistentvolumeclaim "w-0-scratch" was not made for this pod'
    owner = OwnerReference(kind="Pod", name="w-0", uid=pod.metadata.uid, controller=True)
    metadata = ObjectMeta(name="w-0-scratch", namespace="default", owner_references=(owner,))
    cluster.put_claim(msgspec.structs.replace(claim(), metadata=metadata))
    assert placed(cluster, ask) == [["a"]]


def waits(provisioner: str = "disk.example.com", *allowed: str) -> StorageClass:
    body = {
        "metadata": {"name": "fast"},
        "volumeBindingMode": "WaitForFirstConsumer",
        "provisioner": provisioner,
        "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": list(allowed)}]}]
        if allowed
        else [],
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


def unbound(name: str, selected: str = "", **spec: Any) -> Claim:
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
        Claim,
    )


def pinned(*claims: str) -> Shape:
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    return make_shape(make_pod(spec={"volumes": volumes, "schedulingGates": [{"name": GATE}]}))


def test_a_pinned_pod_is_told_a_node_where_its_volume_can_be_made() -> None:
    cluster = zones(unbound("data"))
    cluster.put_class(waits())
    assert placed(cluster, make_ask((pinned("data"), 1))) == [["a"]]
    cluster.put_class(waits("disk.example.com", "c"))
    assert placed(cluster, make_ask((pinned("data"), 1))) == [["c"]]
    # Somebody has begun to make it.
    cluster.put_claim(unbound("data", selected="b"))
    assert placed(cluster, make_ask((pinned("data"), 1))) == [["b"]]


def test_where_volumes_are_not_made_a_pinned_pod_is_told_a_node_that_has_one_to_spare() -> None:
    cluster = zones(unbound("one"), unbound("two"), local("b1", "b"), local("c1", "c"))
    cluster.put_class(waits("kubernetes.io/no-provisioner"))
    assert placed(cluster, make_ask((pinned("one"), 1), (pinned("two"), 1))) == [["b"], ["c"]]
    cluster.put_pod(make_resident("first", "b", pinned("one")))
    assert placed(cluster, make_ask((pinned("two"), 1))) == [["c"]]
    cluster.drop_volume("c1")
    assert shortage(cluster, make_ask((pinned("two"), 1))).nodes == {"cannot reach the volume": 3}


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
    cluster.put_class(waits("kubernetes.io/no-provisioner"))
    ask = make_ask((pinned("data"), 1))
    assert shortage(cluster, ask).nodes == {"cannot reach the volume": 3}
    cluster.put_volume(local("pv", "b", claimRef={"namespace": "default", "name": "data"}))
    assert placed(cluster, ask) == [["b"]]


def test_a_claim_may_choose_its_volume_by_labels() -> None:
    cluster = zones(unbound("data", selector={"matchLabels": {"disk": "nvme"}}), local("pv", "b"))
    cluster.put_class(waits("kubernetes.io/no-provisioner"))
    ask = make_ask((pinned("data"), 1))
    assert shortage(cluster, ask).nodes == {"cannot reach the volume": 3}
    labelled = msgspec.structs.replace(
        local("pv", "b"), metadata=ObjectMeta(name="pv", labels={"disk": "nvme"})
    )
    cluster.put_volume(labelled)
    assert placed(cluster, ask) == [["b"]]
