"""Authentication and authorization of requests.

Users are authenticated by token or client certificate. Authorization knows two kinds of users: members of
`system:masters` may do everything, all others may read version and health only.
"""

import hmac
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.errors import StatusError, unauthorized
from gangline.apiserver.http.request_info import RequestInfo

MASTERS_GROUP, AUTHENTICATED_GROUP = "system:masters", "system:authenticated"
SERVICE_ACCOUNTS_GROUP = "system:serviceaccounts"
PUBLIC_PATHS = frozenset({"/version", "/version/", "/healthz", "/livez", "/readyz"})


class UserInfo(msgspec.Struct, frozen=True):
    """An authenticated user."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}

    @property
    def is_master(self) -> bool:
        return MASTERS_GROUP in self.groups

    @property
    def is_authenticated(self) -> bool:
        return AUTHENTICATED_GROUP in self.groups


ANONYMOUS_USER = UserInfo("system:anonymous", ("system:unauthenticated",))


class Authenticator:
    """Authenticates by token, or by a client certificate that TLS has already verified."""

    def __init__(self, tokens: Mapping[str, UserInfo]) -> None:
        self._tokens = dict(tokens)

    def authenticate(self, authorization: str | None, peer: Mapping[str, Any] | None) -> UserInfo:
        """The user of a request, anonymous without credentials. Raises `StatusError` (401) for an unknown token."""
        if peer:
            return _certificate_user(peer)
        if not authorization:
            return ANONYMOUS_USER
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return ANONYMOUS_USER
        presented = token.strip().encode()
        for known_token, user in self._tokens.items():
            # In constant time, so that response times reveal nothing about a token.
            if hmac.compare_digest(known_token.encode(), presented):
                return user
        raise unauthorized()


def _certificate_user(peer: Mapping[str, Any]) -> UserInfo:
    subject = [pair for part in peer.get("subject", ()) for pair in part]
    name = next((value for key, value in subject if key == "commonName"), "")
    groups = tuple(value for key, value in subject if key == "organizationName")
    return UserInfo(name, (*groups, AUTHENTICATED_GROUP))


def authorize_nonresource(user: UserInfo, method: str, path: str) -> None:
    """Check that the user may request a path that is no resource. Raises `StatusError` (403)."""
    if user.is_master or path in PUBLIC_PATHS:
        return
    raise StatusError(
        403, f'forbidden: User "{user.name}" cannot {method.lower()} path "{path}"', reason="Forbidden", details={}
    )


def authorize(user: UserInfo, verb: str, target: RequestInfo) -> None:
    """Check that the user may use this verb on a resource. Raises `StatusError` (403).

    `verb` is a `RequestVerb` or `impersonate`.
    """
    if user.is_master:
        return
    resource = f"{target.plural}/{target.subresource}" if target.subresource else target.plural
    subject = f"{target.plural}.{target.group}" if target.group else target.plural
    if target.name:
        subject = f'{subject} "{target.name}"'
    scope = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    text = (
        f'{subject} is forbidden: User "{user.name}" cannot {verb} resource "{resource}" '
        f'in API group "{target.group}" {scope}'
    )
    details: JSON = {"kind": target.plural}
    if target.group:
        details["group"] = target.group
    if target.name:
        details["name"] = target.name
    raise StatusError(403, text, reason="Forbidden", details=details)


IMPERSONATE_PREFIX = "impersonate-"
_SERVICE_ACCOUNT_PREFIX, _EXTRA_PREFIX = "system:serviceaccount:", "extra-"


def impersonated_user(user: UserInfo, headers: Iterable[tuple[str, str]]) -> UserInfo:
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
    _check_may_impersonate(user, name)
    extra: dict[str, tuple[str, ...]] = {}
    for field, value in impersonation:
        if field.startswith(_EXTRA_PREFIX):
            key = unquote(field.removeprefix(_EXTRA_PREFIX))
            extra[key] = (*extra.get(key, ()), value)
    groups = tuple(value for field, value in impersonation if field == "group")
    uid = next((value for field, value in impersonation if field == "uid"), "")
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
    """The groups of an impersonated user: authenticated unless anonymous; a service account gets its default groups."""
    if not groups and name.startswith(_SERVICE_ACCOUNT_PREFIX) and name.count(":") == 3:
        groups = (SERVICE_ACCOUNTS_GROUP, f"{SERVICE_ACCOUNTS_GROUP}:{name.split(':')[2]}")
    if name == ANONYMOUS_USER.name:
        return groups or ANONYMOUS_USER.groups
    has_system_group = AUTHENTICATED_GROUP in groups or ANONYMOUS_USER.groups[0] in groups
    return groups if has_system_group else (*groups, AUTHENTICATED_GROUP)
