"""How errors are told: one line on standard error, as kubectl words it, and what to do about it. Light, as `places` is."""

import os
import sys

from gangline.base.errors import GanglineError
from gangline.kube.config.connection import Connection
from gangline.kube.errors import ApiError, Invalid, NotFound, Unauthorized, Unreachable

ERROR = 1
NOT_FOUND = 102


def print_warning(text: str) -> None:
    """What a server wants a person to know."""
    print(f"Warning: {text}", file=sys.stderr)


def print_error(
    error: GanglineError, *, missing: int = ERROR, failed: int = ERROR, server: Connection | None = None
) -> int:
    """One line on standard error, as kubectl words it, and the exit code. With a server: whose it is."""
    print(error_line(error) if server is None else error_with_server(error, server), file=sys.stderr)
    return missing if isinstance(error, NotFound) else failed


def print_os_error(error: OSError) -> int:
    """What the system refuses, in one line: a full disk, say. Nothing that a traceback would explain better."""
    where = f"{error.filename}: " if error.filename else ""
    print(f"error: {where}{error.strerror or error}", file=sys.stderr)
    return ERROR


def error_with_server(error: GanglineError, found: Connection) -> str:
    """An error in one line; of a server that does not answer, or does not know us, with where we have it from."""
    whose = f"context {found.context} in {found.source}" if found.context and found.source else found.source
    if isinstance(error, Unauthorized) and whose:
        return f"{error_line(error)}; the credentials of {whose} are wrong or have expired: log in again"
    reason = _connection_error(error) if isinstance(error, Unreachable) else ""
    if reason and whose:
        return f"error: {found.server}: {reason}; is that server up, and is {whose} the one you mean?"
    return error_line(error)


def _connection_error(error: BaseException) -> str:
    """Why there is no connection, in the words of the system; empty if that is not what is wrong."""
    import ssl

    cause = getattr(error.__cause__, "os_error", error.__cause__)
    # A server that is not trusted, or too slow, is there.
    if not isinstance(cause, OSError) or isinstance(cause, ssl.SSLError | TimeoutError) or not cause.errno:
        return ""
    # What looks up names has numbers of its own, below zero.
    return os.strerror(cause.errno) if cause.errno > 0 else cause.strerror or ""


def error_line(error: GanglineError) -> str:
    """An error in one line."""
    if isinstance(error, Invalid) and error.status.details.kind:
        return f"The {error}" if not str(error).startswith("The ") else str(error)
    if isinstance(error, ApiError):
        return f"Error from server ({error.reason}): {error}" if error.reason else f"error: {error}"
    return f"error: {error}"
