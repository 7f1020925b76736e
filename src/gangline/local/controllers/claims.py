"""Claims that are deleted: kept while a pod uses them, as in a cluster, and then gone with their folder."""

import asyncio
import shutil
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

from gangline.api.core import Pod
from gangline.api.meta import JSON, Key, Object, Selector
from gangline.api.scheme import Resource
from gangline.kube.client import Client
from gangline.runtime.cache import Cache
from gangline.runtime.sources import KeyMapFunc

PROTECTION_FINALIZER = "kubernetes.io/pvc-protection"


class ProtectedClaim(Object, frozen=True):
    """A PersistentVolumeClaim, as far as its end is concerned."""

    @property
    def is_terminating(self) -> bool:
        """Whether it waits for us to let it go."""
        return self.metadata.deletion_timestamp is not None and PROTECTION_FINALIZER in self.metadata.finalizers


CLAIMS: Resource[ProtectedClaim] = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", ProtectedClaim)
RAW_PODS: Resource[JSON] = Resource("", "v1", "Pod", "pods", dict[str, Any])


class ClaimProtectionController:
    """A reconciler: the server protects every claim, and somebody must end that."""

    def __init__(self, claims: Cache[ProtectedClaim], client: Client, folder: Path) -> None:
        """`folder` is where the node has the folders of claims."""
        self._claims, self._client, self._folder = claims, client, folder

    async def reconcile(self, key: Key) -> timedelta | None:
        claim = self._claims.get(key)
        if claim is None:
            await asyncio.to_thread(shutil.rmtree, self._folder / f"{key.namespace}_{key.name}", ignore_errors=True)
        elif claim.is_terminating and not await self._is_used(key):
            left = [each for each in claim.metadata.finalizers if each != PROTECTION_FINALIZER]
            body = {"metadata": {"finalizers": left}}
            await self._client.patch(CLAIMS, key, body, resource_version=claim.metadata.resource_version)
        return None

    async def _is_used(self, key: Key) -> bool:
        # Asked of the server: a cache may not have the newest pod yet.
        pods = await self._client.list(RAW_PODS, Selector(key.namespace))
        return any(uses_claim(pod, key.name) for pod in pods.items)


def uses_claim(pod: JSON, claim: str) -> bool:
    """Whether a pod that has not ended has the claim."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return False
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    return any((each.get("persistentVolumeClaim") or {}).get("claimName") == claim for each in volumes)


def terminating_claims(claims: Cache[ProtectedClaim]) -> KeyMapFunc[Pod]:
    """A change of a pod may be what claims of its namespace wait for."""

    def keys(pod: Pod) -> Iterable[Key]:
        namespace = pod.metadata.namespace
        return [each.metadata.key for each in claims if each.is_terminating and each.metadata.namespace == namespace]

    return keys
