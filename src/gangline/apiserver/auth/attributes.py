"""What a user wants to do, in the terms of authorizers."""

import msgspec

from gangline.apiserver.errors import NamedKind, StatusError, forbidden
from gangline.apiserver.users import UserInfo
from gangline.schema.go_text import quoted_text


class AccessAttributes(msgspec.Struct, frozen=True):
    """A verb on a resource, or on a path that is no resource (`path` is not None then)."""

    user: UserInfo
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str | None = None

    @property
    def is_resource_request(self) -> bool:
        return self.path is None


class AccessDenied(StatusError):
    """A request that the authorizer refuses before anything looks at it."""

    def __init__(self, attributes: AccessAttributes, reason: str = "") -> None:
        error = forbidden_error(attributes, reason)
        super().__init__(error.code, error.message, reason=error.reason, details=error.details)


def forbidden_error(attributes: AccessAttributes, reason: str = "") -> StatusError:
    """The 403 of a request that no authorizer allows, in kube-apiserver's words."""
    text = html_safe_text(_denial_text(attributes))
    if reason:
        text = f"{text}: {reason}"
    if not attributes.is_resource_request:
        return StatusError(403, f"forbidden: {text}", reason="Forbidden", details={})
    return forbidden(NamedKind(attributes.group, "", attributes.resource), attributes.name, text)


def html_safe_text(text: str) -> str:
    """The text without what looks like HTML. Quotes stay."""
    return text.translate(_HTML_ENTITIES)


_HTML_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def _denial_text(attributes: AccessAttributes) -> str:
    who, verb = f"User {quoted_text(attributes.user.name)}", attributes.verb
    if attributes.path is not None:
        return f"{who} cannot {verb} path {quoted_text(attributes.path)}"
    resource = f"{attributes.resource}/{attributes.subresource}" if attributes.subresource else attributes.resource
    namespace = attributes.namespace
    scope = f"in the namespace {quoted_text(namespace)}" if namespace else "at the cluster scope"
    group = quoted_text(attributes.group)
    return f"{who} cannot {verb} resource {quoted_text(resource)} in API group {group} {scope}"
