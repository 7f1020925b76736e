"""Authentication: the user of a request, by client certificate or by token."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from gangline.apiserver.auth.peer_certificate import PeerCertificate
from gangline.apiserver.auth.service_account_tokens import (
    API_AUDIENCES,
    ServiceAccountTokens,
    TokenError,
    TokenUser,
)
from gangline.apiserver.errors import unauthorized
from gangline.apiserver.users import ANONYMOUS_USER, UserInfo
from gangline.base.clock import SystemClock

MACHINE_CLOCK = SystemClock()
UNKNOWN_TOKEN_MESSAGE = "invalid bearer token"  # noqa: S105 - a message


class Authenticator:
    """Authenticates by a client certificate that TLS has verified, else by token."""

    def __init__(
        self,
        tokens: Mapping[str, UserInfo],
        service_accounts: ServiceAccountTokens | None = None,
        now: Callable[[], datetime] = MACHINE_CLOCK.now,
        *,
        anonymous: bool = True,
    ) -> None:
        """`tokens` are users by their token. Without `service_accounts`, tokens of service accounts are unknown.

        `now` is the time at which a client certificate must be valid. Without `anonymous`, requests without credentials
        are refused.
        """
        # By digest: neither a lookup nor a dump of this table reveals a token.
        self._users = {_digest(token): user for token, user in tokens.items()}
        self._service_accounts, self._now, self._anonymous = service_accounts, now, anonymous

    def authenticate(
        self, authorization: str | None, peer: PeerCertificate | None, warn: Callable[[str], None] = lambda _: None
    ) -> UserInfo:
        """The user of a request, anonymous without credentials. Raises `StatusError` (401) for ones that are not valid.

        `warn` gets a warning for the client. As in kube-apiserver a valid token makes up for a certificate that has expired.
        """
        is_expired = peer is not None and not peer.is_valid(self._now())
        if peer is not None and not is_expired and (user := peer.user) is not None:
            return user
        user = self._token_user(authorization, warn)
        if user is None and (is_expired or not self._anonymous):
            raise unauthorized()
        return user or ANONYMOUS_USER

    def _token_user(self, authorization: str | None, warn: Callable[[str], None]) -> UserInfo | None:
        """The user of the token; None if there is no token. Raises `StatusError` (401) for an unknown one."""
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return None
        try:
            found = self.authenticate_token(token.strip())
        except TokenError:
            raise unauthorized() from None
        if found.warning:
            warn(found.warning)
        return found.user

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
