"""A request that the server refuses, with the Status a client gets to see."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from gangline.api.meta import JSON, Key
from gangline.base.errors import GanglineError
from gangline.schema.go_text import quoted_text
from gangline.schema.problems import FieldProblem, summary

UNPROCESSABLE_MESSAGE = "the server rejected our request due to an error in our request"
"""All that kube-apiserver tells of a patch that does not fit; the cause stays on the exception, for logs."""


class StatusError(GanglineError):
    """An answer with an error code. Raised anywhere below the HTTP layer, answered there.

    `reason` is Kubernetes' machine-readable one, empty where it gives none.
    """

    def __init__(
        self, code: int, message: str, *, reason: str = "", because: str = "", details: JSON | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.reason = code, message, reason
        self.log_detail = because
        """What went wrong in detail, where the client is told less."""
        self.details = details

    @property
    def status(self) -> JSON:
        """The body of the answer."""
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


class UnknownFields(StatusError):
    """Fields that the schema does not have, where the client insists that all be known."""

    def __init__(self, message: str) -> None:
        super().__init__(400, message, reason="BadRequest")


def bad_request(message: str) -> StatusError:
    return StatusError(400, message, reason="BadRequest")


def unprocessable(because: str) -> StatusError:
    return StatusError(422, UNPROCESSABLE_MESSAGE, reason="Invalid", because=because, details={})


def untyped_error(message: str) -> StatusError:
    """kube-apiserver answers some bad requests with 500 and no reason; clients and tests know these texts."""
    return StatusError(500, message)


__all__ = ["StatusError", "bad_request"]


class KindNames(Protocol):
    """What a refusal says about a kind."""

    @property
    def group(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def plural(self) -> str: ...


def _qualified_resource(named: KindNames) -> str:
    return f"{named.plural}.{named.group}" if named.group else named.plural


def _qualified_kind(named: KindNames) -> str:
    return f"{named.kind}.{named.group}" if named.group else named.kind


def _status_details(named: KindNames, name: str, kind: str, **more: object) -> JSON:
    details: JSON = {}
    if name:
        details["name"] = name
    if named.group:
        details["group"] = named.group
    return {**details, "kind": kind, **more}


def deletion_success(named: KindNames, name: str, uid: str) -> JSON:
    """The Status of a deletion that left nothing to show."""
    body: JSON = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return {**body, "details": _status_details(named, name, named.plural, uid=uid)}


def not_found(named: KindNames, name: str) -> StatusError:
    return StatusError(
        404,
        f'{_qualified_resource(named)} "{name}" not found',
        reason="NotFound",
        details=_status_details(named, name, named.plural),
    )


def no_such_resource() -> StatusError:
    return StatusError(404, "the server could not find the requested resource", reason="NotFound", details={})


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, message, reason="MethodNotAllowed", details={})


def already_exists(named: KindNames, name: str, *, terminating: bool = False) -> StatusError:
    text = f'{_qualified_resource(named)} "{name}" already exists'
    if terminating:
        text = f"object is being deleted: {text}"
    return StatusError(409, text, reason="AlreadyExists", details=_status_details(named, name, named.plural))


def conflict(named: KindNames, name: str, why: str, *, causes: Sequence[JSON] = ()) -> StatusError:
    text = f'Operation cannot be fulfilled on {_qualified_resource(named)} "{name}": {why}'
    more: JSON = {"causes": list(causes)} if causes else {}
    return StatusError(409, text, reason="Conflict", details=_status_details(named, name, named.plural, **more))


MODIFIED_MESSAGE = "the object has been modified; please apply your changes to the latest version and try again"


def precondition_failed(named: KindNames, name: str, what: str, wanted: str, found: str) -> StatusError:
    """A delete that was meant for another object, or another version of it."""
    text = f"the {what} in the precondition ({wanted}) does not match the {what} in record ({found})."
    text += (
        " The object might have been deleted and then recreated"
        if what == "UID"
        else " The object might have been modified"
    )
    details = _status_details(named, name, named.kind)
    return StatusError(
        409,
        f'Operation cannot be fulfilled on {_qualified_kind(named)} "{name}": {text}',
        reason="Conflict",
        details=details,
    )


def uid_mismatch(named: KindNames, key: Key, wanted: str, metadata: JSON) -> StatusError:
    """A write meant for another object of that name."""
    group = f"{named.group}/" if named.group else ""
    where = f"/registry/{group}{named.plural}/{key.namespace}/{key.name}"
    why = (
        f"StorageError: invalid object, Code: 4, Key: {where}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {metadata['uid']}"
    )
    return conflict(named, key.name, why)


def invalid(named: KindNames, name: str, problems: Sequence[FieldProblem]) -> StatusError:
    """422 with every field as a cause. The sentence names each problem once."""
    causes = [{"reason": p.kind.reason, "message": p.message, "field": p.field} for p in problems]
    text = f'{_qualified_kind(named)} "{name}" is invalid: {summary(_distinct_problems(problems))}'
    return StatusError(422, text, reason="Invalid", details=_status_details(named, name, named.kind, causes=causes))


def invalid_resource(named: KindNames, name: str, problems: Sequence[FieldProblem]) -> StatusError:
    """The same, found where the server knows only the resource and no longer its kind."""
    causes = [{"reason": p.kind.reason, "message": p.message, "field": p.field} for p in problems]
    text = f'{_qualified_resource(named)} "{name}" is invalid: {summary(_distinct_problems(problems))}'
    details = _status_details(named, name, named.plural, causes=causes)
    return StatusError(422, text, reason="Invalid", details=details)


def invalid_patch(patch: str, why: str) -> StatusError:
    """A patch whose result is no object of its kind."""
    message = f"Invalid value: {quoted_text(patch)}: {why}"
    cause = {"reason": "FieldValueInvalid", "message": message, "field": "patch"}
    return StatusError(422, f' "" is invalid: patch: {message}', reason="Invalid", details={"causes": [cause]})


def _distinct_problems(problems: Iterable[FieldProblem]) -> list[FieldProblem]:
    seen: dict[str, FieldProblem] = {}
    for problem in problems:
        seen.setdefault(str(problem), problem)
    return list(seen.values())


def apply_conflict(message: str, causes: Sequence[JSON]) -> StatusError:
    return StatusError(409, message, reason="Conflict", details={"causes": list(causes)})


def forbidden(named: KindNames, name: str, why: str, *, causes: Sequence[JSON] = ()) -> StatusError:
    shown = f'{_qualified_resource(named)} "{name}"' if name else _qualified_resource(named)
    more: JSON = {"causes": list(causes)} if causes else {}
    return StatusError(
        403,
        f"{shown} is forbidden: {why}",
        reason="Forbidden",
        details=_status_details(named, name, named.plural, **more),
    )


def namespace_terminating(named: KindNames, name: str, namespace: str) -> StatusError:
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    return forbidden(named, name, why, causes=[cause])


def resource_expired(message: str) -> StatusError:
    return StatusError(410, message, reason="Expired")


def resource_version_too_large(wanted: int, current: int) -> StatusError:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    text = f"Timeout: Too large resource version: {wanted}, current: {current}"
    return StatusError(504, text, reason="Timeout", details={"causes": [cause], "retryAfterSeconds": 1})


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", reason="Unauthorized")


def unsupported_media_type(got: str, accepted: Sequence[str]) -> StatusError:
    text = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return StatusError(415, text, reason="UnsupportedMediaType")


def unsupported_patch_type() -> StatusError:
    """Found before anybody looks at the resource, and told in fewer words."""
    return StatusError(415, "415: Unsupported Media Type", reason="UnsupportedMediaType", details={})


def body_too_large(limit: int) -> StatusError:
    return StatusError(413, f"Request entity too large: limit is {limit}", reason="RequestEntityTooLarge")


def internal_error(message: str) -> StatusError:
    text = f"Internal error occurred: {message}"
    return StatusError(500, text, reason="InternalError", details={"causes": [{"message": message}]})
