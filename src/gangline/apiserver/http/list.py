"""Lists: selection, paging and resourceVersion semantics."""

import base64
import posixpath
import string
from collections.abc import Mapping

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.http.query import MAX_DIGITS, check_list_options, query_integer
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.registry.selection import Selection
from gangline.apiserver.store.errors import RevisionCompacted, RevisionTooNew
from gangline.apiserver.store.paths import collection_prefix
from gangline.apiserver.store.records import RangeResult, StoreRecord
from gangline.apiserver.store.store import Store
from gangline.schema.go_text import json_type_name
from gangline.schema.json_syntax import syntax_error

CONTINUE_EXPIRED_MESSAGE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
    "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
    "modified, or deleted between the time the first chunk was returned and now may show up in the list."
)
VERSION_EXPIRED_MESSAGE = "The resourceVersion for the provided list is too old."


_CONTINUE_VERSION = "meta.k8s.io/v1"
_BASE64_LETTERS = frozenset(string.ascii_letters + string.digits + "-_")


class _ContinueToken(msgspec.Struct, frozen=True):
    """The start of the next page, relative to the collection. Opaque to clients."""

    rv: int
    start: str
    v: str = _CONTINUE_VERSION


class ListPage(msgspec.Struct, frozen=True):
    """One page of a list: its objects and its metadata."""

    records: tuple[StoreRecord, ...]
    metadata: JSON


def list_page(
    store: Store, served_kind: ServedKind, namespace: str, query: Mapping[str, str], selection: Selection
) -> ListPage:
    """The page that a query asks for. Raises `StatusError`."""
    prefix = collection_prefix(served_kind.storage_group, served_kind.resource.plural, namespace)
    check_list_options(query, watch=False)
    limit = max(0, query_integer(query, "limit") or 0)
    token = query.get("continue", "")
    at, start = _decode_token(token, prefix, query) if token else (_list_revision(store, query, limit), "")
    page = _read_range(store, prefix, start, at, limit if not selection else 0, token=bool(token))
    records, has_more, remaining = page.records, page.has_more, page.remaining
    if selection:
        selected = [record for record in records if selection.matches(record)]
        has_more = bool(limit) and len(selected) > limit
        records = tuple(selected[:limit] if limit else selected)
    metadata: JSON = {"resourceVersion": str(page.revision)}
    if has_more:
        metadata["continue"] = _encode_token(page.revision, prefix, records[-1].path)
        if not selection:
            metadata["remainingItemCount"] = remaining
    return ListPage(records, metadata)


def _read_range(store: Store, prefix: str, start: str, at: int | None, limit: int, *, token: bool) -> RangeResult:
    try:
        return store.range(prefix, start_after=start, limit=limit, at=at)
    except RevisionCompacted:
        raise apierrors.resource_expired(CONTINUE_EXPIRED_MESSAGE if token else VERSION_EXPIRED_MESSAGE) from None
    except RevisionTooNew as error:
        raise apierrors.resource_version_too_large(error.requested, error.current) from error


def _list_revision(store: Store, query: Mapping[str, str], limit: int) -> int | None:
    """The revision to read at; None for the newest."""
    version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    if not version or version == "0":
        return None
    try:
        revision = parse_resource_version(version)
    except apierrors.StatusError as error:
        raise apierrors.bad_request(f"invalid resource version: {error.message}") from error
    if revision > store.revision:
        raise apierrors.resource_version_too_large(revision, store.revision)
    is_exact = match == "Exact" or (not match and limit > 0)
    return revision if is_exact else None


def parse_resource_version(text: str) -> int:
    """The number of a resourceVersion that a client sent. Raises `StatusError` (500); lists turn it into 400."""
    is_number = text.isascii() and text.isdecimal()
    if not is_number or len(text) > MAX_DIGITS or int(text) >= 2**64:
        problem = "value out of range" if is_number else "invalid syntax"
        message = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": {problem}'
        raise apierrors.StatusError(500, message)
    return int(text)


def _decode_token(token: str, prefix: str, query: Mapping[str, str]) -> tuple[int | None, str]:
    """The revision of a list, None for the newest, and the path after which its next page starts."""
    decoded = _parse_token(token)
    if query.get("resourceVersion", "") not in ("", "0"):
        raise apierrors.bad_request("specifying resource version is not allowed when using continue")
    return decoded.rv if decoded.rv > 0 else None, prefix + decoded.start.removeprefix("/").removesuffix("\0")


def _parse_token(token: str) -> _ContinueToken:
    end = len(token) - 1 if len(token) % 4 == 1 else -1
    illegal = next((at for at, letter in enumerate(token) if letter not in _BASE64_LETTERS), end)
    if illegal >= 0:
        raise _invalid_token(f": illegal base64 data at input byte {illegal}")
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    if error := syntax_error(raw):
        raise _invalid_token(f": {error}")
    value = msgspec.json.decode(raw)
    if not isinstance(value, dict):
        raise _invalid_token(
            f": json: cannot unmarshal {json_type_name(value)} into Go value of type storage.continueToken"
        )
    decoded = _ContinueToken(value.get("rv") or 0, value.get("start") or "", value.get("v") or "")
    for name, go_type in (("rv", int), ("start", str), ("v", str)):
        field = getattr(decoded, name)
        if not isinstance(field, go_type) or isinstance(field, bool):
            kind, text = json_type_name(field), "int64" if go_type is int else "string"
            raise _invalid_token(
                f": json: cannot unmarshal {kind} into Go struct field continueToken.{name} of type {text}"
            )
    if decoded.v != _CONTINUE_VERSION:
        raise _invalid_token(f": server does not recognize this encoded version {decoded.v}")
    if not decoded.rv:
        raise _invalid_token(f": incorrect encoded start resourceVersion (version {_CONTINUE_VERSION})")
    if not decoded.start:
        raise _invalid_token(f": encoded start key empty (version {_CONTINUE_VERSION})")
    key = f"/{decoded.start.removeprefix('/')}"
    if posixpath.normpath(key) != key:
        raise _invalid_token(f": {decoded.start}")
    return decoded


def _invalid_token(why: str) -> apierrors.StatusError:
    return apierrors.bad_request(f"invalid continue token: continue key is not valid{why}")


def _encode_token(revision: int, prefix: str, last: str) -> str:
    start = last.removeprefix(prefix) + "\0"
    return base64.urlsafe_b64encode(msgspec.json.encode(_ContinueToken(revision, start))).decode().rstrip("=")
