"""The errors of clients. Transports and the client raise no others.

::

    InputError
    └── ConfigError              a kubeconfig that cannot be used: file, field, remedy
    KubeError
    ├── Unreachable              no response: refused, reset, timed out, TLS not trusted
    ├── StreamBroken             a watch, log, exec or port-forward stream was cut off
    ├── MalformedResponse        a successful response that cannot be decoded
    └── ApiError                 the server responded with a Status
        ├── BadRequest           400
        ├── Unauthorized         401
        ├── Forbidden            403
        ├── NotFound             404
        ├── MethodNotAllowed     405
        ├── Conflict             409  a stale resourceVersion or a failed precondition: read again
        │   └── AlreadyExists    409  the name is taken
        ├── Gone                 410  a resourceVersion or continue token too old: list again
        ├── Invalid              422  the object is wrong: every field in `causes`
        ├── TooManyRequests      429  wait `retry_after`
        └── ServerError          5xx
            └── ServerTimeout    504, or 500 with reason ServerTimeout or Timeout
"""

from datetime import timedelta

import msgspec

from gangline.api.meta import ApiStruct
from gangline.base.errors import GanglineError, InputError


class ConfigError(InputError):
    """A kubeconfig that cannot be used. The message has file, field and remedy, never a credential."""


class KubeError(GanglineError):
    """The base class of errors in communication with a server."""


class Unreachable(KubeError):
    """The server did not respond: refused, reset, timed out, or its certificate is not trusted."""


class StreamBroken(KubeError):
    """A stream was cut off, or contains data that cannot be decoded. What was received before it is valid."""


class MalformedResponse(KubeError):
    """A successful response that cannot be decoded. The server's or a proxy's fault, not wrong input."""


class StatusCause(ApiStruct, frozen=True):
    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(ApiStruct, frozen=True):
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class Status(ApiStruct, frozen=True):
    """The `v1` Status object: the body of an error response."""

    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails = StatusDetails()


class ApiError(KubeError):
    """The server responded with an error."""

    def __init__(self, status: Status, *, retry_after: timedelta | None = None) -> None:
        super().__init__(status.message or status.reason or f"HTTP {status.code}")
        self.status = status
        self.code, self.reason, self.causes = status.code, status.reason, status.details.causes
        self.retry_after = retry_after


class BadRequest(ApiError):
    """400."""


class Unauthorized(ApiError):
    """401."""


class Forbidden(ApiError):
    """403."""


class NotFound(ApiError):
    """404."""


class MethodNotAllowed(ApiError):
    """405."""


class Conflict(ApiError):
    """409: the object changed since it was read, or a precondition failed."""


class AlreadyExists(Conflict):
    """409: an object of that name exists."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class Invalid(ApiError):
    """422: the object is wrong; `causes` has every field."""


class TooManyRequests(ApiError):
    """429: wait for `retry_after`."""


class ServerError(ApiError):
    """5xx."""


class ServerTimeout(ServerError):
    """The server timed out; the request may or may not have been carried out."""


_ERROR_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
    504: ServerTimeout,
}
_ERROR_BY_REASON: dict[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExists,
    "Expired": Gone,
    "ServerTimeout": ServerTimeout,
    "Timeout": ServerTimeout,
}


def error_from_status(status: Status, retry_after: timedelta | None = None) -> ApiError:
    """The error for a Status: chosen by reason if that is more specific than the code."""
    fallback = ServerError if status.code >= 500 else ApiError
    kind = _ERROR_BY_REASON.get(status.reason) or _ERROR_BY_CODE.get(status.code, fallback)
    if retry_after is None and status.details.retry_after_seconds:
        retry_after = timedelta(seconds=status.details.retry_after_seconds)
    return kind(status, retry_after=retry_after)


def error_from_body(code: int, body: bytes, retry_after: timedelta | None = None) -> ApiError:
    """The error for a response whose body is a Status, or a page of a proxy."""
    try:
        status = _protobuf_status(body) if body.startswith(_PROTOBUF_MAGIC) else msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, InputError, UnicodeDecodeError):
        status = Status(message=body[:500].decode(errors="replace").strip())
    if not status.code:
        status = msgspec.structs.replace(status, code=code)
    return error_from_status(status, retry_after)


_PROTOBUF_MAGIC = b"k8s\x00"


def _protobuf_status(body: bytes) -> Status:
    # Imported here: only a client that asks for protobuf gets it.
    from gangline.schema.protobuf.objects import decode

    return msgspec.convert(decode(body), Status)
