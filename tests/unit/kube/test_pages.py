from typing import Any

import msgspec
import pytest

from gangline.api.codec.codec import DecodeError
from gangline.api.core import Pod
from gangline.api.meta import JSON, Key
from gangline.kube.pages import read_page, resource_version_of


def pod(name: str, **spec: object) -> JSON:
    return {"metadata": {"name": name, "namespace": "n", "resourceVersion": "3"}, "spec": spec}


def body(*items: JSON) -> bytes:
    metadata = {"resourceVersion": "7", "continue": "more"}
    return msgspec.json.encode({"apiVersion": "v1", "kind": "PodList", "metadata": metadata, "items": items})


def test_page_is_decoded_whole() -> None:
    page = read_page(body(pod("a"), pod("b")), Pod)
    assert [item.metadata.name for item in page.items] == ["a", "b"]
    assert page.metadata.resource_version == "7"
    assert page.metadata.continue_ == "more"
    assert page.unreadable == ()


def test_bad_object_is_named_and_the_others_are_kept() -> None:
    page = read_page(body(pod("a"), pod("bad", priority="high"), pod("b")), Pod)
    assert [item.metadata.name for item in page.items] == ["a", "b"]
    assert page.metadata.continue_ == "more"
    (bad,) = page.unreadable
    assert (bad.key, bad.resource_version) == (Key("n", "bad"), "3")
    assert "priority" in bad.problem


def test_objects_are_told_their_kind_which_lists_leave_out() -> None:
    (struct,) = read_page(body(pod("a")), Pod).items
    (plain,) = read_page(body(pod("a")), dict[str, Any]).items
    assert (struct.api_version, struct.kind) == (plain["apiVersion"], plain["kind"]) == ("v1", "Pod")


def test_kind_that_an_object_has_is_kept() -> None:
    (found,) = read_page(body({**pod("a"), "apiVersion": "v2", "kind": "Other"}), Pod).items
    assert (found.api_version, found.kind) == ("v2", "Other")


def test_list_that_is_null_is_empty() -> None:
    assert read_page(b'{"metadata":{"resourceVersion":"1"},"items":null}', Pod).items == ()


def test_plain_json_stays_as_it_is() -> None:
    found = pod("a", anything=1)
    kind = {"apiVersion": "v1", "kind": "Pod"}
    assert read_page(body(found), dict[str, Any]).items == ({**kind, **found},)


@pytest.mark.parametrize("answer", [b"<html>", b"[]", b'{"items": [1]}', b'{"items": [{"spec": {}, "x": 1}, 2]}'])
def test_what_is_no_list_is_refused(answer: bytes) -> None:
    with pytest.raises(DecodeError):
        read_page(answer, Pod)


def test_version_is_found_in_structs_and_json() -> None:
    assert resource_version_of(msgspec.convert(pod("a"), Pod)) == "3"
    assert resource_version_of(pod("a")) == "3"
    assert resource_version_of({}) == ""
