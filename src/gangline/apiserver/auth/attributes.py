"""What a user wants to do, in the terms of authorizers."""

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.errors import StatusError
from gangline.apiserver.users import UserInfo


class AccessAttributes(msgspec.Struct, frozen=True):
    """A verb on a resource, or on a path that is no resource (`path` is set then)."""

    user: UserInfo
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def is_resource_request(self) -> bool:
        return not self.path


def forbidden_error(attributes: AccessAttributes, reason: str = "") -> StatusError:
    """The 403 of a request that no authorizer allows, in kube-apiserver's words."""
    text, details = _resource_text(attributes) if attributes.is_resource_request else _path_text(attributes)
    return StatusError(403, f"{text}: {reason}" if reason else text, reason="Forbidden", details=details)


def _path_text(attributes: AccessAttributes) -> tuple[str, JSON]:
    return f'forbidden: User "{attributes.user.name}" cannot {attributes.verb} path "{attributes.path}"', {}


def _resource_text(attributes: AccessAttributes) -> tuple[str, JSON]:
    plural, group = attributes.resource, attributes.group
    resource = f"{plural}/{attributes.subresource}" if attributes.subresource else plural
    subject = f"{plural}.{group}" if group else plural
    if attributes.name:
        subject = f'{subject} "{attributes.name}"'
    scope = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    text = (
        f'{subject} is forbidden: User "{attributes.user.name}" cannot {attributes.verb} resource "{resource}" '
        f'in API group "{group}" {scope}'
    )
    details: JSON = {"kind": plural}
    if group:
        details["group"] = group
    if attributes.name:
        details["name"] = attributes.name
    return text, details
