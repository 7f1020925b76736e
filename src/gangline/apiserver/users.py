"""Users of the API: names, groups, and the users that every server knows."""

from collections.abc import Mapping

import msgspec

from gangline.api.meta import JSON
from gangline.api.names import subdomain_problems
from gangline.schema.names import dns_label_errors

MASTERS_GROUP, AUTHENTICATED_GROUP = "system:masters", "system:authenticated"
UNAUTHENTICATED_GROUP = "system:unauthenticated"
SERVICE_ACCOUNTS_GROUP = "system:serviceaccounts"
SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"


class UserInfo(msgspec.Struct, frozen=True):
    """A user: who sends a request, or whom an access review asks about."""

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

    @property
    def service_account(self) -> tuple[str, str] | None:
        """Namespace and name of the service account that this user is; None for other users."""
        parts = self.name.removeprefix(SERVICE_ACCOUNT_PREFIX).split(":")
        if not self.name.startswith(SERVICE_ACCOUNT_PREFIX) or len(parts) != 2:
            return None
        namespace, name = parts
        return None if dns_label_errors(namespace) or subdomain_problems(name) else (namespace, name)


ANONYMOUS_USER = UserInfo("system:anonymous", (UNAUTHENTICATED_GROUP,))
SERVER_USER = UserInfo("system:apiserver", (MASTERS_GROUP, AUTHENTICATED_GROUP))
"""The API server itself, and the controllers that share its process."""


def user_info(user: UserInfo) -> JSON:
    """A user in the form of the API."""
    body: JSON = {"username": user.name}
    if user.uid:
        body["uid"] = user.uid
    if user.groups:
        body["groups"] = list(user.groups)
    if user.extra:
        body["extra"] = {key: list(values) for key, values in user.extra.items()}
    return body


def service_account_user_name(namespace: str, name: str) -> str:
    """The name of the user that a service account is."""
    return f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"


def service_account_groups(namespace: str) -> tuple[str, ...]:
    """The groups of every service account of a namespace."""
    return (SERVICE_ACCOUNTS_GROUP, f"{SERVICE_ACCOUNTS_GROUP}:{namespace}")
