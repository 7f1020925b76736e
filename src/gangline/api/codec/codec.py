"""JSON and YAML to structs and back, with errors that name the field and the line.

Input that fits its type is decoded by msgspec in one pass. Input that does not fit is walked again
(`gangline.api.codec.type_errors`), either to accept what Kubernetes accepts too, or to find the exact value that is
wrong.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache, partial
from typing import Any, TypeVar

import msgspec

from gangline.api.codec.documents import Document, documents
from gangline.api.codec.errors import DecodeError, value_text
from gangline.api.codec.type_errors import (
    coerce,
    decode_hook,
    encode_hook,
    first_mismatch,
    format_times,
    rfc3339,
)
from gangline.api.meta import JSON
from gangline.api.scheme import Scheme, UnknownKind

__all__ = ["DecodeError", "Document", "decode", "decode_document", "documents", "encode", "load", "to_json"]

T = TypeVar("T")

_BYTE_POSITION = r" \(byte (\d+)\)$"

# Building a decoder takes far longer than using it, so each one is built once.
_decoder: Callable[[Any], msgspec.json.Decoder[Any]] = cache(partial(msgspec.json.Decoder, dec_hook=decode_hook))
_ENCODER = msgspec.json.Encoder(enc_hook=encode_hook, order="deterministic")


def decode(data: bytes, model: type[T]) -> T:
    """The value of a JSON text. A null member counts as absent. Raises `DecodeError` with the exact path."""
    try:
        fitting: T = _decoder(model).decode(data)
    except msgspec.ValidationError:
        pass
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _syntax_error(data, error) from error
    else:
        return fitting
    try:
        body = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _syntax_error(data, error) from error
    return decode_document(Document(body, {}), model)


def decode_document(document: Document, model: type[T]) -> T:
    """The value of a document. Raises `DecodeError` with file, line and path."""
    try:
        return msgspec.convert(document.body, model, dec_hook=decode_hook)
    except msgspec.ValidationError:
        body = coerce(document.body, model)
    try:
        return msgspec.convert(body, model, dec_hook=decode_hook)
    except msgspec.ValidationError as error:
        found = first_mismatch(body, model)
        if found is None:
            raise document.error(str(error)) from error
        raise document.error(found.problem, found.path, found=found.actual, expected=found.expected) from error


def load(text: str, scheme: Scheme, *, file: str | None = None) -> list[Any]:
    """Every object of a YAML or JSON text, each as the type the scheme has for its kind. Raises `DecodeError`."""
    return [_decode_object(document, scheme) for document in documents(text, file=file)]


def encode(value: object) -> bytes:
    """The JSON of a value. Equal values give equal bytes: maps are sorted by key."""
    return _ENCODER.encode(_to_plain(value))


def to_json(value: msgspec.Struct | Mapping[str, Any]) -> JSON:
    """A struct as JSON values. Defaults are left out, and each time has the precision of its field.

    Plain JSON is copied; structs and times inside it are converted too.
    """
    plain = _to_plain(value)
    assert isinstance(plain, dict)
    return plain


def _to_plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        # Encoding and decoding again is faster than walking the value, and it also turns tuples into lists.
        return format_times(msgspec.json.decode(_ENCODER.encode(value)), type(value))
    if isinstance(value, Mapping):
        return {key: _to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    return rfc3339(value) if isinstance(value, datetime) else value


def _decode_object(document: Document, scheme: Scheme) -> Any:
    api_version, kind = _required_text(document, "apiVersion"), _required_text(document, "kind")
    try:
        model = scheme.kind(api_version, kind).model
    except UnknownKind as error:
        raise document.error(str(error), ("kind",), found=kind) from error
    return decode_document(document, model)


def _required_text(document: Document, field: str) -> str:
    value = document.body.get(field)
    if value is None or value == "":
        raise document.error("required field is missing", (field,))
    if not isinstance(value, str):
        found = value_text(value)
        raise document.error(f"expected string, got {found}", (field,), found=found, expected="string")
    return value


def _syntax_error(data: bytes, error: Exception) -> DecodeError:
    if isinstance(error, RecursionError):
        return DecodeError("JSON is nested too deep")
    if isinstance(error, UnicodeDecodeError):
        return DecodeError("JSON is malformed: text that is not UTF-8")
    text = str(error).partition(" - at `")[0].removeprefix("JSON is malformed: ")
    at = re.search(_BYTE_POSITION, text)
    line = data.count(b"\n", 0, int(at[1])) + 1 if at else None
    return DecodeError(f"JSON is malformed: {text[:1].lower()}{text[1:]}", line=line)
