"""Objects as the server sends them: the kinds that are read most, keys, names as kubectl prints them. Pure."""

from typing import Any, NamedTuple

from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource

GROUP = "kubeflow.org"


def json_resource(group: str, version: str, kind: str, plural: str, *, namespaced: bool = True) -> Resource[JSON]:
    """A resource whose objects are decoded to full JSON."""
    return Resource(group, version, kind, plural, dict[str, Any], namespaced=namespaced)


JOB_KINDS: tuple[Resource[JSON], ...] = tuple(
    json_resource(GROUP, "v1", kind, f"{kind.lower()}s")
    for kind in ("TFJob", "PyTorchJob", "XGBoostJob", "MPIJob", "PaddleJob", "JAXJob")
)
"""The job kinds of `gangline.api.kubeflow.kinds` (a test compares them), without their types, which load slowly."""

PODS = json_resource("", "v1", "Pod", "pods")
SERVICES = json_resource("", "v1", "Service", "services")
EVENTS = json_resource("", "v1", "Event", "events")
NODES = json_resource("", "v1", "Node", "nodes", namespaced=False)
NAMESPACES = json_resource("", "v1", "Namespace", "namespaces", namespaced=False)


def object_key(body: JSON) -> Key:
    """Namespace and name of an object."""
    return Key(body["metadata"].get("namespace", ""), body["metadata"]["name"])


def resource_version(body: JSON) -> str:
    """The resourceVersion of an object; empty if it has none."""
    version: str = body["metadata"].get("resourceVersion", "")
    return version


class ServerJob(NamedTuple):
    """A job as the server returned it."""

    resource: Resource[JSON]
    body: JSON

    @property
    def key(self) -> Key:
        return object_key(self.body)

    @property
    def display_name(self) -> str:
        """The job's name as kubectl prints it: `tfjob.kubeflow.org/linear`."""
        return resource_name(self.resource, self.key.name)


def resource_name(resource: Resource[Any], name: str) -> str:
    """An object's name as kubectl prints it: `pod/x`, `tfjob.kubeflow.org/x`."""
    kind = resource.kind.lower()
    return f"{kind}.{resource.group}/{name}" if resource.group else f"{kind}/{name}"
