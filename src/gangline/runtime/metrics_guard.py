"""Decides who may read `/metrics`, as for the metrics of controller-runtime and of Kubernetes' own components.

The API server says whose token it is (TokenReview), and whether that user may `get` the path (SubjectAccessReview).
"""

import asyncio
import hashlib
import logging
import ssl
from collections import OrderedDict
from datetime import timedelta
from typing import Any, NamedTuple

from gangline.api.meta import JSON
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.kube.client import Client
from gangline.kube.errors import KubeError

log = logging.getLogger(__name__)

TOKEN_REVIEWS: Resource[JSON] = Resource(
    "authentication.k8s.io", "v1", "TokenReview", "tokenreviews", dict[str, Any], namespaced=False
)
ACCESS_REVIEWS: Resource[JSON] = Resource(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", dict[str, Any], namespaced=False
)

ALLOWED_FOR, DENIED_FOR = timedelta(minutes=1), timedelta(seconds=10)
"""How long an answer holds: a token that is revoked reads metrics for at most a minute."""
MAX_CACHED = 1000
MAX_REVIEWS = 4
"""Reviews at the same time: wrong tokens must not load the API server."""


class AccessDecision(NamedTuple):
    """The HTTP status for a token: 200, 401, 403, or 503 if the API server did not answer; with the reason."""

    status: int
    reason: str = ""


NO_TOKEN = AccessDecision(401, "a bearer token is needed")
UNKNOWN_TOKEN = AccessDecision(401, "the token is not valid")
NO_ANSWER = AccessDecision(503, "the API server cannot be asked about the token")


class MetricsGuard:
    """Decides about requests by their `Authorization` header. Decisions are cached for a short time."""

    def __init__(self, client: Client, tls: ssl.SSLContext, clock: Clock, path: str = "/metrics") -> None:
        """`tls` is what the metrics are served with: tokens are not sent in the clear."""
        self._client, self.tls, self._clock, self._path = client, tls, clock, path
        # Digest of a token -> decision, and until when it holds. Tokens themselves are not kept.
        self._decisions: OrderedDict[bytes, tuple[AccessDecision, float]] = OrderedDict()
        self._reviews = asyncio.Semaphore(MAX_REVIEWS)

    async def decide(self, authorization: str) -> AccessDecision:
        """Whether the sender may read the metrics."""
        scheme, _, token = authorization.strip().partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return NO_TOKEN
        digest = hashlib.sha256(token.encode(errors="replace")).digest()
        decision = self._cached(digest)
        if decision is None:
            async with self._reviews:
                decision = self._cached(digest) or await self._reviewed(digest, token)
        return decision

    def _cached(self, digest: bytes) -> AccessDecision | None:
        decision, valid_until = self._decisions.get(digest, (None, 0.0))
        return decision if self._clock.monotonic() < valid_until else None

    async def _reviewed(self, digest: bytes, token: str) -> AccessDecision:
        try:
            decision = await self._review(token)
        except KubeError as error:
            log.warning("access to the metrics cannot be checked", extra={"error": str(error)})
            return NO_ANSWER
        holds_for = ALLOWED_FOR if decision.status == 200 else DENIED_FOR
        self._decisions[digest] = (decision, self._clock.monotonic() + holds_for.total_seconds())
        self._decisions.move_to_end(digest)
        while len(self._decisions) > MAX_CACHED:
            self._decisions.popitem(last=False)
        return decision

    async def _review(self, token: str) -> AccessDecision:
        status = (await self._client.create(TOKEN_REVIEWS, {"spec": {"token": token}})).get("status") or {}
        user = status.get("user") or {}
        if not status.get("authenticated") or not user.get("username"):
            return UNKNOWN_TOKEN
        spec: JSON = {"user": user["username"], "nonResourceAttributes": {"path": self._path, "verb": "get"}}
        spec |= {field: user[field] for field in ("uid", "groups", "extra") if user.get(field)}
        answer = await self._client.create(ACCESS_REVIEWS, {"spec": spec})
        if (answer.get("status") or {}).get("allowed"):
            return AccessDecision(200)
        return AccessDecision(403, f'user "{user["username"]}" cannot get path "{self._path}"')
