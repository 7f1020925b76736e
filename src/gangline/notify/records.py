"""Where the journal of notifications is kept: a ConfigMap beside the operator's Lease, or the memory of a single run."""

from collections.abc import Callable, Mapping
from typing import Protocol

from gangline.api.core import ConfigMap
from gangline.api.meta import JSON, Key
from gangline.kube.client import Client
from gangline.kube.errors import AlreadyExists, NotFound


class JournalRecords(Protocol):
    """Keeps the records of a journal. Both methods raise `KubeError`."""

    async def load(self) -> Mapping[str, str]: ...
    async def save(self, changes: Mapping[str, str | None], all_records: Callable[[], Mapping[str, str]]) -> None:
        """Write the records that changed; None deletes one. `all_records` is for a store that has lost its records."""
        ...


class ConfigMapRecords:
    """The records in a ConfigMap, which needs the rights to create, get and patch it.

    Only the leader writes. Each write changes the records of some jobs and leaves the others, so a late write of an
    earlier leader can bring back an older record: then a notification is delivered again, and none is lost.
    """

    def __init__(self, client: Client, key: Key) -> None:
        self._client, self._key = client, key

    async def load(self) -> Mapping[str, str]:
        try:
            return (await self._client.get(ConfigMap, self._key)).data
        except NotFound:
            return {}

    async def save(self, changes: Mapping[str, str | None], all_records: Callable[[], Mapping[str, str]]) -> None:
        try:
            await self._patch(changes)
        except NotFound:
            metadata: JSON = {"name": self._key.name, "namespace": self._key.namespace}
            try:
                await self._client.create(ConfigMap, {"metadata": metadata, "data": dict(all_records())})
            except AlreadyExists:
                # An earlier request succeeded, and its response was lost.
                await self._patch(changes)

    async def _patch(self, changes: Mapping[str, str | None]) -> None:
        await self._client.patch(ConfigMap, self._key, {"data": dict(changes)})


class MemoryRecords:
    """The records of a plane that ends with its process."""

    def __init__(self) -> None:
        self.records: dict[str, str] = {}

    async def load(self) -> Mapping[str, str]:
        return dict(self.records)

    async def save(self, changes: Mapping[str, str | None], all_records: Callable[[], Mapping[str, str]]) -> None:
        for name, text in changes.items():
            if text is None:
                self.records.pop(name, None)
            else:
                self.records[name] = text
