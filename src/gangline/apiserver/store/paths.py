"""The paths of stored objects: `/<group>/<plural>/<namespace>/<name>`, always four parts.

The core group is empty, and so is the namespace of a cluster-scoped object: `//pods/default/web`, `//nodes//one`. No
part may contain a slash; valid names never do. Paths sort like etcd's keys, so lists have the order that clients
know.
"""

from typing import NamedTuple


class ObjectPath(NamedTuple):
    """The parts of a path."""

    group: str
    plural: str
    namespace: str
    name: str


def object_path(group: str, plural: str, namespace: str, name: str) -> str:
    """The path of an object. The namespace is empty for a cluster-scoped object."""
    return f"/{group}/{plural}/{namespace}/{name}"


def collection_prefix(group: str, plural: str, namespace: str = "") -> str:
    """The common prefix of the paths of all objects of a resource, or of those in one namespace."""
    return f"/{group}/{plural}/{namespace}/" if namespace else f"/{group}/{plural}/"


def split_path(path: str) -> ObjectPath:
    """The parts of an object's path."""
    _, group, plural, namespace, name = path.split("/")
    return ObjectPath(group, plural, namespace, name)
