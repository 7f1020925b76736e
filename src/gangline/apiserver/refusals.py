"""What the server says instead of an object: Status bodies, in kube-apiserver's own words.

Two spellings matter. 404, 409 and 403 name the *resource* (`deployments.apps "d"`), 422 and delete preconditions
the *kind* (`Deployment.apps "d"`).
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from gangline.api.meta import JSON, Key
from gangline.apiserver.errors import Refused, bad_request
from gangline.schema.go_text import quoted
from gangline.schema.problems import Problem, summary

__all__ = ["Refused", "bad_request"]


class Named(Protocol):
    """What a refusal says about a kind."""

    @property
    def group(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def plural(self) -> str: ...


def _resource(named: Named) -> str:
    return f"{named.plural}.{named.group}" if named.group else named.plural


def _kind(named: Named) -> str:
    return f"{named.kind}.{named.group}" if named.group else named.kind


def _details(named: Named, name: str, kind: str, **more: object) -> JSON:
    details: JSON = {}
    if name:
        details["name"] = name
    if named.group:
        details["group"] = named.group
    return {**details, "kind": kind, **more}


def success(named: Named, name: str, uid: str) -> JSON:
    """The Status of a deletion that left nothing to show."""
    body: JSON = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return {**body, "details": _details(named, name, named.plural, uid=uid)}


def not_found(named: Named, name: str) -> Refused:
    return Refused(
        404,
        f'{_resource(named)} "{name}" not found',
        reason="NotFound",
        details=_details(named, name, named.plural),
    )


def no_such_resource() -> Refused:
    return Refused(404, "the server could not find the requested resource", reason="NotFound", details={})


def method_not_allowed() -> Refused:
    message = "the server does not allow this method on the requested resource"
    return Refused(405, message, reason="MethodNotAllowed", details={})


def already_exists(named: Named, name: str, *, terminating: bool = False) -> Refused:
    text = f'{_resource(named)} "{name}" already exists'
    if terminating:
        text = f"object is being deleted: {text}"
    return Refused(409, text, reason="AlreadyExists", details=_details(named, name, named.plural))


def conflict(named: Named, name: str, why: str, *, causes: Sequence[JSON] = ()) -> Refused:
    text = f'Operation cannot be fulfilled on {_resource(named)} "{name}": {why}'
    more: JSON = {"causes": list(causes)} if causes else {}
    return Refused(409, text, reason="Conflict", details=_details(named, name, named.plural, **more))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def precondition(named: Named, name: str, what: str, wanted: str, found: str) -> Refused:
    """A delete that was meant for another object, or another version of it."""
    text = f"the {what} in the precondition ({wanted}) does not match the {what} in record ({found})."
    text += (
        " The object might have been deleted and then recreated"
        if what == "UID"
        else " The object might have been modified"
    )
    details = _details(named, name, named.kind)
    return Refused(
        409,
        f'Operation cannot be fulfilled on {_kind(named)} "{name}": {text}',
        reason="Conflict",
        details=details,
    )


def stale_uid(named: Named, key: Key, wanted: str, metadata: JSON) -> Refused:
    """A write meant for another object of that name."""
    group = f"{named.group}/" if named.group else ""
    where = f"/registry/{group}{named.plural}/{key.namespace}/{key.name}"
    why = (
        f"StorageError: invalid object, Code: 4, Key: {where}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {metadata['uid']}"
    )
    return conflict(named, key.name, why)


def invalid(named: Named, name: str, problems: Sequence[Problem]) -> Refused:
    """422 with every field as a cause. The sentence names each problem once."""
    causes = [{"reason": p.kind.reason, "message": p.message, "field": p.field} for p in problems]
    text = f'{_kind(named)} "{name}" is invalid: {summary(_once(problems))}'
    return Refused(422, text, reason="Invalid", details=_details(named, name, named.kind, causes=causes))


def invalid_resource(named: Named, name: str, problems: Sequence[Problem]) -> Refused:
    """The same, found where the server knows only the resource and no longer its kind."""
    causes = [{"reason": p.kind.reason, "message": p.message, "field": p.field} for p in problems]
    text = f'{_resource(named)} "{name}" is invalid: {summary(_once(problems))}'
    details = _details(named, name, named.plural, causes=causes)
    return Refused(422, text, reason="Invalid", details=details)


def invalid_patch(patch: str, why: str) -> Refused:
    """A patch whose result is no object of its kind."""
    message = f"Invalid value: {quoted(patch)}: {why}"
    cause = {"reason": "FieldValueInvalid", "message": message, "field": "patch"}
    return Refused(422, f' "" is invalid: patch: {message}', reason="Invalid", details={"causes": [cause]})


def _once(problems: Iterable[Problem]) -> list[Problem]:
    seen: dict[str, Problem] = {}
    for problem in problems:
        seen.setdefault(str(problem), problem)
    return list(seen.values())


def apply_conflict(message: str, causes: Sequence[JSON]) -> Refused:
    return Refused(409, message, reason="Conflict", details={"causes": list(causes)})


def forbidden(named: Named, name: str, why: str, *, causes: Sequence[JSON] = ()) -> Refused:
    shown = f'{_resource(named)} "{name}"' if name else _resource(named)
    more: JSON = {"causes": list(causes)} if causes else {}
    return Refused(
        403,
        f"{shown} is forbidden: {why}",
        reason="Forbidden",
        details=_details(named, name, named.plural, **more),
    )


def terminating(named: Named, name: str, namespace: str) -> Refused:
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    return forbidden(named, name, why, causes=[cause])


def expired(message: str) -> Refused:
    return Refused(410, message, reason="Expired")


def too_large_version(wanted: int, current: int) -> Refused:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    text = f"Timeout: Too large resource version: {wanted}, current: {current}"
    return Refused(504, text, reason="Timeout", details={"causes": [cause], "retryAfterSeconds": 1})


def unauthorized() -> Refused:
    return Refused(401, "Unauthorized", reason="Unauthorized")


def unsupported_media(got: str, accepted: Sequence[str]) -> Refused:
    text = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return Refused(415, text, reason="UnsupportedMediaType")


def unsupported_patch() -> Refused:
    """Found before anybody looks at the resource, and told in fewer words."""
    return Refused(415, "415: Unsupported Media Type", reason="UnsupportedMediaType", details={})


def too_large_body(limit: int) -> Refused:
    return Refused(413, f"Request entity too large: limit is {limit}", reason="RequestEntityTooLarge")


def internal(message: str) -> Refused:
    text = f"Internal error occurred: {message}"
    return Refused(500, text, reason="InternalError", details={"causes": [{"message": message}]})
