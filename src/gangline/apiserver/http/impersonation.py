"""Acting as somebody else: the `Impersonate-*` headers. Members of `system:masters` may, nobody else."""

from collections.abc import Iterable
from urllib.parse import unquote

from gangline.apiserver import refusals
from gangline.apiserver.http.authentication import ANONYMOUS, User, authorize
from gangline.apiserver.http.routes import Target

PREFIX = "impersonate-"
AUTHENTICATED, ACCOUNTS = "system:authenticated", "system:serviceaccounts"
_ACCOUNT, _EXTRA = "system:serviceaccount:", "extra-"


def acting(user: User, headers: Iterable[tuple[str, str]]) -> User:
    """Whom a request is to be answered as. Raises `Refused`: 403 for those who may not act as others."""
    told = [(name.lower().removeprefix(PREFIX), text) for name, text in headers if _about(name)]
    if not told:
        return user
    name = next((text for part, text in told if part == "user"), "")
    if not name:
        raise refusals.internal("requested impersonation without impersonating a user")
    _check(user, name)
    extra: dict[str, tuple[str, ...]] = {}
    for part, text in told:
        if part.startswith(_EXTRA):
            key = unquote(part.removeprefix(_EXTRA))
            extra[key] = (*extra.get(key, ()), text)
    groups = tuple(text for part, text in told if part == "group")
    uid = next((text for part, text in told if part == "uid"), "")
    return User(name, _groups(name, groups), uid=uid, extra=extra)


def _about(header: str) -> bool:
    return header[: len(PREFIX)].lower() == PREFIX


def _check(user: User, name: str) -> None:
    if name.startswith(_ACCOUNT) and name.count(":") == 3:
        namespace, account = name.split(":")[2:]
        authorize(user, "impersonate", Target("", "v1", "serviceaccounts", namespace, account))
    else:
        authorize(user, "impersonate", Target("", "v1", "users", name=name))


def _groups(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """Everybody who is not anonymous is authenticated; a service account without groups has those of its kind."""
    if not groups and name.startswith(_ACCOUNT) and name.count(":") == 3:
        groups = (ACCOUNTS, f"{ACCOUNTS}:{name.split(':')[2]}")
    if name == ANONYMOUS.name:
        return groups or ANONYMOUS.groups
    marked = AUTHENTICATED in groups or ANONYMOUS.groups[0] in groups
    return groups if marked else (*groups, AUTHENTICATED)
