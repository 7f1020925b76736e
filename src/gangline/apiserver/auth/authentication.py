"""Authentication: the user of a request, by client certificate or by token."""

import hmac
from collections.abc import Mapping
from typing import Any

from gangline.apiserver.errors import unauthorized
from gangline.apiserver.users import ANONYMOUS_USER, AUTHENTICATED_GROUP, UserInfo


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
