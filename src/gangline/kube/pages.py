"""A list as typed pages. One bad object does not spoil the list.

Kinds are read by decoding a whole page at once. Only if that fails is the page read again, object by object, to
tell the one that somebody wrote by hand from the rest.
"""

import sys
from typing import Any, Generic, TypeVar

import msgspec

from gangline.api.codec.codec import DecodeError, decode
from gangline.api.meta import ApiStruct, Key, ListMeta

T = TypeVar("T")


class UnreadableObject(msgspec.Struct, frozen=True):
    """An object that the server has and that does not fit its type: which one, and why."""

    key: Key
    resource_version: str
    problem: str
    # Only in a watch: it was deleted, so the problem is no more.
    deleted: bool = False


class Page(ApiStruct, Generic[T], frozen=True):
    """Part of a list, or all of it: `metadata.continue_` says whether more follows."""

    api_version: str = ""
    kind: str = ""
    metadata: ListMeta = ListMeta()
    items: tuple[T, ...] = ()
    # Never on the wire: what `read_page` left out of `items`.
    unreadable: tuple[UnreadableObject, ...] = ()


class _RawPage(ApiStruct, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ListMeta = ListMeta()
    # Go writes an empty list of its own kinds as null.
    items: tuple[msgspec.Raw, ...] | None = None


class _PartialMetadata(ApiStruct, frozen=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _PartialObject(ApiStruct, frozen=True):
    metadata: _PartialMetadata


def page_type(model: type[T]) -> type[Page[T]]:
    """The type a list of a kind decodes to."""
    return Page[model]  # type: ignore[valid-type]


def read_page(body: bytes, model: type[T]) -> Page[T]:
    """Decode a list; objects that do not fit are in `unreadable`. Raises `DecodeError` if it is no list at all."""
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
    """Servers leave the kind of their own objects out of lists, and only there: put it back.

    So an object is the same however it came. Lists of custom resources, whose name may be anything, have it.
    """
    if not page.kind.endswith("List"):
        return
    api_version, kind = sys.intern(page.api_version), sys.intern(page.kind.removesuffix("List"))
    for item in page.items:
        if isinstance(item, dict):
            item.setdefault("apiVersion", api_version)
            item.setdefault("kind", kind)
        elif getattr(item, "kind", None) == "":
            # Fresh from the decoder: nobody has seen it yet.
            msgspec.structs.force_setattr(item, "api_version", api_version)
            msgspec.structs.force_setattr(item, "kind", kind)


def unreadable_object(raw: msgspec.Raw, problem: DecodeError, *, deleted: bool = False) -> UnreadableObject:
    """What can be told of an object that did not decode. Raises `DecodeError` if it has not even metadata."""
    try:
        metadata = msgspec.json.decode(raw, type=_PartialObject).metadata
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DecodeError(f"not an object: {error}") from error
    key = Key(metadata.namespace, metadata.name)
    return UnreadableObject(key, metadata.resource_version, str(problem), deleted)


def resource_version_of(found: Any) -> str:
    """The resourceVersion of an object, struct or JSON."""
    if isinstance(found, dict):
        return str((found.get("metadata") or {}).get("resourceVersion", ""))
    version: str = found.metadata.resource_version
    return version
