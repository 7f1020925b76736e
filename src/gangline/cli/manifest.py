"""A person's file becomes a body to send: decoded once to find mistakes, sent as written."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from gangline.api.codec import decode_document, documents
from gangline.api.kinds import KINDS
from gangline.api.meta import JSON
from gangline.api.training import JobKind
from gangline.base.errors import InputError
from gangline.cli.overrides import overridden


def read_job(file: Path, settings: Sequence[str] = ()) -> tuple[JobKind, JSON]:
    """The one job in a file, and its kind. Raises `InputError` with file, line, path and what to write.

    `settings` are changes to it, as `--set` takes them.
    """
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        raise InputError(f"{file}: {reason}") from error
    found = documents(text, file=str(file))
    if len(found) != 1:
        raise InputError(f"{file}: has {len(found)} documents; give a file with one job")
    document = msgspec.structs.replace(found[0], body=overridden(found[0].body, settings))
    known = {kind.kind: kind for kind in KINDS}
    named = document.body.get("kind")
    facts = known.get(named) if isinstance(named, str) else None
    if facts is None:
        raise document.error(f'expected one of {", ".join(known)}, got "{named}"', ("kind",))
    job = decode_document(document, facts.model)
    if not job.metadata.name:
        raise document.error("required field is missing", ("metadata", "name"))
    return facts, document.body
