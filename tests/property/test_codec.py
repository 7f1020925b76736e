"""What is written is read back the same, and what is wrong is named exactly."""

import copy
import re
import types
from datetime import UTC, datetime
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gangline.api.codec.codec import DecodeError, decode, decode_document, documents, encode, to_json
from gangline.api.codec.errors import FieldPath, path_text
from gangline.api.core import ConfigMap, Event, Lease, Node, Pod, Service
from gangline.api.kubeflow.kinds import TFJob
from gangline.api.meta import MicroTime

SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=8),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    type(None): st.none(),
    Any: st.text(max_size=8) | st.booleans(),
}
moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a wire type."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in SCALARS:
        return SCALARS[kind]
    if origin is Annotated:
        if args[0] is not datetime:
            return values(args[0])
        return moments if kind == MicroTime else moments.map(lambda moment: moment.replace(microsecond=0))
    if kind is datetime:
        return moments.map(lambda moment: moment.replace(microsecond=0))
    if origin in (Union, types.UnionType):
        return st.one_of([values(member) for member in args])
    if origin is dict:
        return st.dictionaries(values(args[0]), values(args[1]), max_size=2)
    if origin is tuple:
        return st.lists(values(args[0]), max_size=2).map(tuple)
    return st.builds(kind, **{field.name: values(field.type) for field in msgspec.structs.fields(kind)})


@pytest.mark.parametrize("model", [Pod, ConfigMap, Lease, Event, Node, Service, TFJob])
def test_encoding_then_decoding_gives_the_same_value(model: type[Any]) -> None:
    @given(st.deferred(lambda: values(model)))
    def check(value: Any) -> None:
        data = encode(value)
        assert decode(data, model) == value
        assert encode(decode(data, model)) == data
        assert msgspec.json.decode(data) == to_json(value)

    check()


# Text that PyYAML leaves unquoted and kubectl reads as a boolean or a number: y, n, 1e3, 0o17.
AMBIGUOUS = re.compile(r"[yYnN]|[-+.]?[0-9].*", re.DOTALL)
texts = st.text(max_size=12).filter(lambda text: not AMBIGUOUS.fullmatch(text))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)
bodies = st.dictionaries(texts, json_values, min_size=1, max_size=4)


@given(bodies)
def test_yaml_of_json_loads_back_equal(body: dict[str, Any]) -> None:
    assert [document.body for document in documents(yaml.safe_dump(body))] == [body]


@given(bodies)
def test_json_loads_back_equal(body: dict[str, Any]) -> None:
    (document,) = documents(msgspec.json.format(encode(body)).decode())
    assert document.body == body


@given(st.lists(bodies, max_size=3))
def test_documents_come_back_in_order(found: list[dict[str, Any]]) -> None:
    assert [document.body for document in documents(yaml.safe_dump_all(found))] == found


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%@,? \t\n<0123~.", max_size=40))
def test_any_text_is_read_or_refused_with_a_line(text: str) -> None:
    last = text.count("\n") + 2
    try:
        lines = [line for document in documents(text) for line in document.lines.values()]
    except DecodeError as error:
        lines = [error.line or 0]
    assert all(1 <= line <= last for line in lines)


POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "linear-worker-0",
        "generation": 3,
        "creationTimestamp": "2026-01-02T15:04:05Z",
        "labels": {"app": "linear", "training.kubeflow.org/replica-type": "worker"},
        "ownerReferences": [{"kind": "TFJob", "name": "linear", "controller": True}],
        "finalizers": ["a", "b"],
    },
    "spec": {
        "priority": 5,
        "hostNetwork": False,
        "activeDeadlineSeconds": 60,
        "containers": [
            {"name": "sidecar"},
            {
                "name": "tensorflow",
                "ports": [{"containerPort": 2222}, {"name": "x", "hostPort": 1}],
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
            },
        ],
        "tolerations": [{"key": "k", "tolerationSeconds": 30}],
    },
    "status": {
        "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "lastTransitionTime": "2026-01-02T15:04:05Z"}],
        "containerStatuses": [
            {"ready": True, "state": {"terminated": {"exitCode": 137, "finishedAt": "2026-01-02T15:04:05Z"}}}
        ],
    },
}


def leaves(value: Any, path: FieldPath = ()) -> list[FieldPath]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in leaves(item, (*path, key))]
    if isinstance(value, list):
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, (*path, index))]
    return [path]


def wrong_for(value: Any) -> st.SearchStrategy[Any]:
    containers: st.SearchStrategy[Any] = st.just([]) | st.just({}) | st.just([1])
    if isinstance(value, str):
        # A number may stand for a quantity, so booleans are the scalars that never fit text.
        return st.booleans() | containers
    if isinstance(value, bool):
        return st.integers(0, 1) | st.text(max_size=5) | containers
    return st.booleans() | st.text(max_size=5) | st.just(1.5) | containers


@st.composite
def broken_pods(draw: st.DrawFn) -> tuple[dict[str, Any], FieldPath]:
    path = draw(st.sampled_from(leaves(POD)))
    body = copy.deepcopy(POD)
    parent: Any = body
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = draw(wrong_for(parent[path[-1]]))
    return body, path


def test_the_pod_itself_is_right() -> None:
    assert decode(encode(POD), Pod).status.container_statuses[0].ready


@given(broken_pods())
def test_a_broken_leaf_is_named_exactly(broken: tuple[dict[str, Any], FieldPath]) -> None:
    body, path = broken
    with pytest.raises(DecodeError) as caught:
        decode(encode(body), Pod)
    assert caught.value.path == path_text(path)
    assert caught.value.expected


@given(broken_pods())
def test_a_broken_leaf_is_named_with_its_line(broken: tuple[dict[str, Any], FieldPath]) -> None:
    body, path = broken
    text = yaml.safe_dump(body, sort_keys=False)
    (document,) = documents(text, file="pod.yaml")
    with pytest.raises(DecodeError) as caught:
        decode_document(document, Pod)
    assert caught.value.path == path_text(path)
    assert caught.value.line == document.lines[path]
    key = next(step for step in reversed(path) if isinstance(step, str))
    assert key in text.splitlines()[caught.value.line - 1] or isinstance(path[-1], int)
