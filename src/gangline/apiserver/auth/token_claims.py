"""The claims in tokens of service accounts: those of TokenRequest, and those of Secrets (legacy tokens)."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gangline.apiserver.auth.signing_key import decode_part
from gangline.apiserver.users import SERVICE_ACCOUNT_PREFIX

ISSUER = "https://kubernetes.default.svc"
"""The issuer of our tokens, and their audience if a request names none."""
LEGACY_ISSUER = "kubernetes/serviceaccount"
_LEGACY_PREFIX = "kubernetes.io/serviceaccount/"


class BoundRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """An object in the claims."""

    name: str = ""
    uid: str = ""


class KubernetesClaims(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whose token it is, and the object that it is bound to."""

    namespace: str = ""
    serviceaccount: BoundRef = BoundRef()
    pod: BoundRef | None = None
    secret: BoundRef | None = None
    node: BoundRef | None = None
    warnafter: int | None = None


class TokenClaims(msgspec.Struct, frozen=True):
    """The claims of a token that was requested."""

    iss: str
    sub: str
    exp: int
    iat: int
    nbf: int
    aud: tuple[str, ...]
    jti: str = ""
    kubernetes: KubernetesClaims = msgspec.field(name="kubernetes.io", default=KubernetesClaims())


class LegacyTokenClaims(msgspec.Struct, frozen=True):
    """The claims of a token in a Secret. It does not expire."""

    iss: str
    sub: str
    namespace: str = msgspec.field(name=f"{_LEGACY_PREFIX}namespace", default="")
    secret: str = msgspec.field(name=f"{_LEGACY_PREFIX}secret.name", default="")
    account: str = msgspec.field(name=f"{_LEGACY_PREFIX}service-account.name", default="")
    account_uid: str = msgspec.field(name=f"{_LEGACY_PREFIX}service-account.uid", default="")


AnyClaims = TokenClaims | LegacyTokenClaims


def account_user_name(namespace: str, account: str) -> str:
    """The user name of a service account."""
    return f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{account}"


def decode_claims(token: str) -> AnyClaims | None:
    """The claims of a token of one of our issuers, whose signature is not verified yet; None for other texts."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims: dict[str, Any] = decode_part(parts[1])
        decode_part(parts[0])
        models: Mapping[Any, type[AnyClaims]] = {ISSUER: TokenClaims, LEGACY_ISSUER: LegacyTokenClaims}
        model = models.get(claims.get("iss"))
        return None if model is None else msgspec.convert(claims, model)
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError):
        return None
