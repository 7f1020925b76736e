"""Impersonation: a user who acts as another one, by `Impersonate-*` headers."""

from collections.abc import Iterable
from urllib.parse import unquote

from gangline.apiserver import errors as apierrors
from gangline.apiserver.auth.attributes import AccessAttributes
from gangline.apiserver.auth.authorizer import Authorizer, check_access
from gangline.apiserver.users import (
    ANONYMOUS_USER,
    AUTHENTICATED_GROUP,
    UNAUTHENTICATED_GROUP,
    UserInfo,
    service_account_groups,
)

IMPERSONATE_PREFIX = "impersonate-"
_EXTRA_PREFIX = "extra-"


def impersonated_user(user: UserInfo, headers: Iterable[tuple[str, str]], authorizer: Authorizer) -> UserInfo:
    """The user that the Impersonate headers name, or the user itself without such headers.

    Raises `StatusError`: 403 if the user may not impersonate, 500 if the headers name no user.
    """
    impersonation = [
        (name.lower().removeprefix(IMPERSONATE_PREFIX), value)
        for name, value in headers
        if _is_impersonation_header(name)
    ]
    if not impersonation:
        return user
    name = next((value for field, value in impersonation if field == "user"), "")
    if not name:
        raise apierrors.internal_error("requested impersonation without impersonating a user")
    target = UserInfo(name)
    check_access(authorizer, _impersonation_attributes(user, target))
    extra: dict[str, tuple[str, ...]] = {}
    for field, value in impersonation:
        if field.startswith(_EXTRA_PREFIX):
            key = unquote(field.removeprefix(_EXTRA_PREFIX))
            extra[key] = (*extra.get(key, ()), value)
    groups = tuple(value for field, value in impersonation if field == "group")
    uid = next((value for field, value in impersonation if field == "uid"), "")
    return UserInfo(name, _impersonated_groups(target, groups), uid=uid, extra=extra)


def _is_impersonation_header(header: str) -> bool:
    return header[: len(IMPERSONATE_PREFIX)].lower() == IMPERSONATE_PREFIX


def _impersonation_attributes(user: UserInfo, target: UserInfo) -> AccessAttributes:
    account = target.service_account
    if account is None:
        return AccessAttributes(user, "impersonate", version="v1", resource="users", name=target.name)
    namespace, name = account
    return AccessAttributes(
        user, "impersonate", version="v1", resource="serviceaccounts", namespace=namespace, name=name
    )


def _impersonated_groups(target: UserInfo, groups: tuple[str, ...]) -> tuple[str, ...]:
    """The groups of an impersonated user: authenticated unless anonymous; a service account gets its default groups."""
    account = target.service_account
    if not groups and account is not None:
        groups = service_account_groups(account[0])
    if target.name == ANONYMOUS_USER.name:
        return groups or ANONYMOUS_USER.groups
    has_system_group = AUTHENTICATED_GROUP in groups or UNAUTHENTICATED_GROUP in groups
    return groups if has_system_group else (*groups, AUTHENTICATED_GROUP)
