"""Which groups another server serves, by the APIServices of a store."""

from collections.abc import Sequence

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.registry.resources import ApiResource, Subresource
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.store.paths import collection_prefix
from gangline.apiserver.store.store import Store
from gangline.apiserver.store.watches import StoreWatch

API_SERVICES = ("apiregistration.k8s.io", "apiservices")


class RemoteGroup(msgspec.Struct, frozen=True):
    """A version of a group, and the server behind it."""

    name: str
    group: str
    version: str
    namespace: str
    service: str
    port: int
    ca_bundle: str
    """PEM in base64; empty: the CAs of the machine."""
    verifies: bool = True

    @property
    def host(self) -> str:
        """The name of the Service, for which the server has a certificate."""
        return f"{self.service}.{self.namespace}.svc"

    @property
    def path(self) -> str:
        return f"/apis/{self.group}/{self.version}"


def remote_group(api_service: JSON) -> RemoteGroup | None:
    """The server of an APIService; None for a group that this server serves itself."""
    spec = api_service["spec"]
    service = spec.get("service")
    if service is None or not spec.get("group"):
        return None
    return RemoteGroup(
        api_service["metadata"]["name"],
        spec["group"],
        spec["version"],
        service["namespace"],
        service["name"],
        service.get("port", 443),
        spec.get("caBundle") or "",
        not spec.get("insecureSkipTLSVerify"),
    )


class RemoteGroups:
    """The groups of other servers. It follows the store: every answer is of the newest revision."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watch: StoreWatch | None = None
        self._groups: dict[tuple[str, str], RemoteGroup] = {}

    def find(self, group: str, version: str) -> RemoteGroup | None:
        self._follow()
        return self._groups.get((group, version)) if self._groups else None

    def _follow(self) -> None:
        changes = self._watch.pending() if self._watch is not None else None
        if changes == ():
            return
        prefix = collection_prefix(*API_SERVICES)
        snapshot = self._store.range(prefix)
        if changes is None:
            self._watch = self._store.watch(prefix, after=snapshot.revision)
        found = (remote_group(decode_record(record)) for record in snapshot.records)
        self._groups = {(item.group, item.version): item for item in found if item is not None}


def remote_resources(remote: RemoteGroup, listed: JSON) -> Sequence[ApiResource]:
    """The resources in the APIResourceList of another server."""
    entries = [item for item in listed.get("resources") or () if isinstance(item, dict) and item.get("name")]
    parts: dict[str, list[Subresource]] = {}
    for item in entries:
        plural, slash, name = item["name"].partition("/")
        if slash:
            kind = (item.get("kind", ""), item.get("group", ""), item.get("version", ""))
            parts.setdefault(plural, []).append(Subresource(name, *kind, tuple(item.get("verbs") or ())))
    return [
        ApiResource(
            remote.group,
            remote.version,
            item.get("kind", ""),
            item["name"],
            item.get("singularName", ""),
            namespaced=bool(item.get("namespaced")),
            verbs=tuple(item.get("verbs") or ()),
            short_names=tuple(item.get("shortNames") or ()),
            categories=tuple(item.get("categories") or ()),
            subresources=tuple(parts.get(item["name"], ())),
            custom=True,
        )
        for item in entries
        if "/" not in item["name"]
    ]
