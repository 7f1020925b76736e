"""Where objects are kept: `/<group>/<plural>/<namespace>/<name>`, always four parts.

The core group is empty, and so is the namespace of a cluster-scoped object: `//pods/default/web`, `//nodes//one`.
No part may contain a slash; names that Kubernetes accepts never do. Paths sort as etcd's keys do, so lists come in
the order that clients know.
"""

from typing import NamedTuple


class ObjectPath(NamedTuple):
    """The parts of a path."""

    group: str
    plural: str
    namespace: str
    name: str


def object_path(group: str, plural: str, namespace: str, name: str) -> str:
    """Where one object is kept; the namespace is empty for a cluster-scoped one."""
    return f"/{group}/{plural}/{namespace}/{name}"


def collection_prefix(group: str, plural: str, namespace: str = "") -> str:
    """What the paths of all objects of a kind start with, or of those in one namespace."""
    return f"/{group}/{plural}/{namespace}/" if namespace else f"/{group}/{plural}/"


def split_path(path: str) -> ObjectPath:
    """The parts that `object_path` joined."""
    _, group, plural, namespace, name = path.split("/")
    return ObjectPath(group, plural, namespace, name)
