"""Objects created and watched in protobuf are those of JSON, on every server."""

from contextlib import aclosing

from gangline.api.core import Pod, Service
from gangline.api.meta import JSON, Key, Selector
from gangline.kube.client import Client, Kind
from gangline.kube.config.connection import Connection
from gangline.kube.protobuf import ProtobufBodies
from gangline.kube.transport.http import HttpTransport
from gangline.kube.watch import ChangeType, ObjectChange

POD: JSON = {
    "metadata": {"name": "one", "labels": {"role": "worker"}, "annotations": {"note": "a\nb"}},
    "spec": {
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "nodeSelector": {"disk": "fast"},
        "volumes": [
            {"name": "scratch", "emptyDir": {}},
            {"name": "info", "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        ],
        "containers": [
            {
                "name": "main",
                "image": "train:1",
                "command": ["train", ""],
                "env": [
                    {"name": "TF_CONFIG", "value": '{"cluster": {}}'},
                    {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                ],
                "ports": [{"name": "port", "containerPort": 2222}],
                "resources": {"requests": {"cpu": "1000m", "memory": "1.5Gi"}, "limits": {"example.com/gpu": 1}},
                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                "livenessProbe": {"httpGet": {"path": "/", "port": "port"}, "periodSeconds": 7},
                "securityContext": {
                    "runAsUser": 0,
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}],
    },
}
SERVICE: JSON = {
    "metadata": {"name": "one"},
    "spec": {
        "clusterIP": "None",
        "selector": {"role": "worker"},
        "ports": [{"name": "a", "port": 1, "targetPort": "port"}],
    },
}
ALWAYS_DIFFERENT = ("uid", "resourceVersion", "creationTimestamp", "name", "managedFields")


async def created(client: Client, kind: Kind[JSON], name: str, body: JSON, namespace: str) -> JSON:
    """What the server makes of an object, without what is of that one object."""
    named = {**body, "metadata": {**body["metadata"], "name": name}}
    stored = await client.create(kind, named, namespace=namespace)
    managed = [{**entry, "time": None} for entry in stored["metadata"].get("managedFields", [])]
    kept = {key: value for key, value in stored["metadata"].items() if key not in ALWAYS_DIFFERENT}
    return {**stored, "metadata": {**kept, "managed": managed}}


async def test_object_created_by_protobuf_is_the_same_as_by_json(server: Connection, namespace: str) -> None:
    async with HttpTransport(server) as transport:
        by_json, by_protobuf = Client(transport), Client(transport, protobuf=ProtobufBodies())
        for kind, body in ((Pod, POD), (Service, SERVICE)):
            resource = by_json.unstructured(kind)
            expected = await created(by_json, resource, "json", body, namespace)
            assert await created(by_protobuf, resource, "protobuf", body, namespace) == expected


async def test_watch_in_protobuf_has_the_objects_of_json(server: Connection, namespace: str) -> None:
    async with HttpTransport(server) as transport:
        client, by_protobuf = Client(transport), Client(transport, protobuf=ProtobufBodies())
        page = await client.list(Pod, Selector(namespace))
        await client.create(Pod, POD, namespace=namespace)
        status = {
            "status": {
                "phase": "Running",
                "startTime": "2026-11-18T10:00:00Z",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-18T10:00:00Z"}],
                "containerStatuses": [
                    {
                        "name": "main",
                        "ready": True,
                        "restartCount": 2,
                        "image": "train:1",
                        "imageID": "",
                        "state": {"running": {"startedAt": "2026-11-18T10:00:01Z"}},
                        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                    }
                ],
            }
        }
        await client.patch(Pod, Key(namespace, "one"), status, subresource="status")
        await client.delete(Pod, Key(namespace, "one"))
        events = [await changes(reader, namespace, page.metadata.resource_version) for reader in (client, by_protobuf)]
    assert events[0] == events[1]
    types = [event.type for event in events[1]]
    assert (types[:2], types[-1]) == ([ChangeType.ADDED, ChangeType.MODIFIED], ChangeType.DELETED)


async def changes(client: Client, namespace: str, since: str) -> list[ObjectChange[Pod]]:
    """All changes until the pod is deleted."""
    seen: list[ObjectChange[Pod]] = []
    async with aclosing(client.watch(Pod, Selector(namespace), since=since)) as events:
        async for event in events:
            if isinstance(event, ObjectChange):
                seen.append(event)
                if event.type is ChangeType.DELETED:
                    break
    return seen
