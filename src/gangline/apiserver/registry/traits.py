"""How verbs differ between resources, as seen on kube-apiserver. By group and plural."""

from collections.abc import Set as AbstractSet

from gangline.apiserver.registry.catalog import ServedKind

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
