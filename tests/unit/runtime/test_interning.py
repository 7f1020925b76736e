from itertools import chain
from typing import Any

import msgspec

from gangline.api.core import Pod
from gangline.api.meta import JSON
from gangline.runtime.interning import MAX_SPECS, MIN_PARTS, InternTable, ObjectInterner


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


def test_what_no_object_uses_any_more_is_dropped() -> None:
    table: InternTable[bytes, list[int]] = InternTable(10 * MIN_PARTS)
    used = [[number] for number in range(100)]
    for number in range(5 * MIN_PARTS):
        table.make_room()
        table[b"%d" % number] = used[number] if number < len(used) else [number]
    assert len(table) <= MIN_PARTS
    assert all(table[b"%d" % number] is value for number, value in enumerate(used))


def test_a_word_is_kept_as_long_as_somebody_uses_it() -> None:
    table: InternTable[str, str] = InternTable(10 * MIN_PARTS)
    used = [f"word {number}" for number in range(100)]
    for word in chain(used, (f"other {number}" for number in range(3 * MIN_PARTS))):
        table.make_room()
        table.setdefault(word, word)
    assert len(table) <= MIN_PARTS
    assert all(table[word] is word for word in used)


def test_parts_that_are_all_in_use_are_bounded() -> None:
    table: InternTable[bytes, list[int]] = InternTable(2 * MIN_PARTS)
    used = [[number] for number in range(10 * MIN_PARTS)]
    for number, value in enumerate(used):
        table.make_room()
        table[b"%d" % number] = value
    assert len(table) <= 2 * MIN_PARTS


def test_objects_that_come_and_go_leave_nothing() -> None:
    share = ObjectInterner()
    for number in range(2 * MAX_SPECS):
        share(msgspec.json.decode(body("a").replace(b"train:1", b"train:%d" % number), type=Pod))
    tables: list[InternTable[Any, Any]] = [share._parts, share._specs, share._words]
    # Specs that are not dropped yet use their parts.
    assert all(len(table) <= 2 * MIN_PARTS for table in tables)
