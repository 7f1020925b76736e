"""Content negotiation: the representation of a response, chosen as kube-apiserver chooses it.

A representation is a view (whole objects, metadata only, a table) in a format (JSON, indented JSON, YAML, protobuf).
Nearly every client gets whole objects in plain JSON, which costs nothing: the bytes are those of the store. Protobuf is
for clients that name it first, as Kubernetes' own programs do; it has no tables, and custom resources have no protobuf
form.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.http.representations import (
    META_GROUP,
    PARTIAL_METADATA,
    PARTIAL_METADATA_LIST,
    TABLE_KIND,
    WHOLE_OBJECTS,
    EventEncoder,
    NegotiationError,
    PartialMetadataView,
    ResponseView,
    TableView,
    encode_body,
    not_acceptable,
)
from gangline.apiserver.registry.object_kind import ObjectBody, ObjectKind
from gangline.apiserver.tables.table import IncludeObject

_JSON, _YAML = "application/json", "application/yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_SERVED_TYPES = (_JSON, _YAML, PROTOBUF)
_STREAM_TYPES = (f"{_JSON};stream=watch", f"{PROTOBUF};stream=watch")
MAX_PROTOBUF_LIST: Final = 500
"""The longest list that is sent in protobuf to a client that also takes JSON: a page of client-go."""
_META_VERSIONS = ("v1", "v1beta1")
_PRETTY_AGENTS = ("curl", "Wget", "Mozilla/5.0")
_TRUE_VALUES = ("1", "t", "T", "TRUE", "true", "True")
"""True for Go's strconv.ParseBool, with which kube-apiserver reads `pretty`, unlike other options (`query_flag`)."""


class Representation:
    """The view and the format of one response."""

    __slots__ = ("_format", "_view", "content_type", "is_plain", "stream_type")

    def __init__(self, view: ResponseView, formatter: Callable[[bytes], bytes] | None, content_type: str) -> None:
        self._view, self._format = view, formatter
        self.content_type, self.stream_type = content_type, _JSON
        self.is_plain = view.is_plain and formatter is None
        """Objects pass unchanged: `plain_event` encodes the events of every watch in this representation."""

    @property
    def has_whole_objects(self) -> bool:
        return self._view.is_plain

    def encode_object(self, kind: ObjectKind, body: ObjectBody) -> bytes:
        """One object. Raises `NegotiationError` (406) if the view is for lists."""
        return self.format(self._view.encode_object(kind, body))

    def encode_list(self, kind: ObjectKind, items: Iterable[ObjectBody], metadata: JSON) -> bytes:
        """A list. `metadata` has resourceVersion and, where they apply, continue and remainingItemCount.

        Raises `NegotiationError` (406) if the view is for single objects.
        """
        return self.format(self._view.encode_list(kind, items, metadata))

    def encode_status(self, value: JSON) -> bytes:
        """A Status, or any other object that has only one view: discovery, reviews, a Scale."""
        return self.format(msgspec.json.encode(value))

    def event_encoder(self, kind: ObjectKind) -> EventEncoder:
        """The encoder of one watch. Events are lines of JSON, except in protobuf."""
        return self._view.event_encoder(kind)

    def format(self, body: bytes) -> bytes:
        """Encoded JSON in the format of the response."""
        return body if self._format is None else self._format(body)


class ProtobufRepresentation(Representation):
    """Protobuf of whole objects or of their metadata."""

    __slots__ = ()

    def __init__(self, view: ResponseView) -> None:
        # Imported here, as below: a plane without Go clients does not need it.
        from gangline.schema.protobuf.answers import encode_answer

        super().__init__(view, encode_answer, PROTOBUF)
        self.stream_type = f"{PROTOBUF};stream=watch"

    def encode_object(self, kind: ObjectKind, body: ObjectBody) -> bytes:
        from gangline.schema.protobuf.answers import encode_object

        return encode_object(encode_body(body)) if self._view.is_plain else super().encode_object(kind, body)

    def encode_list(self, kind: ObjectKind, items: Iterable[ObjectBody], metadata: JSON) -> bytes:
        from gangline.schema.protobuf.answers import encode_list

        if not self._view.is_plain:
            return super().encode_list(kind, items, metadata)
        return encode_list(kind.api_version, kind.list_kind, metadata, map(encode_body, items))

    def event_encoder(self, kind: ObjectKind) -> EventEncoder:
        from gangline.schema.protobuf.answers import encode_answer, watch_frame

        def encode(event: str, body: ObjectBody) -> bytes:
            content = encode_answer(encode_body(body)) if event == "ERROR" else self.encode_object(kind, body)
            return watch_frame(event, content)

        return encode


def pretty_json(body: bytes) -> bytes:
    """Indented JSON."""
    return msgspec.json.format(body, indent=2)


def as_yaml(body: bytes) -> bytes:
    """YAML of the same value, keys sorted."""
    # Imported here, because PyYAML loads slowly, and hardly a client asks for YAML.
    from gangline.api.codec.yaml_text import yaml_text

    return yaml_text(msgspec.json.decode(body)).encode()


PLAIN_JSON: Final = Representation(WHOLE_OBJECTS, None, _JSON)
"""The representation for nearly every client."""
_PRETTY_JSON: Final = Representation(WHOLE_OBJECTS, pretty_json, _JSON)
_FORMATTERS: dict[str, Callable[[bytes], bytes] | None] = {_JSON: None, _YAML: as_yaml}


class AcceptClause(NamedTuple):
    """One clause of an Accept header."""

    name: str
    parameters: Mapping[str, str]
    quality: float


# Cached, because most requests have one of a few headers.
@lru_cache(maxsize=256)
def accept_clauses(accept: str) -> tuple[AcceptClause, ...]:
    """The clauses of an Accept header in order of preference, without malformed ones."""
    clauses = [clause for part in accept.split(",") if (clause := _parse_clause(part)) is not None]
    return tuple(sorted(clauses, key=_clause_rank))


def _clause_rank(clause: AcceptClause) -> tuple[float, bool, bool]:
    return -clause.quality, clause.name == "*/*", clause.name.endswith("/*")


def _parse_clause(text: str) -> AcceptClause | None:
    name, *pairs = (piece.strip() for piece in text.split(";"))
    if name.count("/") != 1:
        return None
    parameters = {key.strip(): value.strip() for key, _, value in (pair.partition("=") for pair in pairs)}
    try:
        quality = float(parameters.pop("q", "1"))
    except ValueError:
        quality = 1.0
    return AcceptClause(name, parameters, quality)


def negotiate(
    accept: str,
    query: Mapping[str, str],
    *,
    now: Callable[[], datetime],
    agent: str = "",
    watch: bool = False,
    views: bool = True,
    routed: bool = True,
    listing: bool = False,
) -> Representation:
    """The representation of a response. Raises `NegotiationError`: 406 if none is acceptable, 400 for table options.

    `query` may have `pretty` and `includeObject`, `agent` is the User-Agent header. `views` is False for
    responses that have one view only (version, discovery, reviews). In kube-apiserver a router refuses types that it
    does not know before all else, except for custom resources (not `routed`), whose objects have no protobuf form;
    `listing` responses may be streams.
    """
    pretty = _wants_pretty(query, agent)
    if accept in ("", "*/*", _JSON):
        return _PRETTY_JSON if pretty and not watch else PLAIN_JSON
    if routed:
        _check_routable(accept, listing=listing)
    for clause in accept_clauses(accept):
        media = _served_type(clause.name)
        if media == PROTOBUF and not _has_protobuf(clause.parameters, custom=not routed):
            continue
        if media and _is_allowed(clause.parameters, views=views):
            return _make_representation(media, clause.parameters, query, now, pretty=pretty, watch=watch)
    raise not_acceptable(f"only the following media types are accepted: {', '.join(_SERVED_TYPES)}")


def for_long_list(representation: Representation, accept: str, count: int) -> Representation:
    """JSON in place of protobuf for a list of so many objects, if the client takes both.

    Stored objects are JSON: to encode thousands of them would hold up all other requests.
    """
    if representation.content_type != PROTOBUF or count <= MAX_PROTOBUF_LIST:
        return representation
    takes_json = any(clause.name in (_JSON, "*/*") and not clause.parameters for clause in accept_clauses(accept))
    return PLAIN_JSON if takes_json and representation.has_whole_objects else representation


def error_representation(accept: str, query: Mapping[str, str], *, agent: str = "") -> Representation:
    """The representation of an error Status: indented JSON if nothing else is acceptable. Never raises."""
    if accept in ("", "*/*", _JSON):
        return _PRETTY_JSON if _wants_pretty(query, agent) else PLAIN_JSON
    for clause in accept_clauses(accept):
        if (media := _served_type(clause.name)) and _is_allowed(clause.parameters, views=False):
            if media == PROTOBUF:
                return ProtobufRepresentation(WHOLE_OBJECTS)
            pretty = _wants_pretty(query, agent) or clause.parameters.get("pretty") == "1"
            return Representation(WHOLE_OBJECTS, _formatter(media, pretty=pretty), media)
    return _PRETTY_JSON


def _make_representation(
    media: str,
    parameters: Mapping[str, str],
    query: Mapping[str, str],
    now: Callable[[], datetime],
    *,
    pretty: bool,
    watch: bool,
) -> Representation:
    if watch and media == _YAML:
        raise not_acceptable(f"only the following media types are accepted: {', '.join(_STREAM_TYPES)}")
    view = _response_view(parameters, query, now)
    if media == PROTOBUF:
        return ProtobufRepresentation(view)
    pretty = (pretty or parameters.get("pretty") == "1") and not watch
    return Representation(view, _formatter(media, pretty=pretty), media)


def _formatter(media: str, *, pretty: bool) -> Callable[[bytes], bytes] | None:
    return pretty_json if pretty and media == _JSON else _FORMATTERS[media]


def _response_view(
    parameters: Mapping[str, str], query: Mapping[str, str], now: Callable[[], datetime]
) -> ResponseView:
    target, version = parameters.get("as", ""), parameters.get("v", "")
    if not target:
        return WHOLE_OBJECTS
    if target == TABLE_KIND:
        return TableView(version, _include_option(query.get("includeObject", "")), now)
    return PartialMetadataView(target, version)


def _include_option(text: str) -> IncludeObject:
    try:
        return IncludeObject(text or IncludeObject.METADATA)
    except ValueError:
        message = (
            "Unable to convert to Table as requested: includeObject: Invalid value: "
            f"{msgspec.json.encode(text).decode()}: must be 'Metadata', 'Object', 'None', or empty"
        )
        raise NegotiationError(400, "BadRequest", message) from None


def _is_allowed(parameters: Mapping[str, str], *, views: bool) -> bool:
    if parameters.get("stream", "") not in ("", "watch"):
        return False
    target: tuple[Any, ...] = tuple(parameters.get(name) for name in ("as", "g", "v"))
    if target == (None, None, None):
        return True
    kind, group, version = target
    is_known = (
        kind in (TABLE_KIND, PARTIAL_METADATA, PARTIAL_METADATA_LIST)
        and group == META_GROUP
        and version in _META_VERSIONS
    )
    return views and is_known


def _has_protobuf(parameters: Mapping[str, str], *, custom: bool) -> bool:
    target = parameters.get("as")
    return target != TABLE_KIND and not (custom and target is None)


def _served_type(name: str) -> str | None:
    if name in _SERVED_TYPES:
        return name
    return _JSON if name in ("*/*", "application/*") else None


def _check_routable(accept: str, *, listing: bool) -> None:
    """Check that the Accept header names any served media type at all, as the router of kube-apiserver does first."""
    check_accepted(accept, _SERVED_TYPES, _STREAM_TYPES if listing else ())


def check_accepted(accept: str, media_types: tuple[str, ...], more: tuple[str, ...] = ()) -> None:
    """Check that an Accept header names one of these types, or any. Raises `NegotiationError` (406)."""
    accepted = {part.partition(";")[0].strip() for part in accept.split(",")}
    if accept and accepted.isdisjoint(("*/*", *media_types)):
        available = ", ".join((*media_types, *more))
        message = f"406: Not Acceptable\n\nAvailable representations: {available}"
        raise NegotiationError(406, "NotAcceptable", message, routed=False)


def _wants_pretty(query: Mapping[str, str], agent: str) -> bool:
    pretty = query.get("pretty")
    return pretty in _TRUE_VALUES if pretty else agent.startswith(_PRETTY_AGENTS)
