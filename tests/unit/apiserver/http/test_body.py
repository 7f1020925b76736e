import base64
import json
import lzma
from pathlib import Path

import pytest

from gangline.apiserver.errors import StatusError
from gangline.apiserver.http.body import check_fields, read_object
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.registry.served_kinds import builtin_catalog

PROTOBUF = "application/vnd.kubernetes.protobuf"
VECTORS = Path(__file__).parents[3] / "data" / "protobuf.json.xz"
ALL = json.loads(lzma.decompress(VECTORS.read_bytes()))


def message(name: str) -> bytes:
    return next(base64.b64decode(vector["protobuf"]) for vector in ALL if vector["name"] == name)


def config_maps() -> ServedKind:
    found = builtin_catalog().find("", "v1", "configmaps")
    assert found is not None
    return found


@pytest.mark.parametrize("media", [PROTOBUF, f"{PROTOBUF}; charset=utf-8"])
def test_protobuf_is_read(media: str) -> None:
    body = read_object(message("sample v1 ConfigMap"), media).object
    assert (body["kind"], body["metadata"]) == ("ConfigMap", {"name": "c"})
    assert body["binaryData"] == {"b": "AAH/", "none": ""}


def test_delete_options_are_read_from_protobuf() -> None:
    body = read_object(message("sample v1 DeleteOptions"), PROTOBUF).object
    assert (body["gracePeriodSeconds"], body["propagationPolicy"]) == (0, "Foreground")


@pytest.mark.parametrize("raw", [b"", b"k8s\x00", b'{"kind":"ConfigMap"}', b"k8s\x00\x0a\xff"])
def test_malformed_protobuf_is_a_bad_request(raw: bytes) -> None:
    with pytest.raises(StatusError) as caught:
        read_object(raw, PROTOBUF)
    assert caught.value.code == 400
    assert "the object provided is unrecognized" in caught.value.status["message"]


def test_unknown_content_type_is_refused_with_the_supported_ones() -> None:
    with pytest.raises(StatusError) as caught:
        read_object(b"{}", "text/plain")
    assert caught.value.code == 415
    assert caught.value.status["message"].endswith(f"application/json, application/yaml, {PROTOBUF}")


@pytest.mark.parametrize(
    ("raw", "media"),
    [
        (message("sample v1 ConfigMap"), PROTOBUF),
        (b"metadata: {name: a}\ndata:\n  x: 'y'\n", "application/yaml"),
        (b'{"metadata": {"name": "a"}}', "application/json"),
    ],
)
def test_good_fields_are_no_problem_in_any_format(raw: bytes, media: str) -> None:
    warnings: list[str] = []
    check_fields(config_maps(), read_object(raw, media).object, raw, "Strict", warnings.append)
    assert warnings == []


def test_unknown_field_in_yaml_is_reported() -> None:
    raw, warnings = b"metadata: {name: a}\ncolour: red\n", list[str]()
    check_fields(config_maps(), read_object(raw, "application/yaml").object, raw, "Warn", warnings.append)
    assert warnings == ['unknown field "colour"']
