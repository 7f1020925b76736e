"""The errors of the API: each is a Status with code, reason and message, in kube-apiserver's words."""

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from gangline.api.meta import JSON, Key
from gangline.base.errors import GanglineError
from gangline.schema.go_text import quoted_text
from gangline.schema.problems import FieldProblem, summary

UNPROCESSABLE_MESSAGE = "the server rejected our request due to an error in our request"
"""All that kube-apiserver says about a patch that does not apply. The cause is in `StatusError.log_detail`."""


class StatusError(GanglineError):
    """A request that fails with an HTTP error code. Raised anywhere below the HTTP layer, which responds with `status`.

    `reason` is the machine-readable reason of the Status, empty where Kubernetes gives none.
    """

    def __init__(
        self, code: int, message: str, *, reason: str = "", log_detail: str = "", details: JSON | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.reason = code, message, reason
        self.log_detail = log_detail
        """The cause in detail, where the message for the client says less."""
        self.details = details
        self.warnings: tuple[str, ...] = ()
        """Warnings for the client, which gets them with the error."""

    @property
    def status(self) -> JSON:
        """The Status object: the body of the response."""
        body: JSON = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        return {**body, "code": self.code}


def bad_request(message: str) -> StatusError:
    return StatusError(400, message, reason="BadRequest")


def unprocessable(log_detail: str) -> StatusError:
    return StatusError(422, UNPROCESSABLE_MESSAGE, reason="Invalid", log_detail=log_detail, details={})


def untyped_error(message: str) -> StatusError:
    """A Status with code 500 and no reason, as kube-apiserver has it for some bad requests."""
    return StatusError(500, message)


def unregistered_kind_text(kind: object, version: object) -> str:
    return f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:110"'


class KindNames(Protocol):
    """The names of a kind in error messages."""

    @property
    def group(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def plural(self) -> str: ...


class NamedKind(msgspec.Struct, frozen=True):
    """The names of a kind that has no entry in the catalog, such as options and subresources."""

    group: str
    kind: str
    plural: str


def _qualified_resource(kind: KindNames) -> str:
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def _qualified_kind(kind: KindNames) -> str:
    return f"{kind.kind}.{kind.group}" if kind.group else kind.kind


def _status_details(names: KindNames, name: str, kind: str, **more: object) -> JSON:
    details: JSON = {}
    if name:
        details["name"] = name
    if names.group:
        details["group"] = names.group
    return {**details, "kind": kind, **more}


def deletion_success(kind: KindNames, name: str, uid: str) -> JSON:
    """The Status of a deletion whose response is not the object."""
    body: JSON = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return {**body, "details": _status_details(kind, name, kind.plural, uid=uid)}


def not_found(kind: KindNames, name: str) -> StatusError:
    return StatusError(
        404,
        f'{_qualified_resource(kind)} "{name}" not found',
        reason="NotFound",
        details=_status_details(kind, name, kind.plural),
    )


def no_such_resource() -> StatusError:
    return StatusError(404, "the server could not find the requested resource", reason="NotFound", details={})


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, message, reason="MethodNotAllowed", details={})


def already_exists(kind: KindNames, name: str, *, terminating: bool = False) -> StatusError:
    text = f'{_qualified_resource(kind)} "{name}" already exists'
    if terminating:
        text = f"object is being deleted: {text}"
    return StatusError(409, text, reason="AlreadyExists", details=_status_details(kind, name, kind.plural))


def conflict(kind: KindNames, name: str, why: str, *, causes: Sequence[JSON] = ()) -> StatusError:
    text = f'Operation cannot be fulfilled on {_qualified_resource(kind)} "{name}": {why}'
    more: JSON = {"causes": list(causes)} if causes else {}
    return StatusError(409, text, reason="Conflict", details=_status_details(kind, name, kind.plural, **more))


MODIFIED_MESSAGE = "the object has been modified; please apply your changes to the latest version and try again"


def precondition_failed(kind: KindNames, name: str, what: str, expected: str, current: str) -> StatusError:
    """A deletion whose uid or resourceVersion precondition does not match the stored object."""
    text = f"the {what} in the precondition ({expected}) does not match the {what} in record ({current})."
    text += (
        " The object might have been deleted and then recreated"
        if what == "UID"
        else " The object might have been modified"
    )
    details = _status_details(kind, name, kind.kind)
    return StatusError(
        409,
        f'Operation cannot be fulfilled on {_qualified_kind(kind)} "{name}": {text}',
        reason="Conflict",
        details=details,
    )


def uid_mismatch(kind: KindNames, key: Key, expected: str, metadata: JSON) -> StatusError:
    """A write whose uid precondition does not match the stored object."""
    group = f"{kind.group}/" if kind.group else ""
    where = f"/registry/{group}{kind.plural}/{key.namespace}/{key.name}"
    why = (
        f"StorageError: invalid object, Code: 4, Key: {where}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {expected}, UID in object meta: {metadata['uid']}"
    )
    return conflict(kind, key.name, why)


def invalid(kind: KindNames, name: str, problems: Sequence[FieldProblem]) -> StatusError:
    """422 with a cause for every problem. The message names each distinct problem once."""
    text = f'{_qualified_kind(kind)} "{name}" is invalid: {summary(_distinct_problems(problems))}'
    details = _status_details(kind, name, kind.kind, causes=problem_causes(problems))
    return StatusError(422, text, reason="Invalid", details=details)


def invalid_resource(kind: KindNames, name: str, problems: Sequence[FieldProblem]) -> StatusError:
    """Like `invalid`, for checks where kube-apiserver knows only the resource and not the kind."""
    text = f'{_qualified_resource(kind)} "{name}" is invalid: {summary(_distinct_problems(problems))}'
    details = _status_details(kind, name, kind.plural, causes=problem_causes(problems))
    return StatusError(422, text, reason="Invalid", details=details)


def problem_causes(problems: Iterable[FieldProblem]) -> list[JSON]:
    """The causes of a Status, one for each problem."""
    return [{"reason": p.kind.reason, "message": p.message, "field": p.field} for p in problems]


def invalid_patch(patch: str, why: str) -> StatusError:
    """A patch whose result is not an object of its kind."""
    message = f"Invalid value: {quoted_text(patch)}: {why}"
    cause = {"reason": "FieldValueInvalid", "message": message, "field": "patch"}
    return StatusError(422, f' "" is invalid: patch: {message}', reason="Invalid", details={"causes": [cause]})


def _distinct_problems(problems: Iterable[FieldProblem]) -> list[FieldProblem]:
    by_text: dict[str, FieldProblem] = {}
    for problem in problems:
        by_text.setdefault(str(problem), problem)
    return list(by_text.values())


def apply_conflict(message: str, causes: Sequence[JSON]) -> StatusError:
    return StatusError(409, message, reason="Conflict", details={"causes": list(causes)})


def forbidden(kind: KindNames, name: str, why: str, *, causes: Sequence[JSON] = ()) -> StatusError:
    subject = f"{_qualified_resource(kind)} {quoted_text(name)}" if name else _qualified_resource(kind)
    more: JSON = {"causes": list(causes)} if causes else {}
    return StatusError(
        403,
        f"{subject} is forbidden: {why}",
        reason="Forbidden",
        details=_status_details(kind, name, kind.plural, **more),
    )


def namespace_terminating(kind: KindNames, name: str, namespace: str) -> StatusError:
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    return forbidden(kind, name, why, causes=[cause])


def resource_expired(message: str) -> StatusError:
    return StatusError(410, message, reason="Expired")


def resource_version_too_large(requested: int, current: int) -> StatusError:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    text = f"Timeout: Too large resource version: {requested}, current: {current}"
    return StatusError(504, text, reason="Timeout", details={"causes": [cause], "retryAfterSeconds": 1})


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", reason="Unauthorized")


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    text = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return StatusError(415, text, reason="UnsupportedMediaType")


def unsupported_patch_type() -> StatusError:
    """An unknown patch type of a built-in kind: kube-apiserver's router refuses it, in fewer words."""
    return StatusError(415, "415: Unsupported Media Type", reason="UnsupportedMediaType", details={})


def body_too_large(limit: int) -> StatusError:
    return StatusError(413, f"Request entity too large: limit is {limit}", reason="RequestEntityTooLarge")


def request_timeout() -> StatusError:
    text = "Timeout: request did not complete within the allotted timeout"
    return StatusError(504, text, reason="Timeout", details={})


def internal_error(message: str) -> StatusError:
    text = f"Internal error occurred: {message}"
    return StatusError(500, text, reason="InternalError", details={"causes": [{"message": message}]})


def storage_failed(cause: str) -> StatusError:
    """The disk of the store fails. kube-apiserver reports errors of etcd as internal errors, too."""
    return internal_error(f"the store cannot write: {cause}")


def storage_full(cause: str) -> StatusError:
    """The disk of the store is full. There is no Retry-After: kubectl would wait for minutes instead of saying so."""
    return StatusError(507, cause, reason="InsufficientStorage", details={"causes": [{"message": cause}]})
