"""Errors as one line on standard error, in kubectl's words, with the exit code. Imports neither click nor asyncio."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from gangline.base.errors import GanglineError
from gangline.cli.exit_codes import ERROR
from gangline.kube.config.connection import Connection
from gangline.kube.errors import ApiError, Forbidden, Invalid, NotFound, Unauthorized, Unreachable


def print_warning(text: str) -> None:
    """Print a warning that the server sent (the HTTP header `Warning`)."""
    print(f"Warning: {text}", file=sys.stderr)


def print_error(
    error: GanglineError, *, missing: int = ERROR, failed: int = ERROR, server: Connection | None = None
) -> int:
    """Print an error in one line and return the exit code: `missing` for `NotFound`, `failed` for all others.

    With `server`, connection and credential errors also name the server and where its address was configured.
    """
    print(error_line(error) if server is None else error_with_server(error, server), file=sys.stderr)
    return missing if isinstance(error, NotFound) else failed


def print_os_error(error: OSError) -> int:
    """Print an error of the operating system (a full disk, say) in one line, without a traceback. Returns 1."""
    if isinstance(error, FileNotFoundError) and not error.filename and not _has_working_directory():
        print("error: the folder that you are in does not exist any more; cd into another one", file=sys.stderr)
        return ERROR
    location = f"{error.filename}: " if error.filename else ""
    print(f"error: {location}{error.strerror or error}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        # Standard output is what cannot be written: the interpreter must not fail over the rest of it at exit.
        discard_stdout()
    return ERROR


def _has_working_directory() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - the path itself is not needed
    except FileNotFoundError:
        return False
    return True


def discard_stdout() -> None:
    """Write what is left of standard output, and all that follows, nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def error_with_server(error: GanglineError, connection: Connection) -> str:
    """An error in one line. If the server is unreachable or refuses the credentials, it says where these came from."""
    source = connection.source
    if connection.context and source:
        source = f"context {connection.context} in {source}"
    if isinstance(error, Unauthorized) and source:
        return f"{error_line(error)}; the credentials of {source} are wrong or have expired: log in again"
    reason = _connection_error(error) if isinstance(error, Unreachable) else ""
    if reason and source:
        return f"error: {connection.server}: {reason}; is that server up, and is {source} the one you mean?"
    return error_line(error)


def _connection_error(error: BaseException) -> str:
    """Why no connection could be opened, in the operating system's words; empty if the failure is another one."""
    import ssl

    cause = getattr(error.__cause__, "os_error", error.__cause__)
    # A server that is slow, or whose certificate is not trusted, was reached.
    if not isinstance(cause, OSError) or isinstance(cause, ssl.SSLError | TimeoutError) or not cause.errno:
        return ""
    # getaddrinfo has error numbers of its own, below zero, which strerror does not know.
    return os.strerror(cause.errno) if cause.errno > 0 else cause.strerror or ""


def error_line(error: GanglineError) -> str:
    """An error in one line, worded as kubectl words errors of a server. Commands in it can be copied.

    Where rights are missing, the commands that grant them follow, one in a line.
    """
    from gangline.base.invocation import with_own_command

    return with_own_command(_error_text(error))


def grant_lines(error: GanglineError) -> tuple[str, ...]:
    """The commands with which an administrator allows what the server forbids; none for any other error."""
    if not isinstance(error, Forbidden):
        return ()
    from gangline.api.denied_access import denied_access, grant_commands

    denied = denied_access(str(error))
    return tuple(f"An administrator allows it: {command}" for command in grant_commands(denied)) if denied else ()


def _error_text(error: GanglineError) -> str:
    if isinstance(error, Invalid) and error.status.details.kind:
        return f"The {error}" if not str(error).startswith("The ") else str(error)
    if isinstance(error, ApiError):
        line = f"Error from server ({error.reason}): {error}" if error.reason else f"error: {error}"
        return "\n".join((line, *grant_lines(error)))
    return f"error: {error}"


@contextmanager
def single_error() -> Iterator[None]:
    """Reraise an exception group as the first `GanglineError` in it, if the group holds nothing else.

    A server that goes away fails every task that uses it; one error line is enough.
    """
    from gangline.base.tasks import unwrap_exception_group

    try:
        with unwrap_exception_group():
            yield
    except BaseExceptionGroup as errors:
        ours, others = errors.split(GanglineError)
        if ours is None or others is not None:
            raise
        raise _first_error(ours) from None


def _first_error(errors: BaseExceptionGroup[GanglineError]) -> GanglineError:
    error: GanglineError | BaseExceptionGroup[GanglineError] = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
