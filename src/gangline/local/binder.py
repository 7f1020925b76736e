"""Binds pods of `default-scheduler` to the one node, so that plain pods run."""

from datetime import timedelta

from gangline.api.core import Pod
from gangline.api.meta import Key
from gangline.kube.client import Client
from gangline.kube.pods import Pods
from gangline.local.node.node import NAME
from gangline.runtime.cache import Cache


class Binder:
    """A reconciler: an unbound pod gets the node."""

    def __init__(self, pods: Cache[Pod], client: Client) -> None:
        self._pods, self._api = pods, Pods(client)

    async def reconcile(self, key: Key) -> timedelta | None:
        pod = self._pods.get(key)
        if pod is None or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
            return None
        await self._api.bind(key, NAME, uid=pod.metadata.uid)
        return None
