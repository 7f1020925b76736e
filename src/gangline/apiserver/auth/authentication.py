"""Authentication: the user of a request, by client certificate or by token."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from gangline.apiserver.auth.service_account_tokens import (
    API_AUDIENCES,
    ServiceAccountTokens,
    TokenError,
    TokenUser,
)
from gangline.apiserver.errors import unauthorized
from gangline.apiserver.users import ANONYMOUS_USER, AUTHENTICATED_GROUP, UserInfo

UNKNOWN_TOKEN_MESSAGE = "invalid bearer token"  # noqa: S105 - a message


class Authenticator:
    """Authenticates by token, or by a client certificate that TLS has already verified."""

    def __init__(self, tokens: Mapping[str, UserInfo], service_accounts: ServiceAccountTokens | None = None) -> None:
        """`tokens` are users by their token. Without `service_accounts`, tokens of service accounts are unknown."""
        # By digest: neither a lookup nor a dump of this table reveals a token.
        self._users = {_digest(token): user for token, user in tokens.items()}
        self._service_accounts = service_accounts

    def authenticate(self, authorization: str | None, peer: Mapping[str, Any] | None) -> UserInfo:
        """The user of a request, anonymous without credentials. Raises `StatusError` (401) for an unknown token."""
        if peer:
            return _certificate_user(peer)
        if not authorization:
            return ANONYMOUS_USER
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return ANONYMOUS_USER
        try:
            return self.authenticate_token(token.strip()).user
        except TokenError:
            raise unauthorized() from None

    def authenticate_token(self, token: str, audiences: Sequence[str] = API_AUDIENCES) -> TokenUser:
        """The user of a token that is meant for one of the audiences. Raises `TokenError`."""
        user = self._users.get(_digest(token))
        if user is not None:
            # These tokens name no audience: they are for this server only.
            common = tuple(audience for audience in API_AUDIENCES if audience in audiences)
            if not common:
                raise TokenError(UNKNOWN_TOKEN_MESSAGE)
            return TokenUser(user, common)
        try:
            account = None if self._service_accounts is None else self._service_accounts.authenticate(token, audiences)
        except TokenError as error:
            raise TokenError(f"[{UNKNOWN_TOKEN_MESSAGE}, {error}]") from None
        if account is None:
            raise TokenError(UNKNOWN_TOKEN_MESSAGE)
        return account


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _certificate_user(peer: Mapping[str, Any]) -> UserInfo:
    subject = [pair for part in peer.get("subject", ()) for pair in part]
    name = next((value for key, value in subject if key == "commonName"), "")
    groups = tuple(value for key, value in subject if key == "organizationName")
    return UserInfo(name, (*groups, AUTHENTICATED_GROUP))
