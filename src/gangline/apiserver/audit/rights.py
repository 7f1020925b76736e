"""Audit logs read back: the events, and the rights that users have used."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.users import (
    AUTHENTICATED_GROUP,
    UNAUTHENTICATED_GROUP,
    UserInfo,
    service_account_groups,
)
from gangline.base.errors import InputError


class UsedRight(msgspec.Struct, frozen=True, order=True):
    """A right that a request needed and had: compare it with the rules of roles."""

    user: str
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    resource_name: str = ""
    path: str = ""
    """The path of a request that is for no resource."""


def read_events(path: Path) -> Iterator[JSON]:
    """The events of an audit log of ours or of kube-apiserver, oldest first. Raises `InputError`.

    A last line that is still being written is left out.
    """
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], 1):
        try:
            yield msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise InputError(f"{path}:{number}: is not an audit event: {error}") from error


def used_rights(events: Iterable[JSON]) -> frozenset[UsedRight]:
    """The rights that the allowed requests among the events needed. The policy must record at least Metadata.

    A request on behalf of another user counts for that user, and as `impersonate` for the sender.
    """
    rights: set[UsedRight] = set()
    for event in events:
        sender = (event.get("user") or {}).get("username", "")
        target = event.get("impersonatedUser") or {}
        if target:
            rights.update(_impersonation_rights(sender, target))
        if (event.get("annotations") or {}).get("authorization.k8s.io/decision") == "allow":
            rights.add(_event_right(target.get("username") or sender, event))
    return frozenset(rights)


def _event_right(user: str, event: JSON) -> UsedRight:
    reference = event.get("objectRef")
    verb = event.get("verb", "")
    if reference is None:
        return UsedRight(user, verb, path=event["requestURI"].partition("?")[0])
    # A create has no name when it is authorized: the name in the event is from the body.
    name = "" if verb == "create" and not reference.get("subresource") else reference.get("name", "")
    return UsedRight(
        user,
        verb,
        reference.get("apiGroup", ""),
        reference.get("resource", ""),
        reference.get("subresource", ""),
        reference.get("namespace", ""),
        name,
    )


def _impersonation_rights(sender: str, target: JSON) -> Iterator[UsedRight]:
    user = target.get("username", "")
    account = UserInfo(user).service_account
    # The server adds these itself, so that nobody needs a right for them.
    added = {AUTHENTICATED_GROUP, UNAUTHENTICATED_GROUP, *(service_account_groups(account[0]) if account else ())}
    if account is not None:
        namespace, name = account
        yield UsedRight(sender, "impersonate", resource="serviceaccounts", namespace=namespace, resource_name=name)
    else:
        yield UsedRight(sender, "impersonate", resource="users", resource_name=user)
    for group in target.get("groups") or ():
        if group not in added:
            yield UsedRight(sender, "impersonate", resource="groups", resource_name=group)
