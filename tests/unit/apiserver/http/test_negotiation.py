"""Content negotiation and representations, as a kube-apiserver 1.34 answers."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gangline.api.codec.documents import documents
from gangline.apiserver.http.negotiation import (
    MAX_PROTOBUF_LIST,
    PLAIN_JSON,
    Representation,
    accept_clauses,
    error_representation,
    for_long_list,
    negotiate,
)
from gangline.apiserver.http.representations import NegotiationError, plain_event
from gangline.apiserver.registry.object_kind import ObjectKind
from gangline.apiserver.registry.resources import builtin_resources
from gangline.apiserver.tables.builtin_rows import builtin_printer
from gangline.apiserver.tables.table import custom_printer
from gangline.schema.protobuf.definitions import message_name
from gangline.schema.protobuf.objects import decode

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LEASES = ObjectKind("coordination.k8s.io/v1", "Lease", builtin_printer("Lease"))
GADGETS = ObjectKind("example.com/v1", "Gadget", custom_printer([]), custom=True)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
PROTOBUF = "application/vnd.kubernetes.protobuf"


def lease(name: str, version: int = 7, holder: str = "me") -> bytes:
    return msgspec.json.encode(
        {
            "kind": "Lease",
            "apiVersion": "coordination.k8s.io/v1",
            "metadata": {
                "name": name,
                "resourceVersion": str(version),
                "creationTimestamp": "2026-01-02T03:04:00Z",
            },
            "spec": {"holderIdentity": holder},
        }
    )


def form(accept: str, *, watch: bool = False, agent: str = "", **query: str) -> Representation:
    return negotiate(accept, query, now=lambda: NOW, watch=watch, agent=agent)


def refused(accept: str, *, watch: bool = False, **query: str) -> Any:
    with pytest.raises(NegotiationError) as caught:
        form(accept, watch=watch, **query)
    assert caught.value.status["code"] == caught.value.code
    return caught.value.status


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "application/json",
        "application/json, */*",
        f"application/json,{PROTOBUF}",
        f"{PROTOBUF};q=0.5, */*;q=0.9",
        "text/html,application/json;q=0.5",
        "application/json;q=0",
        "application/json;stream=watch",
        "application/json;charset=utf-8",
    ],
)
def test_plain_json_passes_the_stored_bytes_through(accept: str) -> None:
    chosen = form(accept)
    assert chosen.is_plain
    assert chosen.content_type == "application/json"
    body = lease("a")
    assert chosen.encode_object(LEASES, body) is body


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("application/json;q=0.1,application/yaml", "application/yaml"),
        ("application/yaml;q=0.1,application/json", "application/json"),
        ("*/*,application/yaml", "application/yaml"),
        ("application/yaml", "application/yaml"),
    ],
)
def test_quality_and_exactness_decide(accept: str, media: str) -> None:
    assert form(accept).content_type == media


def test_malformed_clauses_are_left_out() -> None:
    assert [clause.name for clause in accept_clauses("garbage, a/b/c, x/y;q=high;z")] == ["x/y"]


@pytest.mark.parametrize("accept", ["text/html", "garbage", "application/*", "*/json", "application/cbor"])
def test_unknown_media_type_is_refused_by_the_router(accept: str) -> None:
    status = refused(accept)
    assert status["code"] == 406
    assert status["reason"] == "NotAcceptable"
    assert status["details"] == {}
    assert status["message"].startswith("406: Not Acceptable\n\nAvailable representations: application/json,")


@pytest.mark.parametrize(
    "accept",
    [
        "application/json;as=Nope;v=v1;g=meta.k8s.io",
        "application/json;as=Table;v=v1;g=other",
        "application/json;as=Table;v=v2;g=meta.k8s.io",
        "application/json;as=Table",
        "application/json;v=v1;g=meta.k8s.io",
        "application/json;stream=foo",
        f"{PROTOBUF};as=Table;v=v1;g=meta.k8s.io",
    ],
)
def test_unknown_view_is_not_acceptable(accept: str) -> None:
    assert refused(accept) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"only the following media types are accepted: application/json, application/yaml, {PROTOBUF}",
        "reason": "NotAcceptable",
        "code": 406,
    }


def test_next_clause_is_used_when_the_first_is_unavailable() -> None:
    assert form("application/json;as=Table;v=v9;g=meta.k8s.io,application/json").is_plain


def test_watch_has_no_yaml() -> None:
    message = refused("application/yaml", watch=True)["message"]
    types = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
    assert message == f"only the following media types are accepted: {types}"


def test_views_can_be_off() -> None:
    with pytest.raises(NegotiationError):
        negotiate(TABLE, {}, now=lambda: NOW, views=False)


def test_list_is_joined_and_items_of_built_in_kinds_lose_their_kind() -> None:
    body = PLAIN_JSON.encode_list(LEASES, [lease("a"), lease("b")], {"resourceVersion": "9"})
    assert body.startswith(
        b'{"kind":"LeaseList","apiVersion":"coordination.k8s.io/v1","metadata":{"resourceVersion":"9"},"items":[{"metadata"'
    )
    value = json.loads(body)
    assert [set(item) for item in value["items"]] == [{"metadata", "spec"}] * 2
    assert PLAIN_JSON.encode_list(LEASES, [], {}).endswith(b'"items":[]}')


def test_items_in_any_order_of_fields_lose_their_kind() -> None:
    odd = [
        b'{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","spec":{}}',
        b'{"spec":{},"kind":"Lease","apiVersion":"coordination.k8s.io/v1"}',
        b'{"kind":"Lease","apiVersion":"coordination.k8s.io/v1"}',
    ]
    value = json.loads(PLAIN_JSON.encode_list(LEASES, [*odd, {"kind": "Lease", "spec": {}}], {}))
    assert value["items"] == [{"spec": {}}, {"spec": {}}, {}, {"spec": {}}]


def test_list_of_custom_resources_keeps_kinds_and_has_an_empty_continue() -> None:
    item = b'{"apiVersion":"example.com/v1","kind":"Gadget"}'
    value = json.loads(PLAIN_JSON.encode_list(GADGETS, [item, item], {"resourceVersion": "1"}))
    assert value["metadata"] == {"continue": "", "resourceVersion": "1"}
    assert value["items"] == [json.loads(item)] * 2
    value = json.loads(PLAIN_JSON.encode_list(GADGETS, [item], {"continue": "token"}))
    assert value["metadata"]["continue"] == "token"


def test_event_is_one_line_around_the_stored_bytes() -> None:
    body = lease("a")
    line = PLAIN_JSON.event_encoder(LEASES)("ADDED", body)
    assert line == b'{"type":"ADDED","object":' + body + b"}\n" == plain_event("ADDED", body)


@pytest.mark.parametrize("value", ["1", "t", "T", "TRUE", "true", "True"])
def test_pretty_is_indented_by_two(value: str) -> None:
    body = form("", pretty=value).encode_list(LEASES, [], {"resourceVersion": "9"})
    assert body.decode().splitlines()[:4] == [
        "{",
        '  "kind": "LeaseList",',
        '  "apiVersion": "coordination.k8s.io/v1",',
        '  "metadata": {',
    ]
    assert body.endswith(b'  "items": []\n}')


def test_curl_and_browsers_get_pretty_json_unless_they_opt_out() -> None:
    assert not form("", agent="curl/8.0").is_plain
    assert form("", agent="curl/8.0", pretty="false").is_plain
    assert form("", agent="curl/8.0", watch=True).is_plain
    assert form("", agent="gangline", pretty="yes").is_plain
    assert not form("application/json;pretty=1").is_plain


def test_yaml_keeps_text_as_text() -> None:
    words = ["on", "y", "1e9", "0644", "0o17", "1:30", "2026-01-02", "~", "", " x", "a: b", "é", "a\nb\n"]
    value = {
        "kind": "ConfigMap",
        "data": {str(index): word for index, word in enumerate(words)},
        "n": [1, 1.5],
    }
    text = form("application/yaml").encode_status(value).decode()
    assert [document.body for document in documents(text)] == [value]


def test_metadata_of_one_object() -> None:
    value = json.loads(form(PARTIAL).encode_object(LEASES, lease("a")))
    assert value == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": json.loads(lease("a"))["metadata"],
    }
    with pytest.raises(NegotiationError) as caught:
        form(PARTIAL_LIST).encode_object(LEASES, lease("a"))
    assert str(caught.value) == (
        "you requested PartialObjectMetadataList, but the requested object is not a list (*coordination.Lease)"
    )


def test_metadata_of_a_list() -> None:
    old = PARTIAL_LIST.replace("v=v1", "v=v1beta1")
    value = json.loads(form(old).encode_list(LEASES, [lease("a")], {"resourceVersion": "9"}))
    assert value["kind"] == "PartialObjectMetadataList"
    assert value["apiVersion"] == value["items"][0]["apiVersion"] == "meta.k8s.io/v1beta1"
    assert value["items"][0]["metadata"]["name"] == "a"
    with pytest.raises(NegotiationError) as caught:
        form(PARTIAL).encode_list(LEASES, [], {})
    assert caught.value.code == 406


def test_metadata_watch_does_not_convert_errors() -> None:
    encode = form(PARTIAL, watch=True).event_encoder(LEASES)
    assert json.loads(encode("ADDED", lease("a")))["object"]["kind"] == "PartialObjectMetadata"
    error = {"kind": "Status", "code": 410}
    assert json.loads(encode("ERROR", error)) == {"type": "ERROR", "object": error}


def test_table_of_a_list_carries_its_metadata() -> None:
    metadata = {"resourceVersion": "9", "continue": "token", "remainingItemCount": 3}
    value = json.loads(form(TABLE).encode_list(LEASES, [lease("a"), lease("b", holder="you")], metadata))
    assert (value["kind"], value["apiVersion"], value["metadata"]) == ("Table", "meta.k8s.io/v1", metadata)
    assert [column["name"] for column in value["columnDefinitions"]] == ["Name", "Holder", "Age"]
    assert set(value["columnDefinitions"][0]) == {"name", "type", "format", "description", "priority"}
    assert [row["cells"] for row in value["rows"]] == [["a", "me", "5s"], ["b", "you", "5s"]]
    assert value["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


def test_table_of_one_object_has_its_version() -> None:
    value = json.loads(form(TABLE.replace("v=v1", "v=v1beta1")).encode_object(LEASES, lease("a", 7)))
    assert value["apiVersion"] == "meta.k8s.io/v1beta1"
    assert value["metadata"] == {"resourceVersion": "7"}
    assert value["rows"][0]["object"]["apiVersion"] == "meta.k8s.io/v1beta1"


def test_rows_include_as_much_of_the_object_as_requested() -> None:
    none = json.loads(form(TABLE, includeObject="None").encode_object(LEASES, lease("a")))
    whole = json.loads(form(TABLE, includeObject="Object").encode_object(LEASES, lease("a")))
    assert none["rows"][0]["object"] is None
    assert whole["rows"][0]["object"] == json.loads(lease("a"))
    assert refused(TABLE, includeObject="Everything")["message"] == (
        'Unable to convert to Table as requested: includeObject: Invalid value: "Everything": '
        "must be 'Metadata', 'Object', 'None', or empty"
    )
    assert form("", includeObject="Everything").is_plain


def test_table_watch_sends_columns_once_and_each_watch_its_own() -> None:
    chosen = form(TABLE, watch=True)
    for _ in range(2):
        encode = chosen.event_encoder(LEASES)
        first, second = (json.loads(encode("MODIFIED", lease("a", version))) for version in (7, 8))
        assert first["object"]["columnDefinitions"]
        assert second["object"]["columnDefinitions"] is None
        assert second["object"]["metadata"] == {"resourceVersion": "8"}


def test_bookmark_after_the_initial_events_keeps_its_annotation() -> None:
    encode = form(TABLE, watch=True, includeObject="None").event_encoder(LEASES)
    metadata = {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}
    row = json.loads(encode("BOOKMARK", {"kind": "Lease", "metadata": metadata}))["object"]["rows"][0]
    assert row["cells"] == ["", "", "<unknown>"]
    assert row["object"]["metadata"] == metadata


def test_errors_are_never_converted() -> None:
    status = {"kind": "Status", "code": 404}
    assert error_representation("application/yaml", {}).encode_status(status) == b"code: 404\nkind: Status\n"
    assert error_representation(f"{TABLE},application/json", {}).is_plain
    indented = error_representation(TABLE, {})
    assert indented.encode_status(status).startswith(b'{\n  "kind"')
    assert error_representation("text/html", {}).content_type == "application/json"


# Protobuf


@pytest.mark.parametrize(
    "accept", [PROTOBUF, f"{PROTOBUF},application/json", f"{PROTOBUF}, */*", f"{PROTOBUF};pretty=1"]
)
def test_protobuf_is_for_clients_that_name_it_first(accept: str) -> None:
    chosen = form(accept)
    assert chosen.content_type == PROTOBUF
    assert decode(chosen.encode_object(LEASES, lease("a"))) == json.loads(lease("a"))
    listed = decode(chosen.encode_list(LEASES, [lease("a"), lease("b")], {"resourceVersion": "9", "continue": "c"}))
    assert (listed["kind"], listed["metadata"]) == ("LeaseList", {"resourceVersion": "9", "continue": "c"})
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("accept", "count", "expected"),
    [
        (f"{PROTOBUF},application/json", MAX_PROTOBUF_LIST, PROTOBUF),
        (f"{PROTOBUF},application/json", MAX_PROTOBUF_LIST + 1, "application/json"),
        (f"{PROTOBUF}, */*", MAX_PROTOBUF_LIST + 1, "application/json"),
        (PROTOBUF, MAX_PROTOBUF_LIST + 1, PROTOBUF),
        (f"{PROTOBUF};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,*/*", MAX_PROTOBUF_LIST + 1, PROTOBUF),
        ("application/yaml,application/json", MAX_PROTOBUF_LIST + 1, "application/yaml"),
    ],
)
def test_long_list_is_json_for_clients_that_take_it(accept: str, count: int, expected: str) -> None:
    assert for_long_list(form(accept), accept, count).content_type == expected


def test_table_falls_back_from_protobuf_to_json() -> None:
    table = f"{PROTOBUF};as=Table;v=v1;g=meta.k8s.io,{TABLE}"
    assert json.loads(form(table).encode_object(LEASES, lease("a")))["kind"] == "Table"


def test_custom_resources_have_only_their_metadata_in_protobuf() -> None:
    def chosen(accept: str) -> Representation:
        return negotiate(accept, {}, now=lambda: NOW, routed=False)

    with pytest.raises(NegotiationError):
        chosen(PROTOBUF)
    assert chosen(f"{PROTOBUF},application/json").is_plain
    gadget = {"kind": "Gadget", "apiVersion": "example.com/v1", "metadata": {"name": "a"}, "size": 1}
    partial = chosen(PARTIAL.replace("application/json", PROTOBUF)).encode_object(GADGETS, gadget)
    assert decode(partial) == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"name": "a"},
    }


def test_watch_in_protobuf_has_frames() -> None:
    chosen = form(PROTOBUF, watch=True)
    assert chosen.stream_type == f"{PROTOBUF};stream=watch"
    encode = chosen.event_encoder(LEASES)
    frame = encode("ADDED", lease("a"))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert frame.endswith(chosen.encode_object(LEASES, lease("a")))
    assert b"too old" in encode("ERROR", {"kind": "Status", "apiVersion": "v1", "code": 410, "message": "too old"})


def test_error_is_in_protobuf_even_of_a_custom_resource() -> None:
    chosen = error_representation(f"{PROTOBUF},application/json", {})
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404}
    assert chosen.content_type == PROTOBUF
    assert decode(chosen.encode_status(status)) == status
    assert (
        error_representation(f"{PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io", {}).content_type
        == PLAIN_JSON.content_type
    )


def test_every_built_in_kind_has_a_protobuf_form() -> None:
    kinds = {(resource.api_version, resource.kind) for resource in builtin_resources()}
    assert [kind for kind in sorted(kinds) if message_name(*kind) is None] == []
