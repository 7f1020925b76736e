"""JSON and YAML to structs and back, still thin: the full codec will name exact paths and lines."""

from typing import Any, TypeVar

import msgspec

from gangline.api.meta import JSON
from gangline.base.errors import InputError

T = TypeVar("T")


class DecodeError(InputError):
    """Text that does not fit its type."""


class Document(msgspec.Struct, frozen=True):
    """One document of a YAML file."""

    body: JSON
    file: str | None = None


def decode(data: bytes, model: type[T]) -> T:
    """JSON to a struct. Raises `DecodeError`."""
    try:
        return msgspec.json.decode(data, type=model)
    except msgspec.DecodeError as error:
        raise DecodeError(str(error)) from error


def to_json(value: Any) -> JSON:
    """A struct as plain JSON values."""
    built: JSON = msgspec.to_builtins(value)
    return built


def documents(text: str, *, file: str | None = None) -> list[Document]:
    """The documents of a YAML file. Raises `DecodeError`."""
    import yaml

    try:
        return [Document(body, file) for body in yaml.safe_load_all(text) if body is not None]
    except yaml.YAMLError as error:
        raise DecodeError(f"{file}: {' '.join(str(error).split())}") from error


def decode_document(document: Document, model: type[T]) -> T:
    """A document as a struct. Raises `DecodeError`."""
    try:
        return msgspec.convert(document.body, model)
    except msgspec.ValidationError as error:
        raise DecodeError(f"{document.file}: {error}") from error
