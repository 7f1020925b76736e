"""What a server refuses, told with the lines of the file it came from."""

from collections.abc import Sequence

from gangline.api.codec.documents import Document
from gangline.base.errors import GanglineError
from gangline.cli.errors import error_line
from gangline.cli.manifests.files import field_line
from gangline.kube.errors import AlreadyExists, ApiError, Conflict, Invalid

_VALIDATION_CODES = (400, 422, 500)


def rejection_text(document: Document, error: GanglineError) -> str:
    """Why an object was refused: with lines, where it is a job whose mistakes we can find ourselves."""
    better = explained_error([document], error)
    return f"error: {better}" if better is not error else located_error(document, error)


def explained_error(found: Sequence[Document], error: GanglineError) -> GanglineError:
    """A better error for jobs that a server refused: their mistakes, with lines; if we find none, the server's own."""
    if not isinstance(error, ApiError) or error.code not in _VALIDATION_CODES:
        return error
    # Imported here: it takes a while to load.
    from gangline.api.kubeflow.training import JobKind
    from gangline.cli.manifests.lint import LintError, check_job, kind_of

    jobs = [(document, facts) for document in found if isinstance(facts := kind_of(document), JobKind)]
    findings = [finding for document, facts in jobs for finding in check_job(document, facts)]
    return LintError(findings) if findings else error


def located_error(document: Document, error: GanglineError) -> str:
    """An error of the server, told with the lines of the file it came from."""
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
