"""A person's file becomes a body to send: decoded once to find mistakes, sent as written."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from gangline.api.codec.codec import decode_document, documents
from gangline.api.codec.documents import Document
from gangline.api.codec.errors import DecodeError
from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import GROUP, JobKind
from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.cli.manifests.files import NO_OBJECTS, STDIN, file_text
from gangline.cli.manifests.overrides import with_overrides

SCRIPT_SUFFIXES = (".py", ".sh")


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
    return [_job_document(document, settings) for document in _read_file(file)]


def read_jobs_and_others(
    file: Path, settings: Sequence[str] = ()
) -> tuple[list[tuple[JobKind, Document]], tuple[Document, ...]]:
    """The jobs, and the objects of other kinds that they need: claims, config maps. Raises `InputError` without a job."""
    found = _read_file(file)
    others = tuple(document for document in found if _is_other(document.body))
    if len(others) == len(found):
        raise _lint_error(found[0])
    return [_job_document(document, settings) for document in found if document not in others], others


def _is_other(body: JSON) -> bool:
    version, kind = body.get("apiVersion"), body.get("kind")
    named = isinstance(version, str) and isinstance(kind, str) and version and kind
    return (
        bool(named) and not str(version).startswith(f"{GROUP}/") and kind not in {each.kind for each in TRAINING_KINDS}
    )


def _read_file(file: Path) -> list[Document]:
    if str(file) == STDIN:
        return _parse_documents(file_text(STDIN), "stdin")
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: {_read_error(file, error)}") from error
    if file.suffix in SCRIPT_SUFFIXES:
        raise InputError(f"{file}: is no file of a job; {_script_hint(file)}")
    return _parse_documents(text, str(file))


def _parse_documents(text: str, file: str) -> list[Document]:
    found = documents(text, file=file)
    if not found:
        raise InputError(f"{file}: {NO_OBJECTS}; give a file with a job")
    return found


def _read_error(file: Path, error: OSError | UnicodeDecodeError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "is not text"
    if isinstance(error, IsADirectoryError):
        return "is a folder; name a file in it"
    told = error.strerror or "cannot be read"
    if file.suffix not in (".yaml", ".yml", ".json"):
        return f"{told}; {_script_hint(file)}"
    return f"{told}{_similar_file_hint(file)}" if isinstance(error, FileNotFoundError) else told


def _similar_file_hint(file: Path) -> str:
    """A file that may have been meant."""
    from difflib import get_close_matches

    try:
        there = [each.name for each in file.parent.iterdir() if each.suffix in (".yaml", ".yml", ".json")]
    except OSError:
        return f"; there is no folder {file.parent}"
    close = get_close_matches(file.name, there, 1, 0.7)
    return f"; did you mean {file.with_name(close[0])}?" if close else ""


def _script_hint(file: Path) -> str:
    command = f"python {file}" if file.suffix == ".py" else "python train.py"
    return f"to run a script: gangline run --nproc 4 -- {command}"


def _job_document(document: Document, settings: Sequence[str]) -> tuple[JobKind, Document]:
    document = msgspec.structs.replace(document, body=with_overrides(document.body, settings))
    kind, version = document.body.get("kind"), document.body.get("apiVersion")
    facts = next((facts for facts in TRAINING_KINDS if facts.kind == kind), None)
    if facts is None or version != facts.resource.api_version:
        raise _lint_error(document)
    try:
        job = decode_document(document, facts.model)
    except DecodeError:
        raise _lint_error(document) from None
    if not job.metadata.name:
        raise _lint_error(document)
    return facts, document


def _lint_error(document: Document) -> InputError:
    # Imported here: schemas and their rules take a while to load, and a good job needs none of it.
    from gangline.cli.manifests.lint import lint_error

    return lint_error(document)
