import asyncio
import copy
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from gangline.apiserver.http import discovery
from gangline.apiserver.http.openapi import OpenApiDocuments
from gangline.apiserver.registry.resources import all_resources, crd_resources
from support.servers import real

SCHEMA = {
    "type": "object",
    "description": "Gadget is made by a test.",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "description": "How large it is."},
                "port": {"x-kubernetes-int-or-string": True},
                "template": {"type": "object", "x-kubernetes-embedded-resource": True},
            },
        },
    },
}
CRD = {
    "metadata": {"name": "gadgets.test.example.com"},
    "spec": {
        "group": "test.example.com",
        "scope": "Namespaced",
        "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": SCHEMA},
            }
        ],
    },
}
NAME = "apis/test.example.com/v1"


def custom() -> dict[str, Any]:
    found = OpenApiDocuments([CRD]).document(NAME)
    assert found is not None
    document: dict[str, Any] = json.loads(found.content)
    return document


def test_custom_kind_is_published_with_the_fields_of_every_object() -> None:
    kind = custom()["components"]["schemas"]["com.example.test.v1.Gadget"]
    assert set(kind["properties"]) == {"apiVersion", "kind", "metadata", "spec"}
    assert kind["description"] == "Gadget is made by a test."
    key = {"group": "test.example.com", "version": "v1", "kind": "Gadget"}
    assert kind["x-kubernetes-group-version-kind"] == [key]


def test_extensions_are_spelled_out() -> None:
    spec = custom()["components"]["schemas"]["com.example.test.v1.Gadget"]["properties"]["spec"]["properties"]
    assert spec["port"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert spec["template"]["required"] == ["kind", "apiVersion"]


def test_paths_are_those_of_the_resource() -> None:
    document = custom()
    assert set(document["paths"]) == {
        "/apis/test.example.com/v1/gadgets",
        "/apis/test.example.com/v1/namespaces/{namespace}/gadgets",
        "/apis/test.example.com/v1/namespaces/{namespace}/gadgets/{name}",
        "/apis/test.example.com/v1/namespaces/{namespace}/gadgets/{name}/status",
    }
    assert "sentinel" not in json.dumps(document).lower()


def test_two_kinds_of_a_group_share_a_document() -> None:
    other: dict[str, Any] = json.loads(json.dumps(CRD).replace("adget", "idget"))
    other["spec"]["names"]["kind"], other["spec"]["names"]["plural"] = "Widget", "widgets"
    found = OpenApiDocuments([CRD, other]).document(NAME)
    assert found is not None
    schemas = json.loads(found.content)["components"]["schemas"]
    assert {"com.example.test.v1.Gadget", "com.example.test.v1.Widget"} <= set(schemas)


def test_index_names_every_document_and_changes_with_its_schema() -> None:
    paths = json.loads(OpenApiDocuments([CRD]).index)["paths"]
    assert {"api/v1", "apis/apps/v1", "version", NAME} <= set(paths)
    found = OpenApiDocuments([CRD]).document(NAME)
    assert found is not None
    assert paths[NAME]["serverRelativeURL"] == f"/openapi/v3/{NAME}?hash={found.hash}"
    changed = msgspec.json.decode(msgspec.json.encode(CRD).replace(b"How large", b"How small"))
    assert json.loads(OpenApiDocuments([changed]).index)["paths"][NAME] != paths[NAME]


def test_unknown_document_is_none() -> None:
    assert OpenApiDocuments().document("apis/nope.example.com/v1") is None


def test_every_reference_leads_somewhere() -> None:
    for name in ("api/v1", "apis/apps/v1", "apis/storage.k8s.io/v1", NAME):
        found = OpenApiDocuments([CRD]).document(name)
        assert found is not None
        schemas = json.loads(found.content)["components"]["schemas"]
        used = {part.partition('"')[0] for part in found.content.decode().split("#/components/schemas/")[1:]}
        assert used <= set(schemas)


def test_openapi_v2_has_the_same_kinds() -> None:
    definitions = json.loads(OpenApiDocuments([CRD]).swagger())["definitions"]
    gadget = definitions["com.example.test.v1.Gadget"]
    assert gadget["properties"]["metadata"]["$ref"].startswith("#/definitions/")
    assert definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"]["type"] == "string"


def test_openapi_v2_says_nothing_of_a_kind_that_keeps_unknown_fields() -> None:
    crd = copy.deepcopy(CRD)
    schema = crd["spec"]["versions"][0]["schema"]  # type: ignore[index]
    schema["openAPIV3Schema"] = {**SCHEMA, "x-kubernetes-preserve-unknown-fields": True}
    gadget = json.loads(OpenApiDocuments([crd]).swagger())["definitions"]["com.example.test.v1.Gadget"]
    key = {"group": "test.example.com", "version": "v1", "kind": "Gadget"}
    assert gadget == {"type": "object", "x-kubernetes-group-version-kind": [key]}


# With the real kubectl


class Kubectl:
    """The real kubectl against a server that serves our documents and stores what is written."""

    def __init__(self, program: Path, home: Path) -> None:
        self._program, self._home = program, home
        self.objects: dict[str, Any] = {}
        self.seen: list[str] = []
        self.url = ""

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.Response:
        served = list(all_resources(crd_resources(CRD)))
        path, documents = request.path.strip("/"), OpenApiDocuments([CRD])
        self.seen.append(f"{request.method} /{path}")
        if path in ("api", "apis") and discovery.wants_aggregated(request.headers.get("Accept", "")):
            body = msgspec.json.encode(discovery.group_discovery_list(served, core=path == "api"))
            return web.Response(body=body, headers={"Content-Type": discovery.AGGREGATED_MEDIA_TYPE})
        if path == "openapi/v3":
            return web.Response(body=documents.index, content_type="text/plain")
        if path.startswith("openapi/v3/"):
            found = documents.document(path.removeprefix("openapi/v3/"))
            assert found is not None, path
            return web.Response(body=found.content, content_type="application/json")
        return await self._stored(request)

    async def _stored(self, request: web.Request) -> web.Response:
        if request.method in ("POST", "PATCH"):
            value = json.loads(await request.read())
            name = value["metadata"]["name"]
            self.objects[name] = {
                **value,
                "metadata": {"namespace": "default", "uid": "u", **value["metadata"]},
            }
        else:
            name = request.path.rpartition("/")[2]
        if name in self.objects:
            return web.json_response(self.objects[name])
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "reason": "NotFound",
            "code": 404,
        }
        return web.json_response({**status, "message": "not found"}, status=404)

    async def __call__(self, *arguments: str, text: str = "") -> str:
        environment = {"PATH": os.environ["PATH"], "HOME": str(self._home), "KUBECONFIG": "/dev/null"}
        process = await asyncio.create_subprocess_exec(
            self._program,
            f"--server={self.url}",
            f"--cache-dir={self._home}",
            *arguments,
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate(text.encode())
        assert process.returncode == 0, out.decode()
        return out.decode()


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    program = real.cache_dir() / "kubectl"
    if not program.exists():
        pytest.skip("no kubectl: run hack/kubernetes.sh kubectl")
    tool = Kubectl(program, tmp_path)
    runner = web.AppRunner(tool.app())
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    tool.url = site.name if not site.name.endswith(":0") else f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield tool
    await runner.cleanup()


GADGET = {
    "apiVersion": "test.example.com/v1",
    "kind": "Gadget",
    "metadata": {"name": "g"},
    "spec": {"size": 5},
}


async def test_kubectl_explains_built_in_and_custom_kinds(kubectl: Kubectl) -> None:
    assert "imagePullPolicy" in await kubectl("explain", "pods.spec.containers")
    assert "size\t<integer>" in await kubectl("explain", "gadgets.spec", "--recursive")
    assert "How large it is." in await kubectl("explain", "gadgets.spec.size")
    assert not [seen for seen in kubectl.seen if "openapi/v2" in seen]


async def test_kubectl_lists_the_resources(kubectl: Kubectl) -> None:
    listed = await kubectl("api-resources")
    assert "deployments" in listed
    assert "gadgets" in listed


async def test_kubectl_applies_on_either_side(kubectl: Kubectl) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}}
    assert "created" in await kubectl("apply", "-f", "-", text=json.dumps(config))
    assert kubectl.objects["c"]["data"] == {"a": "b"}
    assert "g serverside-applied" in await kubectl("apply", "--server-side", "-f", "-", text=json.dumps(GADGET))
    assert kubectl.objects["g"]["spec"] == {"size": 5}
    assert not [seen for seen in kubectl.seen if "openapi/v2" in seen]
