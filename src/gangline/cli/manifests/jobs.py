"""Jobs from files. A job is decoded to find mistakes, but sent as it was written."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gangline.api.codec.codec import decode_document, documents
from gangline.api.codec.documents import Document
from gangline.api.codec.errors import DecodeError
from gangline.api.kubeflow.kinds import TRAINING_KINDS, find_job_api
from gangline.api.kubeflow.training import GROUP, JobKind
from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.cli.manifests.files import NO_OBJECTS, STDIN, encoding_hint, file_text
from gangline.cli.manifests.overrides import with_overrides

SCRIPT_SUFFIXES = (".py", ".sh")
LONG_DASHES = "\N{EN DASH}\N{EM DASH}"


def read_job(file: Path, settings: Sequence[str] = ()) -> tuple[JobKind, JSON]:
    """The kind and the body of the only job in a file. Raises `InputError` with file, line, path and what to write.

    `settings` are overrides as `--set` takes them.
    """
    jobs = read_jobs(file, settings)
    if len(jobs) != 1:
        raise InputError(f"{file}: has {len(jobs)} documents; give a file with one job")
    return jobs[0]


def read_jobs(file: Path, settings: Sequence[str] = ()) -> list[tuple[JobKind, JSON]]:
    """The kind and the body of each job in a file, in order, with the overrides applied to all. Raises `InputError`."""
    return [(kind, document.body) for kind, document in read_documents(file, settings)]


def read_documents(file: Path, settings: Sequence[str] = ()) -> list[tuple[JobKind, Document]]:
    """The same, as documents that know the line of every field."""
    return [_job_document(document, settings) for document in _read_file(file)]


def read_jobs_and_others(
    file: Path, settings: Sequence[str] = ()
) -> tuple[list[tuple[JobKind, Document]], tuple[Document, ...]]:
    """The jobs in a file, and the objects of other kinds that they may need (PersistentVolumeClaims, ConfigMaps).

    Raises `InputError`, also if there is no job.
    """
    parsed = _read_file(file)
    others = tuple(document for document in parsed if _is_other(document.body))
    if len(others) == len(parsed):
        raise _lint_error(parsed[0])
    return [_job_document(document, settings) for document in parsed if document not in others], others


def _is_other(body: JSON) -> bool:
    """Whether an object is plainly of another kind, and not a job with a mistake in apiVersion or kind."""
    version, kind = body.get("apiVersion"), body.get("kind")
    named = isinstance(version, str) and isinstance(kind, str) and version and kind
    return (
        bool(named)
        and not str(version).startswith(f"{GROUP}/")
        and kind not in {job_kind.kind for job_kind in TRAINING_KINDS}
    )


def _read_file(file: Path) -> list[Document]:
    if str(file) == STDIN:
        return _parse_documents(file_text(STDIN), "stdin")
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: {_read_error(file, error)}") from error
    if file.suffix == ".ipynb":
        raise InputError(f"{file}: is a notebook; convert it: jupyter nbconvert --to script {shlex.quote(str(file))}")
    if file.suffix in SCRIPT_SUFFIXES:
        raise InputError(f"{file}: is not a job manifest; {_script_hint(file)}")
    return _parse_documents(text, str(file))


def _parse_documents(text: str, file: str) -> list[Document]:
    parsed = documents(text, file=file)
    if not parsed:
        raise InputError(f"{file}: {NO_OBJECTS}; give a file with a job")
    return parsed


def _read_error(file: Path, error: OSError | UnicodeDecodeError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return encoding_hint(file)
    if isinstance(error, IsADirectoryError):
        return "is a folder; name a file in it"
    message = error.strerror or "cannot be read"
    if str(file).startswith("-"):
        return "is no file; arguments of the programs in a file are in its args, and --set changes them"
    if str(file)[0] in LONG_DASHES:
        return f"begins with a long dash, as word processors write it; write --{str(file).lstrip(LONG_DASHES + '-')}"
    if file.suffix not in (".yaml", ".yml", ".json"):
        return f"{message}; {_script_hint(file)}"
    return f"{message}{_similar_file_hint(file)}" if isinstance(error, FileNotFoundError) else message


def _similar_file_hint(file: Path) -> str:
    """A suggestion if the folder has a manifest with a similar name."""
    from difflib import get_close_matches

    try:
        names = [entry.name for entry in file.parent.iterdir() if entry.suffix in (".yaml", ".yml", ".json")]
    except OSError:
        return f"; there is no folder {file.parent}"
    similar = get_close_matches(file.name, names, 1, 0.7)
    return f"; did you mean {file.with_name(similar[0])}?" if similar else ""


def _script_hint(file: Path) -> str:
    command = f"python {shlex.quote(str(file))}" if file.suffix == ".py" else "python train.py"
    return f"to run a script: gangline run --nproc 4 -- {command}"


def _job_document(document: Document, settings: Sequence[str]) -> tuple[JobKind, Document]:
    document = msgspec.structs.replace(document, body=with_overrides(document.body, settings))
    kind, version = document.body.get("kind"), document.body.get("apiVersion")
    job_kind = find_job_api(version, kind)
    if job_kind is None:
        raise _lint_error(document)
    try:
        job = decode_document(document, job_kind.model)
    except DecodeError:
        raise _lint_error(document) from None
    if not job.metadata.name and (prefix := (document.body.get("metadata") or {}).get("generateName")):
        advice = f"write name: {prefix}1, or add --set metadata.name={prefix}1"
        raise document.error(f"a run makes no names; {advice}", ("metadata", "generateName"))
    if not job.metadata.name:
        raise _lint_error(document)
    return job_kind, document


def _lint_error(document: Document) -> InputError:
    # Imported here: schemas and their rules load slowly, and a correct job does not need them.
    from gangline.cli.manifests.lint import lint_error

    return lint_error(document)
