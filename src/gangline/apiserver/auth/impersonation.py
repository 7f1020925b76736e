"""Impersonation: a user who acts as another one, by `Impersonate-*` headers."""

from collections.abc import Iterable, Iterator
from urllib.parse import unquote

import msgspec

from gangline.apiserver.auth.attributes import AccessAttributes
from gangline.apiserver.auth.authorizer import AUTHENTICATION_GROUP, Authorizer, check_access
from gangline.apiserver.users import (
    ANONYMOUS_USER,
    AUTHENTICATED_GROUP,
    UNAUTHENTICATED_GROUP,
    UserInfo,
    service_account_groups,
)

IMPERSONATE_PREFIX = "impersonate-"
_EXTRA_PREFIX = "extra-"


class ImpersonationError(Exception):
    """The headers name no user. kube-apiserver responds with code 500 and this message as plain text."""


class Impersonation(msgspec.Struct, frozen=True):
    """Whom a request wants to act as, as far as its headers say."""

    user: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}
    uid: str = ""

    def __bool__(self) -> bool:
        return self != NO_IMPERSONATION


NO_IMPERSONATION = Impersonation()


def impersonated_user(user: UserInfo, headers: Iterable[tuple[str, str]], authorizer: Authorizer) -> UserInfo:
    """The user that the Impersonate headers name, or the user itself without such headers.

    Raises `StatusError` (403) if the user may not act as this user, in one of the groups, with this uid or one of the
    extra values, and `ImpersonationError` if the headers name no user.
    """
    wanted = _impersonation(headers)
    if not wanted:
        return user
    if not wanted.user:
        raise ImpersonationError(f"requested [{' '.join(_references(wanted))}] without impersonating a user")
    for attributes in _checks(user, wanted):
        check_access(authorizer, attributes)
    return UserInfo(wanted.user, _groups(wanted), uid=wanted.uid, extra=wanted.extra)


def _impersonation(headers: Iterable[tuple[str, str]]) -> Impersonation:
    named = [
        (header[len(IMPERSONATE_PREFIX) :].lower(), value)
        for header, value in headers
        if header[: len(IMPERSONATE_PREFIX)].lower() == IMPERSONATE_PREFIX
    ]
    if not named:
        return NO_IMPERSONATION
    extra: dict[str, tuple[str, ...]] = {}
    for field, value in named:
        if field.startswith(_EXTRA_PREFIX):
            key = unquote(field.removeprefix(_EXTRA_PREFIX))
            extra[key] = (*extra.get(key, ()), value)
    return Impersonation(
        next((value for field, value in named if field == "user"), ""),
        tuple(value for field, value in named if field == "group"),
        extra,
        next((value for field, value in named if field == "uid"), ""),
    )


def _checks(user: UserInfo, wanted: Impersonation) -> Iterator[AccessAttributes]:
    """What the user must be allowed, in the order in which kube-apiserver asks."""
    verb = "impersonate"
    account = UserInfo(wanted.user).service_account
    if account is not None:
        yield AccessAttributes(user, verb, "", "v1", "serviceaccounts", namespace=account[0], name=account[1])
    else:
        yield AccessAttributes(user, verb, "", "v1", "users", name=wanted.user)
    for group in wanted.groups:
        yield AccessAttributes(user, verb, "", "v1", "groups", name=group)
    for key, values in wanted.extra.items():
        for value in values:
            yield AccessAttributes(user, verb, AUTHENTICATION_GROUP, "v1", "userextras", key, name=value)
    if wanted.uid:
        yield AccessAttributes(user, verb, AUTHENTICATION_GROUP, "v1", "uids", name=wanted.uid)


def _groups(wanted: Impersonation) -> tuple[str, ...]:
    """The groups of an impersonated user: authenticated unless anonymous; a service account gets its default groups."""
    account, groups = UserInfo(wanted.user).service_account, wanted.groups
    if not groups and account is not None:
        groups = service_account_groups(account[0])
    if wanted.user == ANONYMOUS_USER.name:
        return groups if UNAUTHENTICATED_GROUP in groups else (*groups, UNAUTHENTICATED_GROUP)
    has_system_group = AUTHENTICATED_GROUP in groups or UNAUTHENTICATED_GROUP in groups
    return groups if has_system_group else (*groups, AUTHENTICATED_GROUP)


def _references(wanted: Impersonation) -> Iterator[str]:
    """What the headers name, printed as Go prints the object references that kube-apiserver makes of them."""
    for group in wanted.groups:
        yield f"{{Group  {group}    }}"
    for key, values in wanted.extra.items():
        for value in values:
            yield f"{{UserExtra  {value}  {AUTHENTICATION_GROUP}/v1  {key}}}"
    if wanted.uid:
        yield f"{{UID  {wanted.uid}  {AUTHENTICATION_GROUP}/v1  }}"
