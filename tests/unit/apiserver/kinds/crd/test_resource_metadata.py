"""The metadata of custom resources, over HTTP."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.servers.plane import PlaneAnswer, PlaneClient, running_plane, widget_crd

WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"


@pytest.fixture
async def plane() -> AsyncIterator[PlaneClient]:
    async with running_plane() as running:
        await running.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widget_crd())
        await running.poll_status(WIDGETS, 200)
        yield running


async def made(plane: PlaneClient, metadata: Any, **query: str) -> PlaneAnswer:
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata}
    return await plane.call("POST", WIDGETS, body, **query)


UNREADABLE = 'Widget in version "v1" cannot be handled as a Widget: json: cannot unmarshal '


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({"finalizers": "x"}, "string into Go struct field ObjectMeta.finalizers of type []string"),
        ({"finalizers": [1]}, "number into Go struct field ObjectMeta.finalizers of type string"),
        ({"labels": {"a": 1}}, "number into Go struct field ObjectMeta.labels of type string"),
        ({"labels": "x"}, "string into Go struct field ObjectMeta.labels of type map[string]string"),
        ({"generation": "x"}, "string into Go struct field ObjectMeta.generation of type int64"),
        ({"ownerReferences": [1]}, "number into Go struct field ObjectMeta.ownerReferences of type v1.Owner"),
    ],
)
async def test_wrong_types_are_refused(plane: PlaneClient, metadata: Any, told: str) -> None:
    answer = await made(plane, {"name": "w", **metadata})
    assert answer.status == 400
    assert answer.body["message"].startswith(UNREADABLE + told)
    await made(plane, {"name": "w"})
    patched = await plane.call("PATCH", f"{WIDGETS}/w", {"metadata": metadata}, media=MERGE)
    assert patched.status == 422
    assert told in patched.body["message"]


async def test_metadata_that_is_none_is_refused(plane: PlaneClient) -> None:
    told = (await made(plane, "x")).body["message"]
    assert told == f"{UNREADABLE}string into Go value of type v1.ObjectMeta"


async def test_what_is_empty_is_left_out_and_owned_by_nobody(plane: PlaneClient) -> None:
    empty: dict[str, Any] = {"labels": {}, "annotations": None, "finalizers": [], "ownerReferences": []}
    metadata = (await made(plane, {"name": "w", **empty})).body["metadata"]
    assert not {*empty, "managedFields"} & metadata.keys()
    metadata = (await made(plane, {"name": "v", "labels": {"a": None}})).body["metadata"]
    assert metadata["labels"] == {"a": ""}


async def test_last_finalizer_goes_with_the_list(plane: PlaneClient) -> None:
    await made(plane, {"name": "w", "finalizers": ["a.b/c"]})
    patch = [{"op": "remove", "path": "/metadata/finalizers/0"}]
    answer = await plane.call("PATCH", f"{WIDGETS}/w", patch, media=JSON_PATCH)
    assert not {"finalizers", "managedFields"} & answer.body["metadata"].keys()


async def test_unknown_fields_are_dropped_and_reported_of(plane: PlaneClient) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "foo": 1}
    answer = await made(plane, {"name": "w", "foo": 1, "ownerReferences": [owner]})
    assert "foo" not in answer.body["metadata"]
    assert "foo" not in answer.body["metadata"]["ownerReferences"][0]
    assert answer.warnings == [
        '299 - "unknown field \\"metadata.foo\\""',
        '299 - "unknown field \\"metadata.ownerReferences[0].foo\\""',
    ]
    refused = await made(plane, {"name": "v", "foo": 1}, fieldValidation="Strict")
    assert refused.status == 400
    assert refused.body["message"].endswith('strict decoding error: unknown field "metadata.foo"')


async def test_finalizer_without_a_domain_is_warned_of_once(plane: PlaneClient) -> None:
    told = (await made(plane, {"name": "w", "finalizers": ["x", "orphan", "a.b/c"]})).warnings
    assert len(told) == 1
    assert 'metadata.finalizers: \\"x\\": prefer a domain-qualified finalizer name' in told[0]
    answer = await plane.call("PATCH", f"{WIDGETS}/w", {"metadata": {"labels": {"a": "b"}}}, media=MERGE)
    assert answer.warnings == []
