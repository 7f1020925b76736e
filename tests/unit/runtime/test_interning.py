import msgspec

from gangline.api.core import Pod
from gangline.api.meta import JSON
from gangline.runtime.interning import ObjectInterner


def body(name: str) -> bytes:
    pod: JSON = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "team",
            "labels": {"example.com/job": "a long job name"},
            "ownerReferences": [{"kind": "TFJob", "name": "a long job name", "uid": "1"}],
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [{"name": "main", "image": "train:1", "resources": {"limits": {"cpu": "8"}}}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "message": name}]},
    }
    return msgspec.json.encode(pod)


def pods() -> tuple[Pod, Pod]:
    share = ObjectInterner()
    return share(msgspec.json.decode(body("a"), type=Pod)), share(msgspec.json.decode(body("b"), type=Pod))


def test_objects_stay_what_they_were() -> None:
    assert pods() == tuple(msgspec.json.decode(body(name), type=Pod) for name in "ab")


def test_equal_parts_are_kept_once() -> None:
    one, other = pods()
    assert one.spec.containers is other.spec.containers
    assert one.spec.node_name is other.spec.node_name
    assert one.metadata.namespace is other.metadata.namespace
    assert one.metadata.owner_references is other.metadata.owner_references
    assert one.status.phase is other.status.phase
    assert one.status.conditions[0].type is other.status.conditions[0].type
    (value,), (same,) = one.metadata.labels.values(), other.metadata.labels.values()
    assert value is same


def test_plain_json_comes_back_as_it_is() -> None:
    found = {"metadata": {"name": "a"}}
    assert ObjectInterner()(found) is found
