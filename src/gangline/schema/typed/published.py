"""What kube-apiserver publishes about its kinds, as hack/openapi.py saved it: read when first asked for."""

import lzma
import pkgutil
import zlib
from functools import cache
from typing import Any

import msgspec

from gangline.api.meta import JSON


class Discovered(msgspec.Struct, frozen=True):
    """Groups in the server's order, and the hash of every document."""

    groups: list[JSON]
    hashes: dict[str, str]


class Member(msgspec.Struct, frozen=True, array_like=True):
    """One field of a protobuf message."""

    number: int
    name: str
    """In JSON."""
    type: str
    """A scalar, `bytes` that are base64 in JSON, `raw` bytes that are not in JSON, or another message."""
    flags: str = ""
    """Letters: l list, m map, i inline, p pointer, o left out when empty, z left out when zero."""

    def has(self, flag: str) -> bool:
        return flag in self.flags


class Messages(msgspec.Struct, frozen=True):
    """Protobuf messages by definition. Kinds are by API version; those of the version "" are in every version."""

    kinds: dict[str, dict[str, str]]
    messages: dict[str, tuple[Member, ...]]


class _Documents(msgspec.Struct, frozen=True):
    documents: dict[str, msgspec.Raw]
    templates: dict[str, msgspec.Raw]


@cache
def schemas() -> dict[str, Any]:
    """Every schema by its OpenAPI name, without descriptions. Shared: not to be changed."""
    found: dict[str, Any] = msgspec.json.decode(zlib.decompress(_read("types.json.z")))
    return found


@cache
def discovery() -> Discovered:
    return msgspec.json.decode(zlib.decompress(_read("discovery.json.z")), type=Discovered)


@cache
def messages() -> Messages:
    return msgspec.json.decode(zlib.decompress(_read("protobuf.json.z")), type=Messages)


def documents() -> dict[str, msgspec.Raw]:
    """OpenAPI v3 documents with descriptions, by name: `apis/apps/v1`.

    Not cached: they are megabytes, are rarely asked for, and clients keep their own copy.
    """
    return _documents().documents


@cache
def template(*, namespaced: bool) -> bytes:
    """The document of a group that has one custom resource, with sentinels for its names."""
    return bytes(_documents().templates["Namespaced" if namespaced else "Cluster"])


def _documents() -> _Documents:
    return msgspec.json.decode(lzma.decompress(_read("documents.json.xz")), type=_Documents)


def _read(name: str) -> bytes:
    content = pkgutil.get_data("gangline.schema", f"data/{name}")
    if content is None:
        raise FileNotFoundError(name)
    return content
