"""Errors of a server about an object from a file, with the file's lines."""

from collections.abc import Sequence

from gangline.api.codec.documents import Document
from gangline.base.errors import GanglineError
from gangline.cli.errors import error_line
from gangline.cli.manifests.files import field_line
from gangline.kube.errors import AlreadyExists, ApiError, Conflict, Invalid

_VALIDATION_CODES = (400, 422, 500)


def rejection_text(document: Document, error: GanglineError) -> str:
    """Why a server refused an object, with lines: our own findings for a job that has any, else the server's error."""
    explained = explained_error([document], error)
    return f"error: {explained}" if explained is not error else located_error(document, error)


def explained_error(documents: Sequence[Document], error: GanglineError) -> GanglineError:
    """A `LintError` with the mistakes in jobs that a server refused; the server's own error if lint finds none."""
    if not isinstance(error, ApiError) or error.code not in _VALIDATION_CODES:
        return error
    # Imported here: schemas and their rules load slowly.
    from gangline.api.kubeflow.training import JobKind
    from gangline.cli.manifests.lint import LintError, check_job, kind_of

    jobs = [(document, kind) for document in documents if isinstance(kind := kind_of(document), JobKind)]
    findings = [finding for document, kind in jobs for finding in check_job(document, kind)]
    return LintError(findings) if findings else error


def located_error(document: Document, error: GanglineError) -> str:
    """A server's error with the line of each field it names."""
    if isinstance(error, Invalid) and error.causes:
        lines = []
        for cause in error.causes:
            line = field_line(document, cause.field)
            where = f"{document.file}:{line}" if line else document.file
            lines.append(f"error: {where}: {cause.field}: {cause.message}")
        return "\n".join(lines)
    if isinstance(error, AlreadyExists):
        return error_line(error)
    if isinstance(error, Conflict):
        return (
            f"{error_line(error)}\nTake the fields over with --force-conflicts, or leave them out of {document.file}."
        )
    return error_line(error)
