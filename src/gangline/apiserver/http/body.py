"""Request bodies: decoding, and the checks of kind and fields."""

from collections.abc import Callable
from typing import Any

import msgspec

from gangline.api.codec.codec import DecodeError, documents
from gangline.api.codec.nesting import is_too_deep
from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.errors import NamedKind
from gangline.apiserver.kinds.crd.resource_metadata import metadata_errors
from gangline.apiserver.patch.json_patch import go_json_type
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.registry.resources import builtin_resources
from gangline.schema.problems import FieldProblem, ProblemKind
from gangline.schema.protobuf import objects
from gangline.schema.typed.strict_decoding import DecodingErrors

MAX_BODY_BYTES = 3 * 2**20
OBJECT_MEDIA_TYPES = ("application/json", "application/yaml", objects.MEDIA_TYPE)

TOO_DEEP_TEXT = "invalid character '{' exceeded max depth"

Warn = Callable[[str], None]


def read_object(raw: bytes, content_type: str, kind: str = "Object") -> JSON:
    """The object in a body. Raises `StatusError`: 415 for an unsupported content type, 400 for an undecodable body."""
    media = content_type.partition(";")[0].strip() if content_type else "application/json"
    if media == "application/json":
        return _require_mapping(raw, _decode_json(raw, kind), kind)
    if media in ("application/yaml", "application/apply-patch+yaml"):
        return read_yaml(raw)
    if media == objects.MEDIA_TYPE:
        return _decode_protobuf(raw)
    raise apierrors.unsupported_media_type(OBJECT_MEDIA_TYPES)


def read_yaml(raw: bytes) -> JSON:
    """The object in a YAML or JSON body. Raises `StatusError` (400)."""
    if raw.lstrip().startswith(b"{"):
        return _require_mapping(raw, _decode_json(raw, "Object"), "Object")
    try:
        yaml_documents = documents(raw.decode())
    except (DecodeError, UnicodeDecodeError) as error:
        raise apierrors.bad_request(f"error decoding YAML: {error}") from error
    if len(yaml_documents) != 1:
        raise apierrors.bad_request("exactly one YAML document is expected")
    return yaml_documents[0].body


def decode_json(raw: bytes) -> Any:
    """The value of JSON. Raises `msgspec.DecodeError`, also for JSON that is nested too deep, in the words of Go."""
    if is_too_deep(raw):
        raise msgspec.DecodeError(TOO_DEEP_TEXT)
    return msgspec.json.decode(raw)


def json_error_text(error: Exception) -> str:
    """An error of our JSON decoder, in the words of Go's decoder where clients may know them."""
    return "unexpected end of JSON input" if "truncated" in str(error) else str(error)


def _unrecognized_object(kind: str, why: str) -> apierrors.StatusError:
    return apierrors.bad_request(f"the object provided is unrecognized (must be of type {kind}): {why}")


def _printable(raw: bytes) -> str:
    text = raw.decode("ascii", "replace")
    return text if text.isprintable() and text else raw.hex() or "<empty>"


def _decode_json(raw: bytes, kind: str) -> Any:
    try:
        return decode_json(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unrecognized_object(
            kind, f"couldn't get version/kind; json parse error: {json_error_text(error)} ({_printable(raw)})"
        ) from error


def _decode_protobuf(raw: bytes) -> JSON:
    try:
        return objects.decode(raw)
    except objects.ProtobufError as error:
        text = f"the object provided is unrecognized (must be of type Object): {error}"
        raise apierrors.bad_request(text) from error


def _require_mapping(raw: bytes, value: Any, kind: str) -> JSON:
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    go_type = go_json_type(value)
    raise _unrecognized_object(
        kind,
        f"couldn't get version/kind; json parse error: json: cannot unmarshal {go_type} into Go value of type struct "
        '{ APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" } '
        f"({raw.hex()})",
    )


def check_kind(served_kind: ServedKind, body: JSON) -> None:
    """Check that the body has the kind and the apiVersion of the URL. Only built-in kinds may omit them.

    Raises `StatusError`.
    """
    if served_kind.custom:
        for name in ("kind", "apiVersion"):
            if not body.get(name):
                field = "Kind" if name == "kind" else name
                raise apierrors.bad_request(f"Object '{field}' is missing in '{msgspec.json.encode(body).decode()}'")
    resource = served_kind.resource
    kind, version = body.get("kind") or resource.kind, body.get("apiVersion") or resource.api_version
    if (kind, version) == (resource.kind, resource.api_version):
        return
    if served_kind.custom:
        raise _wrong_custom_kind(served_kind, body, kind, version)
    short_version = str(version).rpartition("/")[2]
    is_registered = any((item.api_version, item.kind) == (version, kind) for item in builtin_resources())
    if kind == resource.kind and is_registered:
        raise _version_mismatch(served_kind, version)
    why = apierrors.unregistered_kind_text(kind, version)
    if is_registered:
        go_type = f"{resource.group.partition('.')[0] or 'core'}.{resource.kind}"
        why = f"converting ({short_version}.{kind}) to ({go_type}): unknown conversion"
    raise apierrors.bad_request(f'{kind} in version "{short_version}" cannot be handled as a {resource.kind}: {why}')


def _version_mismatch(served_kind: ServedKind, version: str) -> apierrors.StatusError:
    expected = served_kind.resource.api_version
    text = f"the API version in the data ({version}) does not match the expected API version ({expected})"
    return apierrors.bad_request(text)


def _wrong_custom_kind(served_kind: ServedKind, body: JSON, kind: str, version: str) -> apierrors.StatusError:
    if version != served_kind.resource.api_version:
        return _version_mismatch(served_kind, version)
    problem = FieldProblem(ProblemKind.INVALID, "kind", kind, f"must be {served_kind.resource.kind}")
    sent = NamedKind(served_kind.resource.group, kind, served_kind.resource.plural)
    return apierrors.invalid(sent, (body.get("metadata") or {}).get("name") or "", [problem])


def check_fields(served_kind: ServedKind, body: JSON, raw: bytes, validation: str, warn: Warn) -> None:
    """Check the types and the names of all fields. Raises `StatusError` (400) for a value of a wrong type.

    Unknown and duplicate fields raise too if `validation` is Strict; otherwise they are warnings, unless it is
    Ignore.
    """
    if raw.startswith(objects.MAGIC):
        return  # protobuf cannot encode wrong types or duplicate fields
    if served_kind.decoder is None:
        _report_decoding_errors(served_kind, metadata_errors(body), validation, warn)
        return
    if not raw.lstrip().startswith(b"{"):
        raw = msgspec.json.encode(body)
    _report_decoding_errors(served_kind, served_kind.decoder.errors(raw, body), validation, warn)


def _report_decoding_errors(served_kind: ServedKind, errors: DecodingErrors, validation: str, warn: Warn) -> None:
    kind, version = served_kind.resource.kind, served_kind.resource.version
    prefix = f'{kind} in version "{version}" cannot be handled as a {kind}'
    if errors.error:
        raise apierrors.bad_request(f"{prefix}: {errors.error}")
    if errors.strict and validation == "Strict":
        raise apierrors.bad_request(f"{prefix}: strict decoding error: {', '.join(errors.strict)}")
    if validation != "Ignore":
        for text in errors.strict:
            warn(text)
