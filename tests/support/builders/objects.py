"""Bodies and kinds for tests that talk to a server."""

import uuid
from contextlib import suppress
from typing import Any

from gangline.api.core import Node, Pod
from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.kube.client import Client
from gangline.kube.discovery import is_served
from gangline.kube.errors import AlreadyExists
from gangline.operator.definitions import CRDS as CRDS
from support.waiting import wait_until

DEPLOYMENTS = Resource("apps", "v1", "Deployment", "deployments", dict[str, Any])
BUDGETS = Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", dict[str, Any])
WIDGETS = Resource("contract.gangline.test", "v1", "Widget", "widgets", dict[str, Any])


def unique_name(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def config_map_body(name: str, namespace: str, *, labels: dict[str, str] | None = None, **data: str) -> JSON:
    return {"metadata": {"name": name, "namespace": namespace, "labels": labels or {}}, "data": data}


def pod_body(name: str = "p", namespace: str = "", **spec: object) -> JSON:
    """A pod of one container, unless the spec names its own; without a namespace the request decides it."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    containers = [{"name": "main", "image": "none"}]
    return {"metadata": metadata, "spec": {"containers": containers, **spec}}


def deployment_body(name: str, namespace: str) -> JSON:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def crd_body(resource: Resource[Any]) -> JSON:
    """The definition of a custom resource with status and scale, whose spec has only `replicas` and `size`."""
    integer = {"type": "integer", "minimum": 0}
    text = {"type": "string"}
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {"replicas": integer, "size": {**text, "enum": ["small", "large"]}},
            },
            "status": {
                "type": "object",
                "properties": {"replicas": integer, "selector": text, "phase": text},
            },
        },
    }
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
    }
    names = {"plural": resource.plural, "singular": resource.kind.lower(), "kind": resource.kind}
    return {
        "metadata": {"name": resource.name},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {**names, "shortNames": [resource.plural[:2]], "categories": ["all"]},
            "versions": [version],
        },
    }


async def ensure_crd_served(client: Client, resource: Resource[Any]) -> None:
    """Define a custom resource; returns once the server serves it and discovery lists it."""
    with suppress(AlreadyExists):
        await client.create(CRDS, crd_body(resource))
    await wait_until(lambda: is_served(client, resource), seconds=20)


async def create_node(client: Client, name: str, kubelet_port: int = 0) -> None:
    """Create a node without a kubelet, or with one at a port of this machine."""
    await client.create(Node, {"metadata": {"name": name}})
    if kubelet_port:
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
        }
        await client.patch(Node, Key("", name), {"status": status}, subresource="status")


async def create_running_pod(client: Client, body: JSON) -> Pod:
    """Create a pod and set its status to running and ready."""
    made = await client.create(Pod, body)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return await client.patch(Pod, made.metadata.key, {"status": status}, subresource="status")
