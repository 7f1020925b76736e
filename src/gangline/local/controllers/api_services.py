"""APIServices: whether the servers behind them are available, and which resources they serve."""

from collections.abc import Callable, Sequence
from datetime import timedelta

import aiohttp
import msgspec

from gangline.api.meta import JSON, Key
from gangline.apiserver.aggregation.api_services import API_SERVICES, RemoteGroup, remote_group, remote_resources
from gangline.apiserver.aggregation.proxy import AggregationProxy
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.resources import ApiResource
from gangline.apiserver.registry.service_address import ServiceUnavailable
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.registry.writes import WriteContext
from gangline.apiserver.store.paths import collection_prefix, split_path
from gangline.apiserver.users import AUTHENTICATED_GROUP, MASTERS_GROUP, UserInfo
from gangline.base.clock import Clock
from gangline.local.controllers.key_worker import KeyWorker
from gangline.local.registry_writes import edit_object, ignore_status, storage_kind

PREFIX = collection_prefix(*API_SERVICES)
STATUS_CALL = WriteContext(field_manager="kube-aggregator", subresource="status")
AGGREGATOR = UserInfo("system:kube-aggregator", (MASTERS_GROUP, AUTHENTICATED_GROUP))
CHECK_INTERVAL, RETRY_INTERVAL = timedelta(seconds=30), timedelta(seconds=2)
CHECK_SECONDS = 5.0

PublishFunc = Callable[[Sequence[ApiResource]], object]
"""Called with the resources of all servers when they change."""


class ApiServiceController:
    """Asks the server of each APIService for its resources, regularly, and writes whether it answers."""

    def __init__(self, registry: Registry, proxy: AggregationProxy, publish: PublishFunc, clock: Clock) -> None:
        self._registry, self._proxy, self._publish, self._clock = registry, proxy, publish, clock
        self._resources: dict[str, Sequence[ApiResource]] = {}
        self._worker = KeyWorker("check of an APIService", self._check, clock)

    async def run(self) -> None:
        """Check at the start, after every change and now and then, until cancelled."""
        await self._worker.follow_objects(self._registry.store, PREFIX)

    async def _check(self, path: str) -> None:
        record = self._registry.store.get(path)
        name = split_path(path).name
        obj = None if record is None else decode_record(record)
        remote = None if obj is None else remote_group(obj)
        if obj is None or remote is None:
            self._set_resources(name, ())
            return
        reason, message = await self._discover(remote)
        await self._write_condition(obj, reason, message)
        available = reason == "Passed"
        self._worker.add(path, after=CHECK_INTERVAL if available else RETRY_INTERVAL)

    async def _discover(self, remote: RemoteGroup) -> tuple[str, str]:
        """Read the resources of a server. Returns the reason and the message of the condition."""
        try:
            status, body = await self._proxy.get(remote, remote.path, AGGREGATOR, CHECK_SECONDS)
            if status == 200:
                self._set_resources(remote.name, remote_resources(remote, msgspec.json.decode(body)))
                return "Passed", "all checks passed"
            why = f"bad status from https://{remote.host}:{remote.port}{remote.path}: {status}"
        except ServiceUnavailable as error:
            text = str(error)
            reason = "ServiceNotFound" if "not found" in text else "MissingEndpoints"
            self._set_resources(remote.name, ())
            return reason, text
        except (aiohttp.ClientError, OSError, ValueError) as error:
            why = f"failing or missing response from https://{remote.host}:{remote.port}{remote.path}: {error}"
        self._set_resources(remote.name, ())
        return "FailedDiscoveryCheck", why

    def _set_resources(self, name: str, resources: Sequence[ApiResource]) -> None:
        if tuple(self._resources.get(name, ())) == tuple(resources):
            return
        self._resources[name] = resources
        self._publish([item for key in sorted(self._resources) for item in self._resources[key]])

    async def _write_condition(self, obj: JSON, reason: str, message: str) -> None:
        status = "True" if reason == "Passed" else "False"
        conditions = (obj.get("status") or {}).get("conditions") or []
        old: JSON = next((item for item in conditions if item["type"] == "Available"), {})
        if (old.get("status"), old.get("reason"), old.get("message")) == (status, reason, message):
            return
        now = self._registry.timestamp()
        since = old["lastTransitionTime"] if old.get("status") == status else now
        condition = {
            "type": "Available",
            "status": status,
            "lastTransitionTime": since,
            "reason": reason,
            "message": message,
        }

        def edit(current: JSON) -> None:
            others = [
                item for item in (current.get("status") or {}).get("conditions") or () if item["type"] != "Available"
            ]
            current["status"] = {**(current.get("status") or {}), "conditions": [*others, condition]}

        kind, metadata = storage_kind(self._registry, *API_SERVICES), obj["metadata"]
        with ignore_status(404, 409):  # it is deleted, or a later change is waiting
            await edit_object(self._registry, STATUS_CALL, kind, Key("", metadata["name"]), metadata["uid"], edit)
