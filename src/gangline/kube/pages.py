"""Lists as typed pages. One object that does not decode does not make the list unreadable.

A page is decoded at once. Only if that fails is it decoded again object by object, to find the objects that do not fit
their type.
"""

import sys
from typing import Any, Generic, TypeVar

import msgspec

from gangline.api.codec.codec import DecodeError, decode
from gangline.api.meta import ApiStruct, Key, ListMeta

T = TypeVar("T")


class UnreadableObject(msgspec.Struct, frozen=True):
    """An object on the server that does not fit its type, and why."""

    key: Key
    resource_version: str
    problem: str
    # Only in a watch: the object was deleted.
    deleted: bool = False


class Page(ApiStruct, Generic[T], frozen=True):
    """A page of a list; `metadata.continue_` is set if more pages follow."""

    api_version: str = ""
    kind: str = ""
    metadata: ListMeta = ListMeta()
    items: tuple[T, ...] = ()
    # Not on the wire: the objects that `read_page` left out of `items`.
    unreadable: tuple[UnreadableObject, ...] = ()


class _RawPage(ApiStruct, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ListMeta = ListMeta()
    # Go encodes an empty list of built-in kinds as null.
    items: tuple[msgspec.Raw, ...] | None = None


class _PartialMetadata(ApiStruct, frozen=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _PartialObject(ApiStruct, frozen=True):
    metadata: _PartialMetadata


def page_type(model: type[T]) -> type[Page[T]]:
    """The type to which a list of `model` decodes."""
    return Page[model]  # type: ignore[valid-type]


def read_page(body: bytes, model: type[T]) -> Page[T]:
    """The decoded list; objects that do not fit are in `unreadable`. Raises `DecodeError` if the body is not a list."""
    try:
        page = decode(body, page_type(model))
    except DecodeError:
        page = _read_items_separately(body, model)
    _restore_kinds(page)
    return page


def _read_items_separately(body: bytes, model: type[T]) -> Page[T]:
    try:
        page = msgspec.json.decode(body, type=_RawPage)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"not a list: {error}") from error
    items: list[T] = []
    unreadable: list[UnreadableObject] = []
    for raw in page.items or ():
        try:
            items.append(decode(bytes(raw), model))
        except DecodeError as error:
            unreadable.append(unreadable_object(raw, error))
    return Page(
        api_version=page.api_version,
        kind=page.kind,
        metadata=page.metadata,
        items=tuple(items),
        unreadable=tuple(unreadable),
    )


def _restore_kinds(page: Page[Any]) -> None:
    """Set `apiVersion` and `kind`, which servers leave out of the items in lists of built-in kinds.

    So an object is the same whether it was listed or not. Items in lists of custom resources have both.
    """
    if not page.kind.endswith("List"):
        return
    api_version, kind = sys.intern(page.api_version), sys.intern(page.kind.removesuffix("List"))
    for item in page.items:
        if isinstance(item, dict):
            item.setdefault("apiVersion", api_version)
            item.setdefault("kind", kind)
        elif getattr(item, "kind", None) == "":
            # Frozen structs may be changed here: nothing else refers to them yet.
            msgspec.structs.force_setattr(item, "api_version", api_version)
            msgspec.structs.force_setattr(item, "kind", kind)


def unreadable_object(raw: msgspec.Raw, problem: DecodeError, *, deleted: bool = False) -> UnreadableObject:
    """Key and problem of an object that did not decode. Raises `DecodeError` if it has no metadata."""
    try:
        metadata = msgspec.json.decode(raw, type=_PartialObject).metadata
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"not an object: {error}") from error
    key = Key(metadata.namespace, metadata.name)
    return UnreadableObject(key, metadata.resource_version, str(problem), deleted)


def resource_version_of(item: Any) -> str:
    """The resourceVersion of an object, which is a struct or JSON."""
    if isinstance(item, dict):
        return str((item.get("metadata") or {}).get("resourceVersion", ""))
    version: str = item.metadata.resource_version
    return version
