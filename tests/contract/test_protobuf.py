"""Objects created and watched in protobuf are those of JSON, on every server."""

import uuid
from contextlib import aclosing

import msgspec
import pytest

from gangline.api.core import ConfigMap, Pod, Service
from gangline.api.meta import JSON, Key, Selector
from gangline.kube.client import Client, Kind
from gangline.kube.config.connection import Connection
from gangline.kube.protobuf import ProtobufBodies
from gangline.kube.transport.api import QueryParams, Request, Response, Transport
from gangline.kube.transport.http import HttpTransport
from gangline.kube.watch import ChangeType, ObjectChange
from gangline.schema.protobuf.answers import encode_answer, watch_frame
from gangline.schema.protobuf.objects import MEDIA_TYPE, decode
from support.cases.kinds import RESOURCES, load_cases, with_namespace

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
PARTIAL = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
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


# What servers send in protobuf is what they send in JSON, encoded by us. So of the real server it says that our encoding is
# Go's, and of the embedded one that it sends that encoding.


async def answer(transport: Transport, path: str, accept: str, query: QueryParams = ()) -> Response:
    return await transport.send(Request("GET", path, query, accept=accept))


async def assert_same_answers(transport: Transport, path: str, view: str = "") -> None:
    by_json = await answer(transport, path, f"application/json{view}")
    by_protobuf = await answer(transport, path, f"{MEDIA_TYPE}{view}")
    assert (by_protobuf.status, by_protobuf.headers["content-type"]) == (by_json.status, MEDIA_TYPE), path
    assert by_protobuf.body == encode_answer(by_json.body), path


async def test_objects_of_all_kinds(server: Connection, namespace: str) -> None:
    stored: dict[str, list[str]] = {}
    async with HttpTransport(server, warn=lambda text: None) as transport:
        for number, (kind, body) in enumerate(load_cases()):
            resource, name = RESOURCES[kind], f"protobuf-{uuid.uuid4().hex[:6]}-{number}"
            if resource.group == "admissionregistration.k8s.io":
                continue  # it would decide about the requests of others
            body = {**with_namespace(body, namespace), "apiVersion": resource.api_version, "kind": resource.kind}
            body = {**body, "metadata": {**body["metadata"], "name": name}}
            path = resource.path(namespace)
            request = Request("POST", path, (), msgspec.json.encode(body), "application/json")
            if (await transport.send(request)).status == 201:
                stored.setdefault(kind, []).append(f"{path}/{name}")
        for paths in stored.values():
            for path in paths[:3]:
                await assert_same_answers(transport, path)
                await assert_same_answers(transport, path, PARTIAL)
        for kind in stored:
            if RESOURCES[kind].namespaced:
                await assert_same_answers(transport, RESOURCES[kind].path(namespace))
        await assert_same_answers(transport, f"/api/v1/namespaces/{namespace}/pods", PARTIAL.replace(";g", "List;g"))
        # Others use this server as well, and their namespaces do not go with ours.
        for kind, paths in stored.items():
            if not RESOURCES[kind].namespaced:
                for path in paths:
                    await transport.send(Request("DELETE", path))
    assert len(stored) > 40


@pytest.mark.parametrize("path", ["/api", "/api/v1", "/apis", "/apis/apps/v1", "/apis/batch"])
async def test_discovery(server: Connection, path: str) -> None:
    async with HttpTransport(server) as transport:
        await assert_same_answers(transport, path)


async def test_errors_and_deletions_are_statuses_in_protobuf(server: Connection, namespace: str) -> None:
    config_maps = f"/api/v1/namespaces/{namespace}/configmaps"
    async with HttpTransport(server) as transport:
        missing = await answer(transport, f"{config_maps}/none", f"{MEDIA_TYPE},application/json")
        await Client(transport).create(ConfigMap, {"metadata": {"name": "one"}}, namespace=namespace)
        gone = await transport.send(Request("DELETE", f"{config_maps}/one", accept=MEDIA_TYPE))
    assert decode(missing.body)["message"] == 'configmaps "none" not found'
    assert (missing.status, missing.headers["content-type"]) == (404, MEDIA_TYPE)
    assert (decode(gone.body)["kind"], decode(gone.body)["details"]["name"]) == ("Status", "one")


async def test_metadata_of_other_versions_and_watches_of_metadata(server: Connection, namespace: str) -> None:
    path, since = f"/api/v1/namespaces/{namespace}/configmaps", (("watch", "true"), ("timeoutSeconds", "1"))
    async with HttpTransport(server) as transport:
        await Client(transport).create(
            ConfigMap, {"metadata": {"name": "one"}, "data": {"a": "b"}}, namespace=namespace
        )
        lines = (await answer(transport, path, f"application/json{PARTIAL}", since)).body.splitlines()
        frames = await answer(transport, path, f"{MEDIA_TYPE};stream=watch{PARTIAL}", since)
    events = [msgspec.json.decode(line) for line in lines]
    expected = [watch_frame(event["type"], encode_answer(msgspec.json.encode(event["object"]))) for event in events]
    assert frames.headers["content-type"] == f"{MEDIA_TYPE};stream=watch"
    assert any(b"one" in frame for frame in expected)
    assert frames.body == b"".join(expected)
