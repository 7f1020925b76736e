"""The API over HTTP."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.builders.objects import pod_body
from support.servers.plane import PlaneClient, running_plane, widget_crd

MAPS, PODS = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/pods"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
JSON_PATCH, APPLY = "application/json-patch+json", "application/apply-patch+yaml"


@pytest.fixture
async def plane() -> AsyncIterator[PlaneClient]:
    async with running_plane() as running:
        yield running


async def test_object_is_created_read_updated_and_deleted(plane: PlaneClient) -> None:
    created = await plane.call("POST", MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    assert (created.status, created.body["kind"], created.body["apiVersion"]) == (201, "ConfigMap", "v1")
    assert (await plane.call("GET", f"{MAPS}/a")).body == created.body
    changed = await plane.call("PUT", f"{MAPS}/a", {"metadata": {"name": "a"}, "data": {"k": "w"}})
    assert (changed.status, changed.body["data"]) == (200, {"k": "w"})
    gone = await plane.call("DELETE", f"{MAPS}/a")
    assert (gone.status, gone.body["status"], gone.body["details"]["uid"]) == (
        200,
        "Success",
        created.body["metadata"]["uid"],
    )
    assert (await plane.call("GET", f"{MAPS}/a")).status == 404


@pytest.mark.parametrize(
    ("media", "patch"),
    [
        (MERGE, {"data": {"k": None, "n": "1"}}),
        (STRATEGIC, {"data": {"k": None, "n": "1"}}),
        (JSON_PATCH, [{"op": "remove", "path": "/data/k"}, {"op": "add", "path": "/data/n", "value": "1"}]),
    ],
)
async def test_every_patch_format_is_understood(plane: PlaneClient, media: str, patch: Any) -> None:
    await plane.call("POST", MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    answer = await plane.call("PATCH", f"{MAPS}/a", patch, media=media)
    assert (answer.status, answer.body["data"]) == (200, {"n": "1"})


async def test_apply_creates_and_owns(plane: PlaneClient) -> None:
    config = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n"
    made = await plane.call("PATCH", f"{MAPS}/a", config, media=APPLY, fieldManager="me")
    assert made.status == 201
    assert made.body["metadata"]["managedFields"][0]["manager"] == "me"
    other = config.replace(b"k: v", b"k: w")
    conflict = await plane.call("PATCH", f"{MAPS}/a", other, media=APPLY, fieldManager="you")
    assert (conflict.status, conflict.body["details"]["causes"][0]["field"]) == (409, ".data.k")
    forced = await plane.call("PATCH", f"{MAPS}/a", other, media=APPLY, fieldManager="you", force="true")
    assert forced.body["data"] == {"k": "w"}


@pytest.mark.parametrize(
    ("force", "status"), [("True", 200), ("1", 200), ("", 200), ("yes", 200), ("False", 409), ("0", 409)]
)
async def test_apply_is_forced_by_anything_but_false_and_0(plane: PlaneClient, force: str, status: int) -> None:
    config = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n"
    await plane.call("PATCH", f"{MAPS}/a", config, media=APPLY, fieldManager="me")
    other = config.replace(b"k: v", b"k: w")
    forced = await plane.call("PATCH", f"{MAPS}/a", other, media=APPLY, fieldManager="you", force=force)
    assert forced.status == status


@pytest.mark.parametrize(
    ("config", "status", "told"),
    [
        (
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": True},
            500,
            "failed to create typed patch object (/; /v1, Kind=ConfigMap): .metadata: expected map, got &{true}",
        ),
        (
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "binaryData": {"k": "!!"}},
            500,
            (
                "failed to convert new object (/a; /v1, Kind=ConfigMap) to proper version: unable to convert unstructured "
                "object to /v1, Kind=ConfigMap: error decoding from json: illegal base64 data at input byte 0"
            ),
        ),
        (
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "binaryData": {"k": False}},
            500,
            (
                "failed to create typed patch object (/a; /v1, Kind=ConfigMap): "
                ".binaryData.k: expected string, got &value.valueUnstructured{Value:false}"
            ),
        ),
        ({"apiVersion": "v1", "kind": ["x"]}, 400, "invalid object type: /v1, Kind="),
        ({"apiVersion": 1, "kind": "ConfigMap"}, 400, "invalid object type: /, Kind=ConfigMap"),
    ],
)
async def test_invalid_configuration_is_not_applied(plane: PlaneClient, config: Any, status: int, told: str) -> None:
    answer = await plane.call("PATCH", f"{MAPS}/a", config, media=APPLY, fieldManager="me")
    assert (answer.status, answer.body["message"]) == (status, told)


async def test_daemon_set_is_owned_with_its_annotation(plane: PlaneClient) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod_body()["spec"]}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    path = "/apis/apps/v1/namespaces/default/daemonsets"
    made = (await plane.call("POST", path, {"metadata": {"name": "d"}, "spec": spec})).body["metadata"]
    name = "deprecated.daemonset.template.generation"
    assert made["annotations"] == {name: "1"}
    owned = made["managedFields"][0]["fieldsV1"]["f:metadata"]["f:annotations"]
    assert owned == {".": {}, f"f:{name}": {}}


async def test_unknown_field_is_a_warning_or_an_error(plane: PlaneClient) -> None:
    odd = {"metadata": {"name": "a"}, "colour": "red"}
    strict = await plane.call("POST", MAPS, odd, fieldValidation="Strict")
    assert (strict.status, strict.body["message"]) == (
        400,
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "colour"',
    )
    assert (await plane.call("POST", MAPS, odd)).warnings == ['299 - "unknown field \\"colour\\""']
    patched = await plane.call("PATCH", f"{MAPS}/a", {"colour": "red"}, media=MERGE, fieldValidation="Strict")
    assert (patched.status, patched.body["details"]["causes"][0]["field"]) == (422, "patch")


async def test_patch_whose_result_is_not_of_the_kind_is_refused(plane: PlaneClient) -> None:
    await plane.call("POST", MAPS, {"metadata": {"name": "a"}})
    answer = await plane.call("PATCH", f"{MAPS}/a", {"data": 5}, media=MERGE)
    assert (answer.status, answer.body["reason"]) == (422, "Invalid")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("GET", "/api/v1/nothings", None, 404, "the server could not find the requested resource"),
        (
            "GET",
            "/api/v1/namespaces/default/nodes",
            None,
            404,
            "the server could not find the requested resource",
        ),
        ("GET", f"{MAPS}/a/nope", None, 404, "the server could not find the requested resource"),
        ("GET", "/api/v1/pods/p", None, 404, "the server could not find the requested resource"),
        ("POST", "/api/v1/pods", {}, 405, "the server does not allow this method"),
        ("DELETE", f"{PODS}/p/status", None, 405, "the server does not allow this method"),
        ("DELETE", "/api/v1/namespaces", None, 405, "the server does not allow this method"),
        ("POST", f"{MAPS}/a", {}, 405, "the server does not allow this method"),
        ("PUT", f"{MAPS}/a", {"metadata": {"name": "b"}}, 400, "does not match the name on the URL (a)"),
        ("PUT", f"{MAPS}/a", {}, 400, "name must be provided"),
        ("POST", MAPS, {"kind": "Nope"}, 400, 'no kind "Nope" is registered for version "v1"'),
        ("POST", MAPS, {"metadata": {"namespace": "other"}}, 400, "does not match the namespace sent"),
        ("DELETE", "/api/v1/namespaces/default", None, 403, "this namespace may not be deleted"),
    ],
)
async def test_invalid_requests_are_refused(
    plane: PlaneClient, method: str, path: str, body: Any, status: int, message: str
) -> None:
    answer = await plane.call(method, path, body)
    assert answer.status == status
    assert message in answer.body["message"]


async def test_unknown_group_is_answered_in_plain_text(plane: PlaneClient) -> None:
    answer = await plane.call("GET", "/apis/nope.example.com/v1/things")
    assert (answer.status, answer.body) == (404, "404 page not found\n")


async def test_nothing_is_created_for_an_unacceptable_representation(plane: PlaneClient) -> None:
    async with plane.session.post(MAPS, json={"metadata": {"name": "a"}}, headers={"Accept": "text/plain"}) as response:
        assert response.status == 406
    assert (await plane.call("GET", f"{MAPS}/a")).status == 404


@pytest.mark.parametrize(("path", "code"), [("/healthz", 200), ("/api/v1/namespaces/default", 405)])
async def test_health_has_a_head_and_objects_have_none(plane: PlaneClient, path: str, code: int) -> None:
    async with plane.session.head(path) as response:
        assert (response.status, await response.read()) == (code, b"")


async def test_anonymous_user_may_read_health_only(plane: PlaneClient) -> None:
    anonymous = {"Authorization": ""}
    async with plane.session.get("/livez", headers=anonymous) as response:
        assert response.status == 200
    async with plane.session.get(MAPS, headers=anonymous) as response:
        assert response.status == 403
    async with plane.session.get(MAPS, headers={"Authorization": "Bearer wrong"}) as response:
        assert response.status == 401


async def test_lease_is_created_by_put(plane: PlaneClient) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l"
    assert (await plane.call("PUT", path, {"metadata": {"name": "l"}, "spec": {}})).status == 201
    assert (await plane.call("PUT", f"{MAPS}/a", {"metadata": {"name": "a"}})).status == 404


async def test_pod_is_bound_once(plane: PlaneClient) -> None:
    await plane.call("POST", PODS, pod_body())
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "one"}}
    assert (await plane.call("POST", f"{PODS}/p/binding", binding)).status == 201
    bound = (await plane.call("GET", f"{PODS}/p")).body
    assert bound["spec"]["nodeName"] == "one"
    assert bound["status"]["conditions"][0]["type"] == "PodScheduled"
    assert (await plane.call("POST", f"{PODS}/p/binding", binding)).status == 409


async def test_pod_is_bound_to_nodes_only(plane: PlaneClient) -> None:
    await plane.call("POST", PODS, pod_body())
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Rack"}}
    answer = await plane.call("POST", f"{PODS}/p/binding", binding)
    kind = 'target.kind: Unsupported value: "Rack": supported values: "Node", "<empty>"'
    assert (answer.status, answer.body["message"]) == (500, f"[{kind}, target.name: Required value]")
    binding["target"]["name"] = "one"
    assert (await plane.call("POST", f"{PODS}/p/binding", binding)).body["message"] == kind


async def test_version_zero_is_any_version(plane: PlaneClient) -> None:
    first = {"metadata": {"name": "a", "resourceVersion": "0"}, "data": {"k": "v"}}
    assert (await plane.call("POST", MAPS, first)).status == 201
    changed = await plane.call("PUT", f"{MAPS}/a", {**first, "data": {"k": "w"}})
    assert (changed.status, changed.body["data"]) == (200, {"k": "w"})
    patch = {"metadata": {"resourceVersion": "0"}, "data": {"k": "x"}}
    assert (await plane.call("PATCH", f"{MAPS}/a", patch, media=MERGE)).body["data"] == {"k": "x"}
    stale = {"metadata": {"name": "a", "resourceVersion": "1"}}
    assert (await plane.call("PUT", f"{MAPS}/a", stale)).status == 409
    strange = {"metadata": {"name": "a", "resourceVersion": "x"}}
    told = (await plane.call("PUT", f"{MAPS}/a", strange)).body["message"]
    assert told == 'strconv.ParseUint: parsing "x": invalid syntax'


async def test_kind_in_a_strategic_patch_is_ignored(plane: PlaneClient) -> None:
    await plane.call("POST", MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    patch = {"kind": "Secret", "data": {"n": "1"}}
    answer = await plane.call("PATCH", f"{MAPS}/a", patch, media=STRATEGIC)
    assert (answer.status, answer.body["kind"], answer.body["data"]) == (
        200,
        "ConfigMap",
        {"k": "v", "n": "1"},
    )
    whole = {"$patch": "replace", "metadata": {"name": "a"}, "data": {"only": "1"}}
    answer = await plane.call("PATCH", f"{MAPS}/a", whole, media=STRATEGIC)
    assert (answer.status, answer.body["data"]) == (200, {"only": "1"})


async def test_selector_may_be_long(plane: PlaneClient) -> None:
    await plane.call("POST", MAPS, {"metadata": {"name": "a", "labels": {"n": "v4999"}}})
    values = ",".join(f"v{number}" for number in range(5000))
    answer = await plane.call("GET", MAPS, labelSelector=f"n in ({values})")
    assert [item["metadata"]["name"] for item in answer.body["items"]] == ["a"]


async def test_responses_are_not_cacheable_but_discovery_is(plane: PlaneClient) -> None:
    async with plane.session.get(MAPS) as response:
        assert response.headers["Cache-Control"] == "no-cache, private"
    headers = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    async with plane.session.get("/apis", headers=headers) as response:
        headers["If-None-Match"] = response.headers["ETag"]
    async with plane.session.get("/apis", headers=headers) as response:
        assert (response.status, await response.read()) == (304, b"")


async def test_collection_is_deleted_by_selector(plane: PlaneClient) -> None:
    for name, labels in (("a", {"x": "y"}), ("b", {})):
        await plane.call("POST", MAPS, {"metadata": {"name": name, "labels": labels}})
    answer = await plane.call("DELETE", MAPS, labelSelector="x=y")
    assert [item["metadata"]["name"] for item in answer.body["items"]] == ["a"]
    assert (await plane.call("GET", f"{MAPS}/b")).status == 200


async def test_old_version_of_an_autoscaler_shows_the_same_object(plane: PlaneClient) -> None:
    base = "/apis/autoscaling/{}/namespaces/default/horizontalpodautoscalers"
    target = {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}
    spec = {"maxReplicas": 3, "scaleTargetRef": target, "targetCPUUtilizationPercentage": 70}
    await plane.call("POST", base.format("v1"), {"metadata": {"name": "h"}, "spec": spec})
    (metric,) = (await plane.call("GET", f"{base.format('v2')}/h")).body["spec"]["metrics"]
    assert metric["resource"]["target"]["averageUtilization"] == 70
    old = (await plane.call("GET", f"{base.format('v1')}/h")).body
    assert (old["apiVersion"], old["spec"]["targetCPUUtilizationPercentage"]) == ("autoscaling/v1", 70)


async def test_inert_kinds_are_warned_of_when_enabled() -> None:
    async with running_plane(tells_inert=True) as plane:
        template = {"metadata": {"labels": {"a": "b"}}, "spec": pod_body()["spec"]}
        spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
        body = {"metadata": {"name": "d"}, "spec": spec}
        answer = await plane.call("POST", "/apis/apps/v1/namespaces/default/deployments", body)
    assert answer.warnings == ['299 - "gangline stores this Deployment, but runs no controller that acts on it"']


async def test_deprecated_version_of_a_custom_resource_is_warned_of(plane: PlaneClient) -> None:
    await plane.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widget_crd(deprecated=True))
    answer = await plane.poll_status("/apis/example.com/v1/widgets", 200)
    assert answer.warnings == ['299 - "example.com/v1 Widget is deprecated"']


async def test_system_priority_classes_exist(plane: PlaneClient) -> None:
    made = await plane.call("POST", PODS, pod_body(priorityClassName="system-node-critical"))
    assert made.body["spec"]["priority"] == 2_000_001_000


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "json parse error: unexpected end of JSON input (<empty>)"),
        (b"{", "json parse error: unexpected end of JSON input ({)"),
        (b"[1]", "json parse error: json: cannot unmarshal array into Go value of type struct"),
        (
            b'{"metadata": 5}',
            "json: cannot unmarshal number into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
        ),
    ],
)
async def test_body_that_is_no_object_is_refused_with_kube_apiservers_message(
    plane: PlaneClient, raw: bytes, message: str
) -> None:
    answer = await plane.call("POST", MAPS, raw)
    assert answer.status == 400
    assert message in answer.body["message"]


@pytest.mark.parametrize("patch", [{"kind": "Secret"}, {"apiVersion": "v2"}])
async def test_patch_cannot_change_the_kind(plane: PlaneClient, patch: Any) -> None:
    await plane.call("POST", MAPS, {"metadata": {"name": "a"}})
    answer = await plane.call("PATCH", f"{MAPS}/a", patch, media=MERGE)
    assert (answer.status, answer.body["details"]["causes"][0]["field"]) == (422, "patch")
    unknown = await plane.call("PATCH", f"{MAPS}/a", patch)
    assert (unknown.status, unknown.body["message"]) == (415, "415: Unsupported Media Type")
