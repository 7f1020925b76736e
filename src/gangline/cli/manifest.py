"""A person's file becomes a body to send: decoded once to find mistakes, sent as written."""

from pathlib import Path

from gangline.api.codec import decode_document, documents
from gangline.api.meta import JSON, Object
from gangline.base.errors import InputError


def read_job(file: Path, model: type[Object]) -> JSON:
    """The one job in a file. Raises `InputError` with file, line, path and what to write."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        raise InputError(f"{file}: {reason}") from error
    found = documents(text, file=str(file))
    if len(found) != 1:
        raise InputError(f"{file}: has {len(found)} documents; give a file with one {model.__name__}")
    document = found[0]
    job = decode_document(document, model)
    if job.kind != model.__name__:
        raise document.error(f'expected {model.__name__}, got "{job.kind}"', ("kind",))
    if not job.metadata.name:
        raise document.error("required field is missing", ("metadata", "name"))
    return document.body
