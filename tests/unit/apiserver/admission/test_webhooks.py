"""Admission webhooks, called by a whole plane."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from support.servers.admission import AdmissionServer, admission_server, allow, deny, patch
from support.servers.plane import PlaneAnswer, PlaneClient, running_plane
from support.servers.real import free_ports

JSON = dict[str, Any]
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PODS = "/api/v1/namespaces/default/pods"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
ALL_CONFIG_MAPS = [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]


def label(name: str, value: str = "yes") -> JSON:
    return {"op": "add", "path": f"/metadata/labels/{name}", "value": value}


NO_LABELS: JSON = {"op": "add", "path": "/metadata/labels", "value": {}}


@asynccontextmanager
async def plane_and_server() -> AsyncIterator[tuple[PlaneClient, AdmissionServer]]:
    async with running_plane() as plane, admission_server("hook.default.svc") as server:
        await plane.poll_status("/api/v1/namespaces/default/serviceaccounts/default", 200)
        yield plane, server


async def configure(plane: PlaneClient, kind: str, *webhooks: JSON, name: str = "hooks") -> None:
    body = {"metadata": {"name": name}, "webhooks": list(webhooks)}
    answer = await plane.call("POST", f"{ADMISSION}/{kind}webhookconfigurations", body)
    assert answer.status == 201, answer.body


def pod(name: str, **labels: str) -> JSON:
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}


async def create_pod(plane: PlaneClient, name: str = "p", **query: str) -> PlaneAnswer:
    return await plane.call("POST", PODS, pod(name), **query)


async def test_a_mutating_webhook_changes_a_new_object() -> None:
    async with plane_and_server() as (plane, server):
        changes = patch(NO_LABELS, label("patched"), {"op": "add", "path": "/spec/hostname", "value": "h"})
        await configure(plane, "mutating", server.webhook("/m", changes))
        answer = await create_pod(plane)
        assert answer.status == 201, answer.body
        assert answer.body["metadata"]["labels"] == {"patched": "yes"}
        assert answer.body["spec"]["hostname"] == "h"
        (request,) = server.asked("/m")
        assert request["kind"] == {"group": "", "version": "v1", "kind": "Pod"}
        assert request["resource"] == {"group": "", "version": "v1", "resource": "pods"}
        assert (request["name"], request["namespace"], request["operation"]) == ("p", "default", "CREATE")
        assert request["userInfo"]["username"] == "admin"
        assert request["object"]["spec"]["serviceAccountName"] == "default"
        assert "uid" not in request["object"]["metadata"]
        assert request["oldObject"] is None
        assert request["dryRun"] is False
        assert request["options"]["kind"] == "CreateOptions"


async def test_fields_that_a_patch_adds_get_their_defaults() -> None:
    async with plane_and_server() as (plane, server):
        sidecar = {"op": "add", "path": "/spec/containers/-", "value": {"name": "sidecar", "image": "y"}}
        await configure(plane, "mutating", server.webhook("/m", patch(sidecar)))
        answer = await create_pod(plane)
        assert answer.status == 201, answer.body
        added = answer.body["spec"]["containers"][1]
        assert added["imagePullPolicy"] == "Always"
        # The plugins admit what was added as well.
        assert [mount["mountPath"] for mount in added["volumeMounts"]] == [
            "/var/run/secrets/kubernetes.io/serviceaccount"
        ]


async def test_a_patch_that_makes_an_object_invalid_is_refused_by_validation() -> None:
    async with plane_and_server() as (plane, server):
        wrong = patch({"op": "replace", "path": "/spec/containers/0/name", "value": "Bad Name"})
        await configure(plane, "mutating", server.webhook("/m", wrong))
        answer = await create_pod(plane)
        assert answer.status == 422
        assert "spec.containers[0].name" in answer.body["message"]


async def test_a_generated_name_is_unknown_to_mutating_webhooks_and_known_to_validating_ones() -> None:
    async with plane_and_server() as (plane, server):
        await configure(plane, "mutating", server.webhook("/m"))
        await configure(plane, "validating", server.webhook("/v"))
        body = {"metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
        answer = await plane.call("POST", PODS, body)
        assert answer.status == 201
        assert "name" not in server.asked("/m")[0]["object"]["metadata"]
        assert server.asked("/v")[0]["object"]["metadata"]["name"] == answer.body["metadata"]["name"]


async def test_a_validating_webhook_refuses_with_its_own_words_and_code() -> None:
    async with plane_and_server() as (plane, server):
        refuse = deny(message="no pods today", code=409, reason="Conflict")
        await configure(plane, "validating", server.webhook("/v", refuse))
        answer = await create_pod(plane)
        assert (answer.status, answer.body["reason"]) == (409, "Conflict")
        assert answer.body["message"] == 'admission webhook "v.hooks.example.com" denied the request: no pods today'
        assert (await plane.call("GET", f"{PODS}/p")).status == 404


async def test_a_refusal_without_words_has_kubernetes_words() -> None:
    async with plane_and_server() as (plane, server):
        await configure(plane, "validating", server.webhook("/v", deny()))
        answer = await create_pod(plane)
        assert answer.status == 400
        expected = 'admission webhook "v.hooks.example.com" denied the request without explanation'
        assert answer.body["message"] == expected


async def test_warnings_of_webhooks_reach_the_client() -> None:
    async with plane_and_server() as (plane, server):
        warn = lambda request: {"allowed": True, "warnings": ["old style"]}  # noqa: E731
        await configure(plane, "validating", server.webhook("/v", warn))
        answer = await create_pod(plane)
        assert answer.status == 201
        assert any("old style" in text for text in answer.warnings)


async def test_updates_and_deletions_show_the_old_object() -> None:
    async with plane_and_server() as (plane, server):
        await configure(plane, "validating", server.webhook("/v", rules=ALL_CONFIG_MAPS))
        await plane.call("POST", CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"a": "1"}})
        change = {"data": {"a": "2"}}
        await plane.call("PATCH", f"{CONFIG_MAPS}/c", change, media="application/merge-patch+json")
        assert (await plane.call("DELETE", f"{CONFIG_MAPS}/c")).status == 200
        created, updated, deleted = server.asked("/v")
        assert (created["operation"], updated["operation"], deleted["operation"]) == ("CREATE", "UPDATE", "DELETE")
        assert (updated["oldObject"]["data"], updated["object"]["data"]) == ({"a": "1"}, {"a": "2"})
        assert updated["options"]["kind"] == "PatchOptions"
        assert (deleted["object"], deleted["oldObject"]["data"]) == (None, {"a": "2"})


async def test_a_refused_deletion_leaves_the_object() -> None:
    async with plane_and_server() as (plane, server):
        keep = lambda request: {"allowed": request["operation"] != "DELETE"}  # noqa: E731
        await configure(plane, "validating", server.webhook("/v", keep, rules=ALL_CONFIG_MAPS))
        await plane.call("POST", CONFIG_MAPS, {"metadata": {"name": "c"}})
        assert (await plane.call("DELETE", f"{CONFIG_MAPS}/c")).status == 400
        assert (await plane.call("GET", f"{CONFIG_MAPS}/c")).status == 200
        assert (await plane.call("DELETE", CONFIG_MAPS, fieldSelector="metadata.name=c")).status == 400


async def test_selectors_decide_which_requests_a_webhook_gets() -> None:
    async with plane_and_server() as (plane, server):
        await configure(
            plane,
            "validating",
            server.webhook("/labelled", objectSelector={"matchLabels": {"team": "a"}}, rules=ALL_CONFIG_MAPS),
            server.webhook(
                "/elsewhere",
                namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "other"}},
                rules=ALL_CONFIG_MAPS,
            ),
        )
        await plane.call("POST", CONFIG_MAPS, {"metadata": {"name": "plain"}})
        await plane.call("POST", CONFIG_MAPS, {"metadata": {"name": "mine", "labels": {"team": "a"}}})
        await plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
        await plane.call("POST", "/api/v1/namespaces/other/configmaps", {"metadata": {"name": "there"}})
        assert [request["name"] for request in server.asked("/labelled")] == ["mine"]
        assert "there" in [request["name"] for request in server.asked("/elsewhere")]
        assert {request["namespace"] for request in server.asked("/elsewhere")} == {"other"}


async def test_match_conditions_decide_with_cel() -> None:
    async with plane_and_server() as (plane, server):
        conditions = [
            {"name": "not-plain", "expression": "object.metadata.name != 'plain'"},
            {"name": "admin", "expression": "authorizer.group('').resource('pods').check('delete').allowed()"},
        ]
        await configure(plane, "validating", server.webhook("/v", rules=ALL_CONFIG_MAPS, matchConditions=conditions))
        await plane.call("POST", CONFIG_MAPS, {"metadata": {"name": "plain"}})
        await plane.call("POST", CONFIG_MAPS, {"metadata": {"name": "other"}})
        assert [request["name"] for request in server.asked("/v")] == ["other"]


async def test_a_failing_match_condition_follows_the_failure_policy() -> None:
    async with plane_and_server() as (plane, server):
        conditions = [{"name": "c", "expression": "object.data.missing == 'x'"}]
        hook = server.webhook("/v", rules=ALL_CONFIG_MAPS, matchConditions=conditions)
        await configure(plane, "validating", {**hook, "failurePolicy": "Ignore"}, name="ignore")
        assert (await plane.call("POST", CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})).status == 201
        await configure(plane, "validating", hook, name="fail")
        answer = await plane.call("POST", CONFIG_MAPS, {"metadata": {"name": "b"}, "data": {"k": "v"}})
        assert answer.status == 403
        assert "no such key: missing" in answer.body["message"]
        assert not server.asked("/v")


async def test_a_webhook_that_cannot_be_reached_fails_the_request_or_is_ignored() -> None:
    async with plane_and_server() as (plane, server):
        (port,) = free_ports(1)
        config = {"url": f"https://127.0.0.1:{port}/gone", "caBundle": server.bundle}
        gone = server.webhook("/gone", clientConfig=config)
        await configure(plane, "validating", {**gone, "failurePolicy": "Ignore"}, name="ignore")
        assert (await create_pod(plane, "a")).status == 201
        await configure(plane, "mutating", gone, name="fail")
        answer = await create_pod(plane, "b")
        assert (answer.status, answer.body["reason"]) == (500, "InternalError")
        assert answer.body["message"] == (
            'Internal error occurred: failed calling webhook "gone.hooks.example.com": failed to call webhook: '
            f'Post "https://127.0.0.1:{port}/gone?timeout=10s": '
            f"dial tcp 127.0.0.1:{port}: connect: connection refused"
        )


async def test_a_webhook_with_the_certificate_of_another_ca_is_not_trusted() -> None:
    async with plane_and_server() as (plane, server), admission_server() as other:
        hook = server.webhook("/v")
        hook["clientConfig"]["caBundle"] = other.bundle
        await configure(plane, "validating", hook)
        answer = await create_pod(plane)
        assert answer.status == 500
        assert "failed to verify certificate" in answer.body["message"]
        assert not server.requests


async def test_a_dry_run_is_passed_on() -> None:
    async with plane_and_server() as (plane, server):
        await configure(plane, "mutating", server.webhook("/m", patch(NO_LABELS)))
        answer = await create_pod(plane, dryRun="All")
        assert answer.status == 201
        assert server.asked("/m")[0]["dryRun"] is True
        assert server.asked("/m")[0]["options"]["dryRun"] == ["All"]
        assert (await plane.call("GET", f"{PODS}/p")).status == 404


async def test_a_webhook_is_called_again_if_a_later_one_changed_the_object() -> None:
    async with plane_and_server() as (plane, server):
        first = server.webhook("/first", reinvocationPolicy="IfNeeded")
        never = server.webhook("/never")
        last = server.webhook("/last", patch(NO_LABELS, label("late")))
        await configure(plane, "mutating", first, never, last)
        assert (await create_pod(plane)).status == 201
        assert [path for path, _ in server.requests] == ["/first", "/never", "/last", "/first"]
        assert server.asked("/first")[1]["object"]["metadata"]["labels"] == {"late": "yes"}


async def test_webhooks_are_called_in_order_of_their_configurations() -> None:
    async with plane_and_server() as (plane, server):
        await configure(plane, "mutating", server.webhook("/b"), name="b")
        await configure(plane, "mutating", server.webhook("/a"), name="a")
        await create_pod(plane)
        assert [path for path, _ in server.requests] == ["/a", "/b"]


async def test_an_equivalent_version_is_converted_for_the_webhook() -> None:
    async with plane_and_server() as (plane, server):
        group = "autoscaling"
        rules = [{"operations": ["CREATE"], "apiGroups": [group], "apiVersions": ["v1"], "resources": ["*"]}]
        await configure(
            plane,
            "validating",
            server.webhook("/equivalent", rules=rules),
            server.webhook("/exact", rules=rules, matchPolicy="Exact"),
        )
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
        resource = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
        body = {
            "metadata": {"name": "h"},
            "spec": {
                "scaleTargetRef": target,
                "maxReplicas": 3,
                "metrics": [{"type": "Resource", "resource": resource}],
            },
        }
        answer = await plane.call("POST", f"/apis/{group}/v2/namespaces/default/horizontalpodautoscalers", body)
        assert answer.status == 201, answer.body
        (request,) = server.asked("/equivalent")
        assert request["object"]["apiVersion"] == "autoscaling/v1"
        assert request["object"]["spec"]["targetCPUUtilizationPercentage"] == 50
        assert (request["kind"]["version"], request["requestKind"]["version"]) == ("v1", "v2")
        assert not server.asked("/exact")


async def test_a_webhook_behind_a_service_is_reached_at_its_pod() -> None:
    async with plane_and_server() as (plane, server):
        ports = [{"port": 443, "targetPort": server.port}]
        service = {"metadata": {"name": "hook"}, "spec": {"selector": {"app": "hook"}, "ports": ports}}
        assert (await plane.call("POST", "/api/v1/namespaces/default/services", service)).status == 201
        hook = server.webhook("/v", objectSelector={"matchLabels": {"app": "checked"}})
        reference = {"namespace": "default", "name": "hook", "path": "/v"}
        hook["clientConfig"] = {"service": reference, "caBundle": server.bundle}
        await configure(plane, "validating", hook)
        refused = await plane.call("POST", PODS, pod("a", app="checked"))
        assert refused.body["message"].endswith('no endpoints available for service "hook"')
        assert (await plane.call("POST", PODS, pod("server", app="hook"))).status == 201
        status = {"status": {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}
        patched = await plane.call("PATCH", f"{PODS}/server/status", status, media="application/merge-patch+json")
        assert patched.status == 200, patched.body
        assert (await plane.call("POST", PODS, pod("b", app="checked"))).status == 201
        assert server.asked("/v")[0]["name"] == "b"


async def test_configurations_of_admission_are_never_sent_to_webhooks() -> None:
    async with plane_and_server() as (plane, server):
        everything = [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]
        await configure(plane, "validating", server.webhook("/v", deny(), rules=everything))
        deleted = await plane.call("DELETE", f"{ADMISSION}/validatingwebhookconfigurations/hooks")
        assert deleted.status == 200, deleted.body


async def test_an_answer_to_another_request_is_refused() -> None:
    async with plane_and_server() as (plane, server):
        await configure(plane, "validating", server.webhook("/v", lambda request: {"allowed": True, "uid": "x"}))
        answer = await create_pod(plane)
        assert answer.status == 500
        assert "received invalid webhook response: expected response.uid=" in answer.body["message"]


async def test_without_a_configuration_nothing_is_called() -> None:
    async with plane_and_server() as (plane, server):
        server.webhook("/v", allow)
        assert (await create_pod(plane)).status == 201
        assert not server.requests
