"""What kube-apiserver publishes about its kinds, saved by hack/openapi.py and loaded on first use."""

import lzma
import pkgutil
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from gangline.api.meta import JSON


class DiscoveryData(msgspec.Struct, frozen=True):
    """API groups in the server's order, and the hash of every OpenAPI document."""

    groups: list[JSON]
    hashes: dict[str, str]


class MessageField(msgspec.Struct, frozen=True, array_like=True):
    """One field of a protobuf message."""

    number: int
    name: str
    """The name in JSON."""
    type: str
    """A scalar, `bytes` that are base64 in JSON, `raw` bytes that are not in JSON, or another message."""
    flags: str = ""
    """Letters: l list, m map, i inline, p pointer, o omitted when empty, z omitted when zero."""

    def has_flag(self, flag: str) -> bool:
        return flag in self.flags


class MessageCatalog(msgspec.Struct, frozen=True):
    """Protobuf messages by definition. Kinds are by API version; those of the version "" are in every version."""

    kinds: dict[str, dict[str, str]]
    messages: dict[str, tuple[MessageField, ...]]


class _OpenAPIDocuments(msgspec.Struct, frozen=True):
    documents: dict[str, msgspec.Raw]
    templates: dict[str, msgspec.Raw]


class _TypeData(msgspec.Struct, frozen=True):
    kinds: dict[str, dict[str, str]]
    schemas: dict[str, msgspec.Raw]


class _Schemas(Mapping[str, Any]):
    """Schemas that are decoded when they are first read: of hundreds, a program needs a few dozen."""

    def __init__(self, encoded: dict[str, msgspec.Raw]) -> None:
        self._encoded, self._decoded = encoded, dict[str, Any]()

    def __getitem__(self, name: str) -> Any:
        schema = self._decoded.get(name)
        if schema is None:
            schema = self._decoded[name] = msgspec.json.decode(self._encoded[name])
        return schema

    def __iter__(self) -> Iterator[str]:
        return iter(self._encoded)

    def __len__(self) -> int:
        return len(self._encoded)

    def __contains__(self, name: object) -> bool:
        return name in self._encoded


@cache
def _type_data() -> _TypeData:
    return msgspec.json.decode(zlib.decompress(_read_data("types.json.z")), type=_TypeData)


@cache
def schemas() -> Mapping[str, Any]:
    """Every schema by its OpenAPI name, without descriptions. Shared: must not be changed."""
    return _Schemas(_type_data().schemas)


def definition_names() -> dict[str, dict[str, str]]:
    """The definition of every kind, by API version and kind."""
    return _type_data().kinds


def ref_name(schema: JSON) -> str:
    """The definition that a schema refers to, directly or as its only `allOf`; empty when it refers to none."""
    if len(schema.get("allOf", ())) == 1:
        schema = schema["allOf"][0]
    return str(schema.get("$ref", "")).rpartition("/")[2]


@cache
def discovery_data() -> DiscoveryData:
    return msgspec.json.decode(zlib.decompress(_read_data("discovery.json.z")), type=DiscoveryData)


def table_columns() -> dict[str, list[JSON]]:
    """The columns of tables, by kind. Not cached: they are read once for each kind."""
    columns: dict[str, list[JSON]] = msgspec.json.decode(zlib.decompress(_read_data("columns.json.z")))
    return columns


@cache
def message_catalog() -> MessageCatalog:
    return msgspec.json.decode(zlib.decompress(_read_data("protobuf.json.z")), type=MessageCatalog)


def openapi_documents() -> dict[str, msgspec.Raw]:
    """OpenAPI v3 documents with descriptions, by name: `apis/apps/v1`.

    Not cached: they have megabytes, are rarely requested, and clients cache them.
    """
    return _load_documents().documents


@cache
def crd_document_template(*, namespaced: bool) -> bytes:
    """The document of a group with one custom resource, with placeholders for its names."""
    return bytes(_load_documents().templates["Namespaced" if namespaced else "Cluster"])


def _load_documents() -> _OpenAPIDocuments:
    return msgspec.json.decode(lzma.decompress(_read_data("documents.json.xz")), type=_OpenAPIDocuments)


def _read_data(name: str) -> bytes:
    content = pkgutil.get_data("gangline.schema", f"data/{name}")
    if content is None:
        raise FileNotFoundError(name)
    return content
