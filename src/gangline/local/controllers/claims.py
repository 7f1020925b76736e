"""Deletion of PersistentVolumeClaims with their folders: delayed while a pod uses the claim, as in a cluster."""

import asyncio
import shutil
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from gangline.api.core import Pod, is_terminal_phase
from gangline.api.meta import JSON, Key, Object, Selector
from gangline.api.scheme import Resource
from gangline.kube.client import Client
from gangline.node.checkpoint import StateFolder
from gangline.runtime.cache import Cache
from gangline.runtime.sources import KeyMapFunc

PROTECTION_FINALIZER = "kubernetes.io/pvc-protection"


class ProtectedClaim(Object, frozen=True):
    """The metadata of a PersistentVolumeClaim."""

    @property
    def is_terminating(self) -> bool:
        """Whether the claim is being deleted and waits for the removal of our finalizer."""
        return self.metadata.deletion_timestamp is not None and PROTECTION_FINALIZER in self.metadata.finalizers


CLAIMS: Resource[ProtectedClaim] = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", ProtectedClaim)
RAW_PODS: Resource[JSON] = Resource("", "v1", "Pod", "pods", dict[str, Any])


class ClaimProtectionController:
    """Removes the finalizer, which the server puts on every claim, from a deleted claim that no pod uses."""

    def __init__(self, claims: Cache[ProtectedClaim], client: Client, state: StateFolder) -> None:
        """`state` has the folders of claims."""
        self._claims, self._client, self._state = claims, client, state

    async def reconcile(self, key: Key) -> timedelta | None:
        claim = self._claims.get(key)
        if claim is None:
            await asyncio.to_thread(shutil.rmtree, self._state.claim_folder(key), ignore_errors=True)
        elif claim.is_terminating and not await self._is_used(key):
            remaining = [name for name in claim.metadata.finalizers if name != PROTECTION_FINALIZER]
            body = {"metadata": {"finalizers": remaining}}
            await self._client.patch(CLAIMS, key, body, resource_version=claim.metadata.resource_version)
        return None

    async def _is_used(self, key: Key) -> bool:
        # Listed from the server: a cache may not have the newest pod yet.
        pods = await self._client.list(RAW_PODS, Selector(key.namespace))
        return any(uses_claim(pod, key.name) for pod in pods.items)


def uses_claim(pod: JSON, claim: str) -> bool:
    """Whether the pod has not finished and has a volume of the claim."""
    if is_terminal_phase((pod.get("status") or {}).get("phase", "")):
        return False
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    return any((volume.get("persistentVolumeClaim") or {}).get("claimName") == claim for volume in volumes)


def terminating_claims(claims: Cache[ProtectedClaim]) -> KeyMapFunc[Pod]:
    """Maps a changed pod to the terminating claims of its namespace, which it may not use any more."""

    def keys(pod: Pod) -> Iterable[Key]:
        namespace = pod.metadata.namespace
        return [
            claim.metadata.key for claim in claims if claim.is_terminating and claim.metadata.namespace == namespace
        ]

    return keys
