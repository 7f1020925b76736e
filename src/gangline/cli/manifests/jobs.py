"""A person's file becomes a body to send: decoded once to find mistakes, sent as written."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from gangline.api.codec.codec import decode_document, documents
from gangline.api.codec.documents import Document
from gangline.api.codec.errors import DecodeError
from gangline.api.kubeflow.kinds import KINDS
from gangline.api.kubeflow.training import GROUP, JobKind
from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.cli.manifests.files import EMPTY, STDIN, text_of_file
from gangline.cli.manifests.overrides import overridden

SCRIPTS = (".py", ".sh")


def read_job(file: Path, settings: Sequence[str] = ()) -> tuple[JobKind, JSON]:
    """The one job in a file, and its kind. Raises `InputError` with file, line, path and what to write.

    `settings` are changes to it, as `--set` takes them.
    """
    found = read_jobs(file, settings)
    if len(found) != 1:
        raise InputError(f"{file}: has {len(found)} documents; give a file with one job")
    return found[0]


def read_jobs(file: Path, settings: Sequence[str] = ()) -> list[tuple[JobKind, JSON]]:
    """The jobs in a file, in order, each with its kind; the settings are made in all of them. Raises `InputError`."""
    return [(facts, document.body) for facts, document in read_documents(file, settings)]


def read_documents(file: Path, settings: Sequence[str] = ()) -> list[tuple[JobKind, Document]]:
    """The same, with the lines of every field."""
    return [_job(document, settings) for document in _read(file)]


def read_with_others(
    file: Path, settings: Sequence[str] = ()
) -> tuple[list[tuple[JobKind, Document]], tuple[Document, ...]]:
    """The jobs, and the objects of other kinds that they need: claims, config maps. Raises `InputError` without a job."""
    found = _read(file)
    others = tuple(document for document in found if _is_other(document.body))
    if len(others) == len(found):
        raise _mistakes(found[0])
    return [_job(document, settings) for document in found if document not in others], others


def _is_other(body: JSON) -> bool:
    version, kind = body.get("apiVersion"), body.get("kind")
    named = isinstance(version, str) and isinstance(kind, str) and version and kind
    return (
        bool(named) and not str(version).startswith(f"{GROUP}/") and kind not in {each.kind for each in KINDS}
    )


def _read(file: Path) -> list[Document]:
    if str(file) == STDIN:
        return _documents(text_of_file(STDIN), "stdin")
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: {_unreadable(file, error)}") from error
    if file.suffix in SCRIPTS:
        raise InputError(f"{file}: is no file of a job; {_as_script(file)}")
    return _documents(text, str(file))


def _documents(text: str, file: str) -> list[Document]:
    found = documents(text, file=file)
    if not found:
        raise InputError(f"{file}: {EMPTY}; give a file with a job")
    return found


def _unreadable(file: Path, error: OSError | UnicodeDecodeError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "is not text"
    if isinstance(error, IsADirectoryError):
        return "is a folder; name a file in it"
    told = error.strerror or "cannot be read"
    if file.suffix not in (".yaml", ".yml", ".json"):
        return f"{told}; {_as_script(file)}"
    return f"{told}{_near(file)}" if isinstance(error, FileNotFoundError) else told


def _near(file: Path) -> str:
    """A file that may have been meant."""
    from difflib import get_close_matches

    try:
        there = [each.name for each in file.parent.iterdir() if each.suffix in (".yaml", ".yml", ".json")]
    except OSError:
        return f"; there is no folder {file.parent}"
    close = get_close_matches(file.name, there, 1, 0.7)
    return f"; did you mean {file.with_name(close[0])}?" if close else ""


def _as_script(file: Path) -> str:
    command = f"python {file}" if file.suffix == ".py" else "python train.py"
    return f"to run a script: gangline run --nproc 4 -- {command}"


def _job(document: Document, settings: Sequence[str]) -> tuple[JobKind, Document]:
    document = msgspec.structs.replace(document, body=overridden(document.body, settings))
    kind, version = document.body.get("kind"), document.body.get("apiVersion")
    facts = next((facts for facts in KINDS if facts.kind == kind), None)
    if facts is None or version != facts.resource.api_version:
        raise _mistakes(document)
    try:
        job = decode_document(document, facts.model)
    except DecodeError:
        raise _mistakes(document) from None
    if not job.metadata.name:
        raise _mistakes(document)
    return facts, document


def _mistakes(document: Document) -> InputError:
    # Imported here: schemas and their rules take a while to load, and a good job needs none of it.
    from gangline.cli.manifests.lint import mistakes

    return mistakes(document)
