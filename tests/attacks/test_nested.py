"""Deeply nested input: refused as kube-apiserver refuses it, never an error of the server itself."""

import json
import logging
from collections.abc import AsyncIterator

import pytest

from gangline.api.meta import JSON
from support.servers.plane import PlaneClient, running_plane, widget_crd

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MAPS = "/api/v1/namespaces/default/configmaps"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
DEPTHS = [300, 900, 1500, 9000, 20_000]
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
TOO_DEEP = "exceeded max depth"


def nested(depth: int, opening: str = '{"a":', closing: str = "}", core: str = "1") -> str:
    return opening * depth + core + closing * depth


@pytest.fixture
async def plane(caplog: pytest.LogCaptureFixture) -> AsyncIterator[PlaneClient]:
    """A server with `widgets` of any content, which must log no traceback."""
    async with running_plane() as client:
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        assert (await send(client, "POST", CRDS, json.dumps(widget_crd(schema=schema))))[0] == 201
        await client.poll_status(WIDGETS, 200)
        yield client
        assert (await send(client, "GET", "/readyz"))[0] == 200
    assert not [record.message for record in caplog.records if record.levelno >= logging.ERROR]


async def send(
    client: PlaneClient,
    method: str,
    path: str,
    body: str | bytes | None = None,
    content: str = "json",
    accept: str = "",
) -> tuple[int, str]:
    """The code and the text of a response."""
    headers = {"Content-Type": f"application/{content}", **({"Accept": accept} if accept else {})}
    async with client.session.request(method, path, data=body, headers=headers) as response:
        return response.status, await response.text()


def widget(name: str, spec: str, field: str = "spec") -> str:
    return f'{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{{"name":"{name}"}},"{field}":{spec}}}'


@pytest.mark.parametrize("depth", DEPTHS)
async def test_deep_bodies_are_bad_requests(plane: PlaneClient, depth: int) -> None:
    deep, lists = nested(depth), nested(depth, "[", "]", "")
    assert (await send(plane, "POST", WIDGETS, widget("known", "{}")))[0] == 201
    assert (await send(plane, "POST", MAPS, '{"metadata":{"name":"known"}}'))[0] == 201
    schema = nested(depth, '{"type":"object","properties":{"a":', "}}", '{"type":"string"}')
    crd = json.dumps({**widget_crd(schema={"openAPIV3Schema": "@"}), "metadata": {"name": "others.example.com"}})
    fields = nested(depth, '{"f:a":', "}", "{}")
    entry = f'{{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{fields}}}'
    patch, known = "json-patch+json", f"{WIDGETS}/known"
    attacks = {
        "unknown field": ("POST", MAPS, f'{{"metadata":{{"name":"c"}},"x":{deep}}}', "json"),
        "wrong type": ("POST", MAPS, f'{{"metadata":{{"name":"c"}},"data":{deep}}}', "json"),
        "lists": ("POST", MAPS, f'{{"metadata":{{"name":"c","labels":{lists}}}}}', "json"),
        "custom resource": ("POST", WIDGETS, widget("deep", deep), "json"),
        "update": ("PUT", known, widget("known", deep), "json"),
        "merge patch": ("PATCH", known, f'{{"spec":{deep}}}', "merge-patch+json"),
        "JSON patch": ("PATCH", known, f'[{{"op":"add","path":"/q","value":{deep}}}]', patch),
        "strategic merge patch": ("PATCH", f"{MAPS}/known", f'{{"data":{deep}}}', "strategic-merge-patch+json"),
        "apply": ("PATCH", f"{known}?fieldManager=f", widget("known", deep), "apply-patch+yaml"),
        "apply of YAML": ("PATCH", f"{known}?fieldManager=f", f"kind: Widget\nspec: {deep}", "apply-patch+yaml"),
        "YAML": ("POST", MAPS, f"metadata: {{name: c}}\ndata: {deep}", "yaml"),
        "schema": ("POST", CRDS, crd.replace('"@"', schema), "json"),
        "managedFields": (
            "PUT",
            f"{MAPS}/known",
            f'{{"metadata":{{"name":"known","managedFields":[{entry}]}}}}',
            "json",
        ),
        "options": ("DELETE", f"{MAPS}/known", f'{{"preconditions":{deep}}}', "json"),
    }
    codes = {name: (await send(plane, *attack))[0] for name, attack in attacks.items()}
    # kube-apiserver has no code for the options of a deletion that it cannot decode.
    assert codes.pop("options") == 500
    assert {name: code for name, code in codes.items() if code != 400} == {}
    assert TOO_DEEP in (await send(plane, *attacks["custom resource"]))[1]


@pytest.mark.parametrize("depth", DEPTHS)
async def test_deep_selectors_paths_and_rules_are_refused(plane: PlaneClient, depth: int) -> None:
    rule = {"type": "object", "x-kubernetes-validations": [{"rule": nested(depth, "(", ")", "true")}]}
    crd = {**widget_crd(schema={"openAPIV3Schema": rule}), "metadata": {"name": "others.example.com"}}
    assert (await send(plane, "POST", WIDGETS, widget("known", "{}")))[0] == 201
    step = f'[{{"op":"add","path":"{"/a" * depth}","value":1}}]'
    codes = {
        "rule": await send(plane, "POST", CRDS, json.dumps(crd)),
        "label selector": await send(plane, "GET", f"{MAPS}?labelSelector=a+in+{nested(depth, '(', ')', 'b')}"),
        "field selector": await send(plane, "GET", f"{MAPS}?fieldSelector={'(' * depth}"),
        "pointer": await send(plane, "PATCH", f"{WIDGETS}/known", step, "json-patch+json"),
    }
    assert {name: code for name, (code, _) in codes.items() if not 400 <= code < 500} == {}


def field(number: int, content: bytes) -> bytes:
    """A field of a protobuf message that has a message or a text."""
    size, length = len(content), b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


@pytest.mark.parametrize("depth", [300, 3000])
async def test_deep_protobuf_is_refused(plane: PlaneClient, depth: int) -> None:
    schema = b""
    for _ in range(depth):
        schema = field(18, field(1, field(1, schema)))  # JSONSchemaProps.items.schema
    version = field(1, b"v1") + field(4, field(1, schema))
    spec = field(2, field(1, b"example.com") + field(7, version))
    kind = field(1, field(1, b"apiextensions.k8s.io/v1") + field(2, b"CustomResourceDefinition"))
    body = b"k8s\x00" + kind + field(2, spec)
    code, _ = await send(plane, "POST", CRDS, body, "vnd.kubernetes.protobuf")
    assert 400 <= code < 500


async def test_an_object_cannot_be_patched_beyond_the_limit(plane: PlaneClient) -> None:
    assert (await send(plane, "POST", WIDGETS, widget("grows", nested(150))))[0] == 201
    value = nested(100)
    step = f'[{{"op":"add","path":"/spec{"/a" * 149}/b","value":{value}}}]'
    code, text = await send(plane, "PATCH", f"{WIDGETS}/grows", step, "json-patch+json")
    assert code in (400, 422), text
    twice = '[{"op":"copy","from":"/spec","path":"/spec' + "/a" * 150 + '"}]'
    code, text = await send(plane, "PATCH", f"{WIDGETS}/grows", twice, "json-patch+json")
    assert (code, TOO_DEEP in text) == (400, True)


async def test_an_object_as_deep_as_allowed_is_served_in_every_way(plane: PlaneClient) -> None:
    """What is accepted must also be read, watched, applied, patched and deleted."""
    body = widget("deep", nested(180))
    assert (await send(plane, "POST", WIDGETS, body))[0] == 201
    one, all_of_them = f"{WIDGETS}/deep", f"{WIDGETS}?watch=1&timeoutSeconds=1&resourceVersion=0"
    for path in (one, f"{one}?pretty=1", WIDGETS, all_of_them):
        for accept in (
            ("application/json", TABLE) if "watch" in path else ("application/json", "application/yaml", TABLE)
        ):
            code, _ = await send(plane, "GET", path, accept=accept)
            assert code == 200, (path, accept)
    label = '{"metadata":{"labels":{"a":"b"}}}'
    assert (await send(plane, "PATCH", one, label, "merge-patch+json"))[0] == 200
    assert (await send(plane, "PATCH", f"{one}?fieldManager=f&force=true", body, "apply-patch+yaml"))[0] == 200
    stored: JSON = json.loads((await send(plane, "GET", one))[1])
    assert (await send(plane, "PUT", one, json.dumps(stored)))[0] == 200
    assert (await send(plane, "DELETE", one, '{"propagationPolicy":"Foreground"}'))[0] == 200
    await plane.poll_status(one, 404)


async def test_a_schema_as_deep_as_allowed_works(plane: PlaneClient) -> None:
    schema = json.loads(nested(90, '{"type":"object","properties":{"a":', "}}", '{"type":"string"}'))
    crd = widget_crd("deep.example.com", schema={"openAPIV3Schema": schema})
    code, text = await send(plane, "POST", CRDS, json.dumps(crd))
    assert code == 201, text
    deep = WIDGETS.replace("example.com", "deep.example.com")
    await plane.poll_status(deep, 200)
    body: JSON = {"apiVersion": "deep.example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}
    body.update(json.loads(nested(90, core='"x"')))
    assert (await send(plane, "POST", deep, json.dumps(body)))[0] == 201
    assert (await send(plane, "GET", "/openapi/v3/apis/deep.example.com/v1"))[0] == 200
