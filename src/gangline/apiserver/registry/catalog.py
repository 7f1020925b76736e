"""The catalog of served kinds: for each its resource, types, strategy and storage version."""

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet

import msgspec

from gangline.api.meta import JSON
from gangline.api.selectors import SelectableFields
from gangline.apiserver.apply.managed_kind import ManagedKind, managed_kind
from gangline.apiserver.kinds.machinery.strategy import Strategy
from gangline.apiserver.registry.object_kind import ObjectKind
from gangline.apiserver.registry.resources import ApiResource
from gangline.schema.typed.strict_decoding import DecodingChecker
from gangline.schema.typed.types import TypeNode

Converter = Callable[[JSON], JSON]
_KindKey = tuple[str, str, str]
"""Group, version and plural."""
FieldPath = tuple[str, ...]
"""The names of the fields on the way from the object to a field."""


class ScalePaths(msgspec.Struct, frozen=True):
    """The fields that the Scale of an object shows."""

    spec: FieldPath = ("spec", "replicas")
    status: FieldPath = ("status", "replicas")
    selector: FieldPath = ("spec", "selector")
    """A label selector, or its text. Empty if the kind has none."""


class ServedKind(msgspec.Struct, frozen=True):
    """One served version of a kind."""

    resource: ApiResource
    type: TypeNode
    strategy: Strategy
    object_kind: ObjectKind
    selectable_fields: SelectableFields
    decoder: DecodingChecker | None = None
    """Checks the JSON of a built-in kind. None for custom resources, which are checked by their schema."""
    group_override: str | None = None
    """The group that objects are stored under, if it is not the group of the resource."""
    from_storage: Converter | None = None
    """Converts a stored object to this version. None: both are the same."""
    to_storage: Converter | None = None
    """Converts an object of this version to the stored version. None: both are the same."""
    scale_paths: ScalePaths = ScalePaths()
    """Used if `scale` is a subresource."""
    deprecation_warning: str = ""
    """A warning for every request of this version; empty if it is not deprecated."""
    _managed_kinds: dict[str, ManagedKind] = {}
    custom: bool = False
    """Defined by a CRD: list items carry their kind, strategic merge patch is refused, lists say `continue: ""`."""
    crd_uid: str = ""
    """The uid of that CRD."""

    def managed_kind(self, subresource: str = "") -> ManagedKind:
        """The tracking of field ownership for writes of the object, or of one of its subresources. Cached."""
        kind = self._managed_kinds.get(subresource)
        if kind is None:
            kind = self._managed_kinds[subresource] = managed_kind(
                self.resource.api_version,
                self.resource.kind,
                self.type,
                subresource=subresource,
                custom=self.custom,
                status=self.has_status,
            )
        return kind

    def served_bytes(self, data: bytes) -> bytes:
        """The bytes of a stored object, converted to this version."""
        if self.from_storage is None:
            return data
        return msgspec.json.encode(self.from_storage(msgspec.json.decode(data)))

    @property
    def has_status(self) -> bool:
        """Whether status is a subresource. A few kinds accept a status on creation all the same."""
        return self.resource.subresource("status") is not None

    @property
    def storage_group(self) -> str:
        return self.resource.group if self.group_override is None else self.group_override


class Catalog:
    """Served kinds by group, version and plural. It changes when CRDs are created and deleted."""

    def __init__(self) -> None:
        self._served_kinds: dict[_KindKey, ServedKind] = {}
        self._storage_kinds: dict[tuple[str, str], ServedKind] = {}
        self._by_api_version: dict[tuple[str, str], ServedKind] = {}
        self._listeners: list[Callable[[], object]] = []
        # Built-in kinds that nobody has asked for yet.
        self._builtin: dict[_KindKey, Callable[[], None]] = {}
        self._builtin_storage: dict[tuple[str, str], _KindKey] = {}
        self._builtin_kinds: dict[tuple[str, str], _KindKey] = {}
        self._builtin_groups: set[str] = set()

    def __iter__(self) -> Iterator[ServedKind]:
        for key in tuple(self._builtin):
            self._make(key)
        return iter(tuple(self._served_kinds.values()))

    def add_builtin(self, resource: ApiResource, make: Callable[[ApiResource], ServedKind], *, storage: bool) -> None:
        """Serve a built-in kind, which is made when it is first asked for."""
        key = (resource.group, resource.version, resource.plural)
        self._builtin[key] = lambda: self._add(make(resource), storage=storage)
        self._builtin_kinds[resource.api_version, resource.kind] = key
        self._builtin_groups.add(resource.group)
        if storage:
            self._builtin_storage[resource.group_resource] = key

    def has_builtin_group(self, group: str) -> bool:
        """Whether a group has built-in kinds."""
        return group in self._builtin_groups

    def _make(self, key: _KindKey | None) -> None:
        make = self._builtin.pop(key, None) if key is not None else None
        if make is not None:
            make()

    def add(self, served_kind: ServedKind, *, storage: bool = True, served: bool = True) -> None:
        """Serve a kind. With `storage`, objects are stored in its version, which need not be served."""
        self._add(served_kind, storage=storage, served=served)
        self._notify()

    def _add(self, served_kind: ServedKind, *, storage: bool, served: bool = True) -> None:
        resource = served_kind.resource
        if served:
            self._served_kinds[resource.group, resource.version, resource.plural] = served_kind
            self._by_api_version[resource.api_version, resource.kind] = served_kind
        if storage:
            self._storage_kinds[resource.group_resource] = served_kind

    def remove(self, group: str, plural: str) -> None:
        """Stop serving all versions of a resource."""
        for key in [key for key in self._served_kinds if key[0] == group and key[2] == plural]:
            resource = self._served_kinds.pop(key).resource
            self._by_api_version.pop((resource.api_version, resource.kind), None)
        self._storage_kinds.pop((group, plural), None)
        self._notify()

    def find(self, group: str, version: str, plural: str) -> ServedKind | None:
        key = (group, version, plural)
        if key in self._builtin:
            self._make(key)
        return self._served_kinds.get(key)

    def find_kind(self, api_version: str, kind: str) -> ServedKind | None:
        """The served kind that an object or a reference names."""
        self._make(self._builtin_kinds.get((api_version, kind)))
        return self._by_api_version.get((api_version, kind))

    def storage_kind(self, group: str, plural: str) -> ServedKind | None:
        """The kind in the version that objects are stored in."""
        self._make(self._builtin_storage.get((group, plural)))
        return self._storage_kinds.get((group, plural))

    def collections(self) -> list[ServedKind]:
        """One kind for each group and plural, in the version that is stored if there is one."""
        kinds = {kind.resource.group_resource: kind for kind in self}
        return list((kinds | self._storage_kinds).values())

    def subscribe(self, listener: Callable[[], object]) -> None:
        """Call the listener after every change."""
        self._listeners.append(listener)

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()


_RBAC = "rbac.authorization.k8s.io"

_CREATED_BY_PUT: AbstractSet[tuple[str, str]] = frozenset(
    {
        ("", "endpoints"),
        ("", "events"),
        ("", "limitranges"),
        ("", "services"),
        ("events.k8s.io", "events"),
        (_RBAC, "clusterrolebindings"),
        (_RBAC, "clusterroles"),
        (_RBAC, "rolebindings"),
        (_RBAC, "roles"),
        ("coordination.k8s.io", "leases"),
        ("node.k8s.io", "runtimeclasses"),
    }
)
_NO_UNCONDITIONAL_UPDATE: AbstractSet[tuple[str, str]] = frozenset(
    {
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("coordination.k8s.io", "leases"),
        ("node.k8s.io", "runtimeclasses"),
        ("policy", "poddisruptionbudgets"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
        ("apiregistration.k8s.io", "apiservices"),
        ("storage.k8s.io", "csidrivers"),
        ("storage.k8s.io", "csinodes"),
        ("storage.k8s.io", "csistoragecapacities"),
        ("storage.k8s.io", "volumeattachments"),
    }
)
_RETURNS_DELETED_OBJECT: AbstractSet[tuple[str, str]] = frozenset(
    {
        ("", "namespaces"),
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
        ("", "pods"),
        ("", "podtemplates"),
        ("", "resourcequotas"),
        ("", "serviceaccounts"),
        ("", "services"),
        ("storage.k8s.io", "csidrivers"),
        ("storage.k8s.io", "csinodes"),
        ("storage.k8s.io", "storageclasses"),
        ("storage.k8s.io", "volumeattachments"),
        ("storage.k8s.io", "volumeattributesclasses"),
        ("resource.k8s.io", "deviceclasses"),
        ("resource.k8s.io", "resourceclaims"),
        ("resource.k8s.io", "resourceclaimtemplates"),
        ("resource.k8s.io", "resourceslices"),
    }
)
_ORPHANS_BY_DEFAULT: AbstractSet[tuple[str, str]] = frozenset({("", "replicationcontrollers"), ("batch", "jobs")})


def allows_create_on_update(served_kind: ServedKind) -> bool:
    """Whether PUT creates an object that does not exist."""
    return served_kind.resource.group_resource in _CREATED_BY_PUT


def requires_resource_version(served_kind: ServedKind) -> bool:
    """Whether PUT without a resourceVersion is refused, instead of replacing the stored object unconditionally."""
    return served_kind.custom or served_kind.resource.group_resource in _NO_UNCONDITIONAL_UPDATE


def returns_deleted_object(served_kind: ServedKind) -> bool:
    """Whether the response to a deletion is the object instead of a Status."""
    return served_kind.resource.group_resource in _RETURNS_DELETED_OBJECT


def orphans_by_default(served_kind: ServedKind) -> bool:
    """Whether a deletion without a propagation policy orphans the dependents."""
    return served_kind.resource.group_resource in _ORPHANS_BY_DEFAULT


def is_core_resource(served_kind: ServedKind, plural: str) -> bool:
    """Whether a kind is this resource of the core group."""
    return served_kind.resource.group_resource == ("", plural)
