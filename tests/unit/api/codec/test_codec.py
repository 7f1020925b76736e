"""JSON and documents to structs and back: exact paths, JSON's words, Kubernetes' leniency."""

from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
import pytest

from gangline.api.codec.codec import DecodeError, decode, decode_document, documents, encode, load, to_json
from gangline.api.core import ConfigMap, Event, EventSeries, Lease, LeaseSpec, Pod, PodStatus
from gangline.api.kubeflow.kinds import TFJOB, TFJob
from gangline.api.meta import JSON, ApiStruct, Condition, ObjectMeta
from gangline.api.quantity import Quantity
from gangline.api.scheme import CORE_SCHEME, Resource

NOON = datetime(2026, 1, 2, 12, 0, 0, 345678, tzinfo=UTC)

JOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: linear
spec:
  # fourteen lines down
  runPolicy:
    cleanPodPolicy: None
  tfReplicaSpecs:
    PS:
      replicas: 1
      template: {}
    Worker:
      replicas: three
"""


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


T = TypeVar("T")


class Page(ApiStruct, Generic[T], frozen=True):
    items: tuple[T, ...] = ()


class Part(ApiStruct, frozen=True):
    part_name: str
    count: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0


class Whole(ApiStruct, frozen=True):
    parts: tuple[Part, ...] = ()
    by_name: dict[str, Part] = {}
    by_colour: dict[Literal["red", "blue"], int] = {}
    maybe: Part | None = None
    colour: Colour | None = None
    mode: Literal["on", "off"] = "on"
    port: int | str = 0
    ratio: float = 0.0
    at: datetime | None = None
    pair: tuple[int, str] = (0, "")
    memory: Quantity = Quantity(0)
    names: Annotated[list[str], msgspec.Meta(max_length=2)] = []
    free: JSON = {}


class Strict(ApiStruct, frozen=True, forbid_unknown_fields=True):
    known: int = 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"parts": [{"partName": "a"}, {"partName": 1}]}', "parts[1].partName: expected string, got 1"),
        (b'{"byName": {"x": {"partName": "x", "count": "2"}}}', 'byName.x.count: expected int, got "2"'),
        (b'{"byName": {"a.b/c": {"partName": true}}}', 'byName["a.b/c"].partName: expected string, got true'),
        (b'{"byName": {"": []}}', 'byName[""]: expected object, got array'),
        (b'{"byColour": {"green": 1}}', 'byColour.green: expected "red" or "blue" as the key'),
        (b'{"maybe": {"partName": 2.5}}', "maybe.partName: expected string, got 2.5"),
        (b'{"maybe": 5}', "maybe: expected object, got 5"),
        (b'{"maybe": {}}', "maybe.partName: required field is missing"),
        (b'{"parts": {}}', "parts: expected array, got object"),
        (b'{"parts": [[]]}', "parts[0]: expected object, got array"),
        (b'{"colour": "green"}', 'colour: expected "red" or "blue", got "green"'),
        (b'{"colour": 3}', 'colour: expected "red" or "blue", got 3'),
        (b'{"mode": "maybe"}', 'mode: expected "on" or "off", got "maybe"'),
        (b'{"port": 1.5}', "port: expected int or string, got 1.5"),
        (b'{"ratio": "half"}', 'ratio: expected number, got "half"'),
        (b'{"at": "noon"}', 'at: expected timestamp such as 2026-01-02T15:04:05Z, got "noon"'),
        (b'{"at": 12}', "at: expected timestamp such as 2026-01-02T15:04:05Z, got 12"),
        (b'{"pair": [1, 2]}', "pair[1]: expected string, got 2"),
        (b'{"pair": [1]}', "pair: expected array of length 2, got array"),
        (b'{"names": ["a", "b", "c"]}', "names: expected array of length <= 2, got array"),
        (b'{"parts": [{"partName": "a", "count": -1}]}', "parts[0].count: expected int >= 0, got -1"),
        (
            b'{"parts": [{"partName": "a", "count": 3000000000}]}',
            "parts[0].count: expected int <= 2147483647, got 3000000000",
        ),
        (b"[]", "expected object, got array"),
        (b"null", "expected object, got null"),
        (b'"text"', 'expected object, got "text"'),
    ],
)
def test_the_error_names_the_very_value(data: bytes, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(data, Whole)
    assert str(caught.value) == message


def test_the_error_keeps_its_parts() -> None:
    with pytest.raises(DecodeError) as caught:
        decode(b'{"byName": {"a": {"partName": "x", "count": "2"}}}', Whole)
    error = caught.value
    assert (error.path, error.actual, error.expected) == ("byName.a.count", '"2"', "int")
    assert (error.line, error.file) == (None, None)


def test_the_first_mistake_in_the_document_is_named() -> None:
    with pytest.raises(DecodeError, match=r"^spec\.priority: "):
        decode(b'{"spec": {"priority": "a"}, "metadata": {"name": 1}}', Pod)


def test_a_bad_quantity_says_what_to_write() -> None:
    with pytest.raises(DecodeError, match=r'^memory: "12 Gi" is not a quantity: write 12Gi'):
        decode(b'{"memory": "12 Gi"}', Whole)


def test_an_unknown_field_is_named_where_it_is_forbidden() -> None:
    with pytest.raises(DecodeError, match=r"^unknwon: unknown field$"):
        decode(b'{"unknwon": 1}', Strict)


def test_long_text_is_cut_short() -> None:
    with pytest.raises(DecodeError) as caught:
        decode(b'{"ratio": "' + b"x" * 5000 + b'"}', Whole)
    assert len(str(caught.value)) < 120


def test_generic_structs_are_walked_too() -> None:
    with pytest.raises(DecodeError, match=r"^items\[1\]\.spec\.priority: expected int, got \"high\"$"):
        decode(b'{"items": [{}, {"spec": {"priority": "high"}}]}', Page[Pod])


def test_a_time_needs_a_zone() -> None:
    with pytest.raises(DecodeError, match=r"^metadata\.creationTimestamp: expected timestamp"):
        decode(b'{"metadata": {"creationTimestamp": "2026-01-01T00:00:00"}}', Pod)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "JSON is malformed: input data was truncated"),
        (b'{"a":\n\n tru}', "JSON is malformed: invalid character (byte 9) (line 3)"),
        (b"{} x", "JSON is malformed: trailing characters (byte 4) (line 1)"),
        (b'{"metadata": {"name": "\xff"}}', "JSON is malformed: text that is not UTF-8"),
        (b'{"spec": {"priority": 1e999}}', "JSON is malformed: number out of range"),
        (b"[" * 100_000, "JSON is nested too deep"),
        (b'{"a":' * 100_000, "JSON is nested too deep"),
    ],
)
def test_what_is_not_json_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(data, Pod)
    assert str(caught.value) == message


def test_null_members_count_as_left_out() -> None:
    data = b"""{"metadata": {"name": "a", "creationTimestamp": null, "labels": null, "annotations": {"a": null, "b": "c"}},
                "spec": {"containers": [{"name": "c", "resources": null, "ports": null}]}, "status": null}"""
    pod = decode(data, Pod)
    assert pod.metadata == ObjectMeta(name="a", annotations={"b": "c"})
    assert pod.spec.containers[0].name == "c"
    assert pod.status == PodStatus()
    assert decode(b'{"items": null}', Page[Pod]).items == ()


def test_null_inside_free_json_stays() -> None:
    found = decode(b'{"names": null, "free": {"a": null, "b": [null]}}', Whole)
    assert found.free == {"a": None, "b": [None]}


def test_null_for_a_required_field_is_a_missing_field() -> None:
    with pytest.raises(DecodeError, match=r"^parts\[0\]\.partName: required field is missing$"):
        decode(b'{"parts": [{"partName": null}]}', Whole)


def test_null_is_not_an_item() -> None:
    with pytest.raises(DecodeError, match=r"^parts\[0\]: expected object, got null$"):
        decode(b'{"parts": [null]}', Whole)


def test_numbers_stand_for_quantities_but_not_for_other_text() -> None:
    pod = decode(b'{"spec": {"containers": [{"resources": {"limits": {"cpu": 2, "x": 0.5}}}]}}', Pod)
    assert pod.spec.containers[0].resources.limits == {"cpu": "2", "x": "0.5"}
    with pytest.raises(DecodeError, match=r"^data\.a: expected string, got 1$"):
        decode(b'{"data": {"a": 1}}', ConfigMap)


def test_unknown_fields_are_dropped() -> None:
    assert decode(b'{"spec": {"volumes": [{"name": "v"}]}}', Pod) == Pod()


def test_plain_json_stays_json() -> None:
    assert decode(b'{"a": null, "b": 1.5}', dict) == {"a": None, "b": 1.5}


def test_the_line_follows_the_path() -> None:
    (document,) = documents(JOB)
    with pytest.raises(DecodeError) as caught:
        decode_document(document, TFJob)
    assert str(caught.value) == 'spec.tfReplicaSpecs.Worker.replicas: expected int, got "three" (line 14)'


def test_a_file_name_takes_the_line() -> None:
    (document,) = documents(JOB, file="job.yaml")
    with pytest.raises(DecodeError) as caught:
        decode_document(document, TFJob)
    assert str(caught.value) == 'job.yaml:14: spec.tfReplicaSpecs.Worker.replicas: expected int, got "three"'
    assert (caught.value.file, caught.value.line) == ("job.yaml", 14)


def test_a_missing_field_has_the_line_of_what_lacks_it() -> None:
    (document,) = documents("kind: TFJob\nspec:\n  runPolicy: {}\n")
    with pytest.raises(DecodeError) as caught:
        decode_document(document, TFJob)
    assert str(caught.value) == "spec.tfReplicaSpecs: required field is missing (line 2)"


def test_a_document_may_hold_nulls_and_numbers_as_kubectl_allows() -> None:
    (document,) = documents("metadata:\n  labels:\nspec:\n  overhead: {cpu: 2}\n")
    pod = decode_document(document, Pod)
    assert (pod.metadata.labels, pod.spec.overhead) == ({}, {"cpu": "2"})


def test_load_picks_the_type_by_kind() -> None:
    text = "apiVersion: v1\nkind: Pod\n---\napiVersion: kubeflow.org/v1\nkind: TFJob\nspec: {tfReplicaSpecs: {}}\n"
    pod, job = load(text, CORE_SCHEME.with_resources(TFJOB.resource))
    assert isinstance(pod, Pod)
    assert isinstance(job, TFJob)


def test_load_keeps_json_where_the_scheme_says_so() -> None:
    scheme = CORE_SCHEME.with_resources(Resource("example.dev", "v1", "Ring", "rings", dict))
    assert load("{apiVersion: example.dev/v1, kind: Ring, x: 1}", scheme) == [
        {"apiVersion": "example.dev/v1", "kind": "Ring", "x": 1}
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Pod\n", "f.yaml:1: apiVersion: required field is missing"),
        ("\napiVersion: v1\n", "f.yaml:2: kind: required field is missing"),
        ("apiVersion: v1\nkind: ''\n", "f.yaml:2: kind: required field is missing"),
        ("apiVersion: v1\nkind: 3\n", "f.yaml:2: kind: expected string, got 3"),
        (
            "apiVersion: v1\nkind: TFJob\n",
            "f.yaml:2: kind: no kind TFJob in v1; write apiVersion: kubeflow.org/v1",
        ),
        ("apiVersion: v1\nkind: Pot\n", "f.yaml:2: kind: no kind Pot in v1; it is none of the known kinds"),
    ],
)
def test_load_says_which_kind_it_lacks(text: str, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        load(text, CORE_SCHEME.with_resources(TFJOB.resource), file="f.yaml")
    assert str(caught.value) == message


def test_times_are_written_to_the_second_and_in_utc() -> None:
    east = NOON.astimezone(timezone(timedelta(hours=5)))
    pod = Pod(
        metadata=ObjectMeta(creation_timestamp=east),
        status=PodStatus(conditions=(Condition(type="Ready", last_transition_time=NOON),)),
    )
    assert to_json(pod) == {
        "metadata": {"creationTimestamp": "2026-01-02T12:00:00Z"},
        "status": {"conditions": [{"type": "Ready", "lastTransitionTime": "2026-01-02T12:00:00Z"}]},
    }


def test_micro_times_always_have_six_digits() -> None:
    whole = NOON.replace(microsecond=0)
    lease = Lease(spec=LeaseSpec(acquire_time=whole, renew_time=NOON))
    assert to_json(lease) == {
        "spec": {"acquireTime": "2026-01-02T12:00:00.000000Z", "renewTime": "2026-01-02T12:00:00.345678Z"}
    }
    event = Event(event_time=whole, series=EventSeries(count=2, last_observed_time=whole))
    assert encode(event) == (
        b'{"eventTime":"2026-01-02T12:00:00.000000Z",'
        b'"series":{"count":2,"lastObservedTime":"2026-01-02T12:00:00.000000Z"}}'
    )
    assert decode(encode(lease), Lease) == lease


def test_a_time_without_a_zone_is_not_written() -> None:
    with pytest.raises(ValueError, match="without a time zone"):
        encode(Pod(metadata=ObjectMeta(creation_timestamp=NOON.replace(tzinfo=None))))


def test_structs_and_times_inside_plain_json_are_written_too() -> None:
    body: dict[str, Any] = {"at": NOON, "leases": [Lease(spec=LeaseSpec(renew_time=NOON))], "names": ("a",)}
    assert to_json(body) == {
        "at": "2026-01-02T12:00:00Z",
        "leases": [{"spec": {"renewTime": "2026-01-02T12:00:00.345678Z"}}],
        "names": ["a"],
    }


def test_equal_values_give_equal_bytes() -> None:
    one = ConfigMap(data={"b": "1", "a": "2"})
    other = ConfigMap(data={"a": "2", "b": "1"})
    assert encode(one) == encode(other) == b'{"data":{"a":"2","b":"1"}}'
    assert encode({"b": 1, "a": [None, True]}) == b'{"a":[null,true],"b":1}'


def test_quantities_are_text_on_the_wire() -> None:
    found = decode(b'{"memory": "1024Mi"}', Whole)
    assert encode(found) == b'{"memory":"1Gi"}'


def test_a_type_without_a_json_form_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="no JSON form for complex"):
        encode(1j)
