"""Everything the server knows about a kind, in one place: where it lives, its types, its rules."""

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet

import msgspec

from gangline.api.meta import JSON
from gangline.api.selectors import SelectableFields
from gangline.apiserver.apply.tracked import ManagedKind, managed_kind
from gangline.apiserver.http.negotiation import ObjectKind
from gangline.apiserver.kinds.machinery.strategy import Strategy
from gangline.apiserver.registry.resources import ApiResource
from gangline.schema.typed.strict_decoding import DecodingChecker
from gangline.schema.typed.types import TypeNode

Converter = Callable[[JSON], JSON]
FieldPath = tuple[str, ...]
"""The way to a field, from the object down."""


class ScalePaths(msgspec.Struct, frozen=True):
    """Where the replicas of an object are."""

    spec: FieldPath = ("spec", "replicas")
    status: FieldPath = ("status", "replicas")
    selector: FieldPath = ("spec", "selector")
    """A selector, or the text of one. Empty where there is none."""


class ServedKind(msgspec.Struct, frozen=True):
    """One served version of one kind."""

    resource: ApiResource
    type: TypeNode
    strategy: Strategy
    object_kind: ObjectKind
    selectable_fields: SelectableFields
    decoder: DecodingChecker | None = None
    """Finds what a built-in kind's JSON has wrong; custom resources have their schema for that."""
    group_override: str | None = None
    """The group its objects are kept under, where that is another one."""
    from_storage: Converter | None = None
    """Makes what is stored what this version shows. None: they are the same."""
    to_storage: Converter | None = None
    """The other way round."""
    scale_paths: ScalePaths = ScalePaths()
    """Meaningful where `scale` is a subresource."""
    deprecation_warning: str = ""
    """What everybody who uses this version is told."""
    _managed_kinds: dict[str, ManagedKind] = {}
    custom: bool = False
    """Defined by a CRD: list items carry their kind, strategic patch is refused, and lists say `continue: ""`."""

    def managed_kind(self, subresource: str = "") -> ManagedKind:
        """How ownership is tracked for writes of the object, or of one of its subresources."""
        found = self._managed_kinds.get(subresource)
        if found is None:
            found = self._managed_kinds[subresource] = managed_kind(
                self.api_version,
                self.kind,
                self.type,
                subresource=subresource,
                custom=self.custom,
                status=self.has_status,
            )
        return found

    def served_bytes(self, data: bytes) -> bytes:
        """A stored object as this version shows it."""
        if self.from_storage is None:
            return data
        return msgspec.json.encode(self.from_storage(msgspec.json.decode(data)))

    @property
    def has_status(self) -> bool:
        """Whether status is a subresource. A few kinds take it on creation all the same."""
        return self.resource.subresource("status") is not None

    @property
    def storage_group(self) -> str:
        return self.group if self.group_override is None else self.group_override

    @property
    def group(self) -> str:
        return self.resource.group

    @property
    def kind(self) -> str:
        return self.resource.kind

    @property
    def plural(self) -> str:
        return self.resource.plural

    @property
    def api_version(self) -> str:
        return f"{self.resource.group}/{self.resource.version}" if self.resource.group else self.resource.version


class Catalog:
    """Entries by where they live. Changes when CRDs come and go; readers always see a whole entry or none."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str, str], ServedKind] = {}
        self._storage_kinds: dict[tuple[str, str], ServedKind] = {}

    def __iter__(self) -> Iterator[ServedKind]:
        return iter(tuple(self._entries.values()))

    def add(self, entry: ServedKind, *, storage: bool = True) -> None:
        """Serve an entry. With `storage` it is the one whose version objects are kept in."""
        self._entries[entry.group, entry.resource.version, entry.plural] = entry
        if storage:
            self._storage_kinds[entry.group, entry.plural] = entry

    def remove(self, group: str, plural: str) -> None:
        """Serve no version of a resource any more."""
        for where in [where for where in self._entries if where[0] == group and where[2] == plural]:
            del self._entries[where]
        self._storage_kinds.pop((group, plural), None)

    def find(self, group: str, version: str, plural: str) -> ServedKind | None:
        return self._entries.get((group, version, plural))

    def storage_kind(self, group: str, plural: str) -> ServedKind | None:
        """The entry of the version that objects are kept in."""
        return self._storage_kinds.get((group, plural))


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
        ("storage.k8s.io", "csidrivers"),
    }
)
_RETURNS_DELETED_OBJECT: AbstractSet[tuple[str, str]] = frozenset(
    {
        ("", "namespaces"),
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
        ("", "pods"),
        ("", "podtemplates"),
        ("", "replicationcontrollers"),
        ("", "resourcequotas"),
        ("", "serviceaccounts"),
        ("", "services"),
        ("storage.k8s.io", "csidrivers"),
        ("storage.k8s.io", "csinodes"),
        ("storage.k8s.io", "storageclasses"),
        ("storage.k8s.io", "volumeattachments"),
    }
)
_ORPHANS_BY_DEFAULT: AbstractSet[tuple[str, str]] = frozenset({("", "replicationcontrollers"), ("batch", "jobs")})


def allows_create_on_update(entry: ServedKind) -> bool:
    """Whether PUT creates an object that is not there."""
    return (entry.group, entry.plural) in _CREATED_BY_PUT


def requires_resource_version(entry: ServedKind) -> bool:
    """Whether PUT without a resourceVersion is refused, instead of overwriting whatever is there."""
    return entry.custom or (entry.group, entry.plural) in _NO_UNCONDITIONAL_UPDATE


def returns_deleted_object(entry: ServedKind) -> bool:
    """Whether a deletion answers with the object instead of a Status."""
    return (entry.group, entry.plural) in _RETURNS_DELETED_OBJECT


def orphans_by_default(entry: ServedKind) -> bool:
    """Whether a deletion that says nothing about dependents leaves them behind."""
    return (entry.group, entry.plural) in _ORPHANS_BY_DEFAULT


def is_core_resource(entry: ServedKind, plural: str) -> bool:
    """Whether this is that resource of the core group."""
    return not entry.group and entry.plural == plural
