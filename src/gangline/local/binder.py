"""Binds pods of `default-scheduler` to the one node, so that plain pods run."""

from datetime import timedelta

import msgspec

from gangline.api.core import Pod
from gangline.api.meta import Key
from gangline.kube.client import Client
from gangline.kube.transport import Request
from gangline.local.node.node import NAME
from gangline.runtime.cache import Cache


class Binder:
    """A reconciler: an unbound pod gets the node."""

    def __init__(self, pods: Cache[Pod], client: Client) -> None:
        self._pods, self._client = pods, client

    async def reconcile(self, key: Key) -> timedelta | None:
        pod = self._pods.get(key)
        if pod is None or pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
            return None
        body = {"metadata": {"name": key.name}, "target": {"kind": "Node", "name": NAME}}
        target = f"/api/v1/namespaces/{key.namespace}/pods/{key.name}/binding"
        await self._client.call(
            Request("POST", target, body=msgspec.json.encode(body), content_type="application/json")
        )
        return None
