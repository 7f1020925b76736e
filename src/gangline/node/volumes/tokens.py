"""Tokens of service accounts in volumes: requested for a pod, bound to it, and renewed in time, as kubelet does it."""

import random
from datetime import datetime, timedelta
from typing import Protocol

import msgspec

from gangline.api.core import ServiceAccount
from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.kube.client import Client
from gangline.kube.paths import object_path
from gangline.kube.transport.api import Request
from gangline.node.pod_types import RunPod, TokenSource, Volume
from gangline.node.volumes.files import DEFAULT_FILE_MODE, VolumeFile

SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts", ServiceAccount)
LONGEST_USE = timedelta(hours=24)
"""A token is renewed after this time, however long it lives."""
RENEWED_SHARE = 0.2
"""The share of its life that is left when a token is renewed."""
LONGEST_JITTER = timedelta(seconds=10)
RETRY_INTERVAL = timedelta(seconds=10)


class TokenRequester(Protocol):
    """Requests tokens from the API server."""

    async def request_token(self, account: Key, spec: JSON) -> JSON:
        """The TokenRequest with its status. Raises `KubeError`."""
        ...


class ApiTokens:
    """Requests tokens by the API."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def request_token(self, account: Key, spec: JSON) -> JSON:
        body = msgspec.json.encode({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
        request = Request("POST", object_path(SERVICE_ACCOUNTS, account, "token"), (), body, "application/json")
        answer: JSON = msgspec.json.decode(await self._client.requests.call(request))
        return answer


class PodToken(msgspec.Struct, frozen=True):
    """A token, and when it is to be renewed. The repr does not show the token."""

    text: str
    renew_at: datetime

    def __repr__(self) -> str:
        return f"PodToken(renew_at={self.renew_at})"


class TokenManager:
    """The tokens of all pods of a node."""

    def __init__(self, requester: TokenRequester, clock: Clock) -> None:
        self._requester, self._clock = requester, clock
        # By pod (its uid) and source.
        self._tokens: dict[str, dict[TokenSource, PodToken]] = {}

    async def files(self, volume: Volume, pod: RunPod) -> list[VolumeFile]:
        """The token files of a volume. A token that is due is requested again. Raises `KubeError`."""
        if volume.projected is None:
            return []
        sources = [source.service_account_token for source in volume.projected.sources]
        mode = DEFAULT_FILE_MODE if volume.projected.default_mode is None else volume.projected.default_mode
        return [
            VolumeFile(source.path, (await self._token(source, pod)).text.encode(), mode)
            for source in sources
            if source is not None
        ]

    def renewal_delay(self, pod: RunPod) -> timedelta | None:
        """How long until a token of the pod is to be renewed; None if it has no token."""
        tokens = self._tokens.get(pod.metadata.uid)
        if not tokens:
            return None
        due = min(token.renew_at for token in tokens.values()) - self._clock.now()
        # A renewal that failed is tried again a little later.
        return due if due > timedelta() else RETRY_INTERVAL

    def forget(self, uid: str) -> None:
        """Forget the tokens of a pod that has ended."""
        self._tokens.pop(uid, None)

    async def _token(self, source: TokenSource, pod: RunPod) -> PodToken:
        tokens = self._tokens.setdefault(pod.metadata.uid, {})
        current = tokens.get(source)
        if current is not None and self._clock.now() < current.renew_at:
            return current
        now = self._clock.now()
        account = Key(pod.metadata.namespace, pod.spec.service_account_name or "default")
        answer = await self._requester.request_token(account, _request_spec(source, pod))
        lifetime = timedelta(seconds=answer["spec"]["expirationSeconds"])
        token = tokens[source] = PodToken(answer["status"]["token"], _renewal_time(now, lifetime))
        return token


def _request_spec(source: TokenSource, pod: RunPod) -> JSON:
    reference = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}
    audiences = [source.audience] if source.audience else []
    return {"audiences": audiences, "expirationSeconds": source.expiration_seconds, "boundObjectRef": reference}


def _renewal_time(issued: datetime, lifetime: timedelta) -> datetime:
    # Not all pods that started together at once.
    jitter = LONGEST_JITTER * random.random()  # noqa: S311 - not a secret
    return issued + min(LONGEST_USE, lifetime * (1 - RENEWED_SHARE)) - jitter
