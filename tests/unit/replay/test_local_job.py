"""A recorded job as it is played here: without what only its cluster has, with stand-ins for what is only in an image."""

import json
from datetime import UTC, datetime
from typing import Any

from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.api.meta import JSON
from gangline.replay.bundle import FaultCause, JobBundle, Manifest, RecordedFault, ReplicaRecord
from gangline.replay.local_job import LocalReplay, local_replay

MANIFEST = Manifest(1, "0.1", datetime(2026, 11, 18, tzinfo=UTC), "PyTorchJob", "team", "bert")


def bundle(pod: dict[str, Any], container: dict[str, Any], **more: Any) -> JobBundle:
    spec = {"containers": [{"name": "pytorch", "image": "registry/bert:1", **container}], **pod}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "bert", "namespace": "team", "uid": "u", "resourceVersion": "7", "ownerReferences": [{}]},
        "spec": {
            "runPolicy": {"schedulingPolicy": {"queue": "gold"}, "backoffLimit": 2, "suspend": False},
            "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": {"spec": spec}}},
        },
        "status": {"conditions": []},
    }
    return JobBundle(MANIFEST, job, **more)


def played(one: JobBundle, reason: str = "", *, has_code: bool = False) -> LocalReplay:
    return local_replay(one, PYTORCHJOB, lambda _: reason, has_code=has_code)


def pod_spec(replay: LocalReplay) -> JSON:
    spec: JSON = replay.job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    return spec


def test_what_only_a_cluster_has_is_left_out() -> None:
    pod = {
        "nodeSelector": {"gpu": "a100"},
        "schedulerName": "volcano",
        "serviceAccountName": "trainer",
        "imagePullSecrets": [{"name": "registry"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    container = {
        "command": ["python", "train.py"],
        "resources": {"limits": {"nvidia.com/gpu": "8", "memory": "64Gi"}, "requests": {"cpu": "32"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    replay = played(bundle(pod, container))
    spec = pod_spec(replay)
    assert set(spec) == {"containers", "volumes"}
    assert spec["volumes"] == [{"name": "data", "emptyDir": {}}]
    assert spec["containers"][0]["resources"] == {
        "limits": {"memory": "64Gi"},
        "requests": {"cpu": "0", "memory": "0"},
    }
    assert replay.job["spec"]["runPolicy"] == {"backoffLimit": 2}
    assert replay.job["metadata"] == {"name": "bert", "namespace": "team", "annotations": {}}
    assert "status" not in replay.job
    assert any("nvidia.com/gpu" in note for note in replay.notes)
    assert any("volume data (persistentVolumeClaim)" in note for note in replay.notes)
    assert replay.stand_ins == {}


def test_secrets_get_placeholders_and_config_maps_their_data() -> None:
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    maps = ({"metadata": {"name": "settings", "uid": "u"}, "data": {"lr": "0.1"}},)
    replay = played(bundle({}, {"command": ["true"], "env": env}, config_maps=maps))
    config_map, secret = replay.objects
    assert (config_map["metadata"]["namespace"], config_map["data"]) == ("team", {"lr": "0.1"})
    assert (secret["kind"], list(secret["data"])) == ("Secret", ["k"])


def test_a_program_of_an_image_is_played_by_a_stand_in_at_the_recorded_rate() -> None:
    fault = RecordedFault("worker-1", FaultCause.EXIT, 1, step=50, after_seconds=10)
    records = (ReplicaRecord("worker-0", rate=5.0, total=100), ReplicaRecord("worker-1"))
    one = bundle({"initContainers": [{"name": "x"}]}, {"command": ["/opt/train"]}, faults=(fault,), replicas=records)
    replay = played(one, "/opt/train exists only in the image")
    assert replay.is_stand_in("worker-1")
    assert not replay.is_stand_in("master-0")
    [container] = pod_spec(replay)["containers"]
    plans = json.loads(container["env"][0]["value"])
    assert (plans["worker-0"]["rate"], plans["worker-0"]["total"], plans["worker-1"]["rate"]) == (5.0, 100, 5.0)
    assert "initContainers" not in pod_spec(replay)


def test_a_fault_after_hours_comes_soon_with_stand_ins() -> None:
    fault = RecordedFault("worker-1", FaultCause.EXIT, 1, step=36_000, after_seconds=36_000)
    records = (ReplicaRecord("worker-0", rate=1.0), ReplicaRecord("worker-1", rate=1.0))
    replay = played(bundle({}, {"command": ["/opt/train"]}, faults=(fault,), replicas=records), "it is in the image")
    plans = json.loads(pod_spec(replay)["containers"][0]["env"][0]["value"])
    assert plans["worker-1"]["rate"] == 1200.0
    assert any("1200 times faster" in note for note in replay.notes)


def test_a_program_in_a_volume_that_is_not_in_the_bundle_cannot_run() -> None:
    pod = {"volumes": [{"name": "code", "persistentVolumeClaim": {"claimName": "code"}}]}
    container = {
        "command": ["python", "/code/train.py"],
        "volumeMounts": [{"name": "code", "mountPath": "/code"}],
    }
    assert played(bundle(pod, container)).stand_ins == {
        "worker": "/code/train.py is in volume code, which is not in the bundle"
    }


def test_shipped_code_starts_in_its_folder() -> None:
    pod = {
        "initContainers": [{"name": "gangline-unpack"}],
        "volumes": [{"name": "gangline-parcel", "configMap": {"name": "c"}}, {"name": "gangline-work", "emptyDir": {}}],
    }
    container = {
        "command": ["python", "train.py"],
        "workingDir": "/gangline/work",
        "volumeMounts": [{"name": "gangline-work", "mountPath": "/gangline/work"}],
    }
    spec = pod_spec(played(bundle(pod, container), has_code=True))
    assert spec["initContainers"] == []
    assert spec["volumes"] == []
    assert "workingDir" not in spec["containers"][0]
