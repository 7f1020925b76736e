"""Tokens of service accounts: issued by TokenRequest or kept in Secrets, and authenticated on every request.

A signature is verified once. Everything else is checked each time: expiry, audience, and that the service account and
the object that the token is bound to still exist with the same uid.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from gangline.api.meta import JSON, Key
from gangline.apiserver.auth.signing_key import SignatureError, SigningKey
from gangline.apiserver.auth.token_claims import (
    ISSUER,
    AnyClaims,
    BoundRef,
    LegacyTokenClaims,
    TokenClaims,
    account_user_name,
    decode_claims,
)
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.store.paths import object_path
from gangline.apiserver.store.store import Store
from gangline.apiserver.users import AUTHENTICATED_GROUP, UserInfo, service_account_groups
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.schema.go_text import quoted_text

API_AUDIENCES = (ISSUER,)
"""The audiences of this server: tokens for others are refused."""
LEEWAY = timedelta(minutes=1)
"""How far clocks may differ."""
MAX_VERIFIED_TOKENS = 10_000
SERVICE_ACCOUNTS, SECRETS, PODS, NODES = ("", "serviceaccounts"), ("", "secrets"), ("", "pods"), ("", "nodes")
INVALID_SINCE_LABEL = "kubernetes.io/legacy-token-invalid-since"
AUTO_GENERATED_WARNING = (
    "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated "
    "secret-based tokens."
)
"""For the token of a Secret that its service account lists."""
_EXTRA_PREFIX = "authentication.kubernetes.io/"
_INVALIDATED = "service account token has been invalidated"
_LEGACY_INVALIDATED = "Token has been invalidated"


class TokenError(GanglineError):
    """A token is not accepted. The message says why, in kube-apiserver's words, and never shows the token."""


class TokenUser(msgspec.Struct, frozen=True):
    """The user of a token, and the audiences that both the token and the request name."""

    user: UserInfo
    audiences: tuple[str, ...]
    warning: str = ""
    """What the client is warned of; empty: nothing."""


class ServiceAccountTokens:
    """Signs tokens of service accounts and authenticates them."""

    def __init__(
        self, store: Store, key: SigningKey, clock: Clock, on_legacy_use: Callable[[Key], None] = lambda _: None
    ) -> None:
        """`on_legacy_use` is called with the Secret of a legacy token that was accepted."""
        self._store, self._clock, self.key = store, clock, key
        self._on_legacy_use = on_legacy_use
        # The claims of tokens whose signature is right, by the digest of the token; the oldest first.
        self._verified: dict[bytes, AnyClaims] = {}

    def authenticate(self, token: str, audiences: Sequence[str]) -> TokenUser | None:
        """The user of a token; None if it is not of a service account. Raises `TokenError`."""
        claims = self._verified_claims(token)
        if claims is None:
            return None
        token_audiences = claims.aud if isinstance(claims, TokenClaims) else API_AUDIENCES
        common = tuple(audience for audience in token_audiences if audience in audiences)
        if not common:
            texts = [" ".join(map(quoted_text, names)) for names in (token_audiences, audiences)]
            raise TokenError(f"token audiences [{texts[0]}] is invalid for the target audiences [{texts[1]}]")
        if isinstance(claims, TokenClaims):
            return TokenUser(self._bound_user(claims), common)
        account = self._legacy_account(claims, token)
        groups = (*service_account_groups(claims.namespace), AUTHENTICATED_GROUP)
        is_generated = any(secret.get("name") == claims.secret for secret in account.get("secrets") or ())
        warning = AUTO_GENERATED_WARNING if is_generated else ""
        return TokenUser(UserInfo(claims.sub, groups, claims.account_uid), common, warning)

    def _verified_claims(self, token: str) -> AnyClaims | None:
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        claims = self._verified.get(digest)
        if claims is not None:
            return claims
        claims = decode_claims(token)
        if claims is None:
            return None
        try:
            self.key.verify(token)
        except SignatureError as error:
            raise TokenError(str(error)) from None
        except (ValueError, msgspec.DecodeError):
            return None
        if len(self._verified) >= MAX_VERIFIED_TOKENS:
            del self._verified[next(iter(self._verified))]
        self._verified[digest] = claims
        return claims

    # Tokens of TokenRequest

    def _bound_user(self, claims: TokenClaims) -> UserInfo:
        now = self._clock.now()
        _check_times(claims, now)
        names = claims.kubernetes
        account = self._metadata(SERVICE_ACCOUNTS, names.namespace, names.serviceaccount.name)
        if account is None:
            raise TokenError(f'serviceaccounts "{names.serviceaccount.name}" not found')
        if account["uid"] != names.serviceaccount.uid:
            raise TokenError(
                f"service account UID ({account['uid']}) does not match claim ({names.serviceaccount.uid})"
            )
        if _is_long_deleted(account, now):
            raise TokenError(f"service account {names.namespace}/{names.serviceaccount.name} has been deleted")
        if names.secret is not None:
            self._check_bound("secret", SECRETS, names.namespace, names.secret, now)
        if names.pod is not None:
            self._check_bound("pod", PODS, names.namespace, names.pod, now)
        elif names.node is not None:
            self._check_bound("node", NODES, "", names.node, now)
        return UserInfo(
            account_user_name(names.namespace, names.serviceaccount.name),
            (*service_account_groups(names.namespace), AUTHENTICATED_GROUP),
            names.serviceaccount.uid,
            _user_extra(claims),
        )

    def _check_bound(
        self, kind: str, resource: tuple[str, str], namespace: str, reference: BoundRef, now: datetime
    ) -> None:
        metadata = self._metadata(resource, namespace, reference.name)
        if metadata is None:
            raise TokenError(_INVALIDATED)
        if metadata["uid"] != reference.uid:
            raise TokenError(
                f"{kind} UID ({metadata['uid']}) does not match service account {kind} ref claim ({reference.uid})"
            )
        if _is_long_deleted(metadata, now):
            raise TokenError(_INVALIDATED)

    # Tokens of Secrets

    def _legacy_account(self, claims: LegacyTokenClaims, token: str) -> JSON:
        _check_legacy_claims(claims)
        secret = self._object(SECRETS, claims.namespace, claims.secret)
        if secret is None or "deletionTimestamp" in secret["metadata"]:
            raise TokenError(_LEGACY_INVALIDATED)
        if not _has_token(secret, token):
            raise TokenError("Token does not match server's copy")
        account = self._object(SERVICE_ACCOUNTS, claims.namespace, claims.account)
        if account is None:
            raise TokenError(f'serviceaccounts "{claims.account}" not found')
        uid = account["metadata"]["uid"]
        if "deletionTimestamp" in account["metadata"]:
            raise TokenError(f"ServiceAccount {claims.namespace}/{claims.account} has been deleted")
        if uid != claims.account_uid:
            raise TokenError(f"ServiceAccount UID ({uid}) does not match claim ({claims.account_uid})")
        self._on_legacy_use(Key(claims.namespace, claims.secret))
        if (secret["metadata"].get("labels") or {}).get(INVALID_SINCE_LABEL):
            names = f"{claims.namespace}/{claims.secret} for service account {claims.namespace}/{claims.account}"
            raise TokenError(
                f"the token in secret {names} has been marked invalid. Use tokens from the TokenRequest API or "
                f"manually created secret-based tokens, or remove the '{INVALID_SINCE_LABEL}' label from the secret "
                "to temporarily allow use of this token"
            )
        return account

    # Objects

    def _object(self, resource: tuple[str, str], namespace: str, name: str) -> JSON | None:
        record = self._store.get(object_path(*resource, namespace, name)) if "/" not in namespace + name else None
        return None if record is None else decode_record(record)

    def _metadata(self, resource: tuple[str, str], namespace: str, name: str) -> JSON | None:
        record = self._store.get(object_path(*resource, namespace, name)) if "/" not in namespace + name else None
        return None if record is None else msgspec.json.decode(record.data, type=_ObjectHead).metadata


class _ObjectHead(msgspec.Struct):
    """The part of an object that authentication reads. The rest is not decoded: this is done for every request."""

    metadata: JSON


def _check_times(claims: TokenClaims, now: datetime) -> None:
    early, late = (now - LEEWAY).timestamp(), (now + LEEWAY).timestamp()
    if claims.nbf > late:
        raise TokenError("service account token is not valid yet")
    if claims.exp < early:
        raise TokenError("service account token has expired")
    if claims.iat > late:
        raise TokenError("service account token is issued in the future")


def _is_long_deleted(metadata: JSON, now: datetime) -> bool:
    deleted = metadata.get("deletionTimestamp")
    return deleted is not None and datetime.fromisoformat(deleted) < now - LEEWAY


def _user_extra(claims: TokenClaims) -> dict[str, tuple[str, ...]]:
    names = claims.kubernetes
    values = {"credential-id": f"JTI={claims.jti}" if claims.jti else ""}
    if names.pod is not None and names.pod.name and names.pod.uid:
        values |= {"pod-name": names.pod.name, "pod-uid": names.pod.uid}
    if names.node is not None and names.node.name:
        values |= {"node-name": names.node.name, "node-uid": names.node.uid}
    return {_EXTRA_PREFIX + name: (value,) for name, value in sorted(values.items()) if value}


def _check_legacy_claims(claims: LegacyTokenClaims) -> None:
    required = (
        ("sub", claims.sub),
        ("namespace", claims.namespace),
        ("secretName", claims.secret),
        ("serviceAccountName", claims.account),
        ("serviceAccountUID", claims.account_uid),
    )
    for name, value in required:
        if not value:
            raise TokenError(f"{name} claim is missing")
    if claims.sub != account_user_name(claims.namespace, claims.account):
        raise TokenError("sub claim is invalid")


def _has_token(secret: JSON, token: str) -> bool:
    stored = (secret.get("data") or {}).get("token") or ""
    return hmac.compare_digest(base64.b64decode(stored), token.encode())
