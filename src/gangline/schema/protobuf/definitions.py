"""The definitions of messages: those of built-in kinds, which are published, their lists, and those of answers."""

from typing import Final

from gangline.schema.typed import published
from gangline.schema.typed.published import MessageField

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
_META_GROUP, _LIST = "meta.k8s.io/", "List"
_PARTIAL_METADATA: Final = "PartialObjectMetadata"
_DISCOVERY: Final = ("APIVersions", "APIGroupList", "APIGroup", "APIResourceList")


def message_name(version: str, kind: str) -> str | None:
    """The definition of a kind of an API version; None if it has no protobuf form."""
    kinds = published.message_catalog().kinds
    if (name := kinds.get(version, {}).get(kind) or kinds[""].get(kind)) is not None:
        return name
    is_partial = kind == _PARTIAL_METADATA and version.startswith(_META_GROUP)
    if is_partial or kind == "Status" or kind in _DISCOVERY:
        return META + kind
    item = kind.removesuffix(_LIST)
    name = message_name(version, item) if item != kind else None
    return None if name is None else name + _LIST


def message_members(name: str) -> tuple[MessageField, ...]:
    """The fields of a definition. Raises KeyError."""
    messages = published.message_catalog().messages
    members = messages.get(name) or _ANSWER_MESSAGES.get(name)
    item = name.removesuffix(_LIST)
    if members is None and item != name:
        return (MessageField(1, "metadata", META + "ListMeta"), MessageField(2, "items", item, "l"))
    return messages[name] if members is None else members


_ANSWER_MESSAGES: Final[dict[str, tuple[MessageField, ...]]] = {
    META + "PartialObjectMetadata": (MessageField(1, "metadata", META + "ObjectMeta"),),
    META + "Verbs": (MessageField(1, "items", "string", "l"),),
    META + "APIVersions": (
        MessageField(1, "versions", "string", "l"),
        MessageField(2, "serverAddressByClientCIDRs", META + "ServerAddressByClientCIDR", "l"),
    ),
    META + "ServerAddressByClientCIDR": (
        MessageField(1, "clientCIDR", "string"),
        MessageField(2, "serverAddress", "string"),
    ),
    META + "APIGroupList": (MessageField(1, "groups", META + "APIGroup", "l"),),
    META + "APIGroup": (
        MessageField(1, "name", "string"),
        MessageField(2, "versions", META + "GroupVersionForDiscovery", "l"),
        MessageField(3, "preferredVersion", META + "GroupVersionForDiscovery"),
        MessageField(4, "serverAddressByClientCIDRs", META + "ServerAddressByClientCIDR", "l"),
    ),
    META + "GroupVersionForDiscovery": (
        MessageField(1, "groupVersion", "string"),
        MessageField(2, "version", "string"),
    ),
    META + "APIResourceList": (
        MessageField(1, "groupVersion", "string"),
        MessageField(2, "resources", META + "APIResource", "l"),
    ),
    META + "APIResource": (
        MessageField(1, "name", "string"),
        MessageField(2, "namespaced", "bool"),
        MessageField(3, "kind", "string"),
        MessageField(4, "verbs", META + "Verbs", "p"),
        MessageField(5, "shortNames", "string", "l"),
        MessageField(6, "singularName", "string"),
        MessageField(7, "categories", "string", "l"),
        MessageField(8, "group", "string"),
        MessageField(9, "version", "string"),
        MessageField(10, "storageVersionHash", "string"),
    ),
}
