"""Acting as somebody else: the `Impersonate-*` headers. Members of `system:masters` may, nobody else."""

from collections.abc import Iterable
from urllib.parse import unquote

from gangline.apiserver import refusals
from gangline.apiserver.http.authentication import ANONYMOUS_USER, UserInfo, authorize
from gangline.apiserver.http.routes import RequestInfo

IMPERSONATE_PREFIX = "impersonate-"
AUTHENTICATED_GROUP, SERVICE_ACCOUNTS_GROUP = "system:authenticated", "system:serviceaccounts"
_SERVICE_ACCOUNT_PREFIX, _EXTRA_PREFIX = "system:serviceaccount:", "extra-"


def impersonated_user(user: UserInfo, headers: Iterable[tuple[str, str]]) -> UserInfo:
    """Whom a request is to be answered as. Raises `Refused`: 403 for those who may not act as others."""
    told = [
        (name.lower().removeprefix(IMPERSONATE_PREFIX), text)
        for name, text in headers
        if _is_impersonation_header(name)
    ]
    if not told:
        return user
    name = next((text for part, text in told if part == "user"), "")
    if not name:
        raise refusals.internal_error("requested impersonation without impersonating a user")
    _check_may_impersonate(user, name)
    extra: dict[str, tuple[str, ...]] = {}
    for part, text in told:
        if part.startswith(_EXTRA_PREFIX):
            key = unquote(part.removeprefix(_EXTRA_PREFIX))
            extra[key] = (*extra.get(key, ()), text)
    groups = tuple(text for part, text in told if part == "group")
    uid = next((text for part, text in told if part == "uid"), "")
    return UserInfo(name, _impersonated_groups(name, groups), uid=uid, extra=extra)


def _is_impersonation_header(header: str) -> bool:
    return header[: len(IMPERSONATE_PREFIX)].lower() == IMPERSONATE_PREFIX


def _check_may_impersonate(user: UserInfo, name: str) -> None:
    if name.startswith(_SERVICE_ACCOUNT_PREFIX) and name.count(":") == 3:
        namespace, account = name.split(":")[2:]
        authorize(user, "impersonate", RequestInfo("", "v1", "serviceaccounts", namespace, account))
    else:
        authorize(user, "impersonate", RequestInfo("", "v1", "users", name=name))


def _impersonated_groups(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """Everybody who is not anonymous is authenticated; a service account without groups has those of its kind."""
    if not groups and name.startswith(_SERVICE_ACCOUNT_PREFIX) and name.count(":") == 3:
        groups = (SERVICE_ACCOUNTS_GROUP, f"{SERVICE_ACCOUNTS_GROUP}:{name.split(':')[2]}")
    if name == ANONYMOUS_USER.name:
        return groups or ANONYMOUS_USER.groups
    marked = AUTHENTICATED_GROUP in groups or ANONYMOUS_USER.groups[0] in groups
    return groups if marked else (*groups, AUTHENTICATED_GROUP)
