"""Refusals and warnings that clients print: the same words from a real server and from ours."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.kube.config.connection import Connection
from gangline.kube.config.credentials import StaticToken
from gangline.local.plane import PlaneSettings, control_plane
from support.builders.objects import pod_body
from support.cluster.caller import MERGE_PATCH, Caller
from support.waiting import wait_until

JSON = dict[str, Any]
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
SYSTEM_CLASS = "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical"
ACCOUNT_ANNOTATION = "kubernetes.io/service-account.name"
MOUNTABLE = "kubernetes.io/enforce-mountable-secrets"
MOUNTABLE_WARNING = (
    f"metadata.annotations[{MOUNTABLE}]: deprecated in v1.32+; "
    "prefer separate namespaces to isolate access to mounted secrets"
)
AUTO_GENERATED_WARNING = (
    "Use tokens from the TokenRequest API or manually created secret-based tokens instead of auto-generated "
    "secret-based tokens."
)


@pytest.fixture
def caller(server: Connection, namespace: str) -> Caller:
    return Caller(server, namespace)


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Connection]:
    async with Store() as store, control_plane(store, PlaneSettings(certificates=tmp_path), SystemClock()) as running:
        yield running.connection


async def test_an_error_of_admission_names_the_prefix_of_a_name_that_was_not_generated_yet(caller: Caller) -> None:
    body: JSON = {**pod_body("", priorityClassName="none"), "metadata": {"generateName": "g-"}}
    answer = await caller.create("pods", body)
    assert answer.body["message"] == 'pods "g-" is forbidden: no PriorityClass with name none was found'
    assert answer.body["details"]["name"] == "g-"
    body["metadata"]["name"] = "both"
    answer = await caller.create("pods", body)
    assert answer.body["message"] == 'pods "both" is forbidden: no PriorityClass with name none was found'


async def test_an_error_of_quota_names_the_generated_name(caller: Caller) -> None:
    await caller.quota({"configmaps": "0"})
    body = {"metadata": {"generateName": "g-"}}
    refused: list[str] = []

    async def is_refused() -> bool:
        answer = await caller.create("configmaps", body)
        refused.extend([answer.body["details"]["name"]] if answer.status == 403 else [])
        return bool(refused)

    await wait_until(is_refused)
    assert refused[0].startswith("g-")
    assert len(refused[0]) == len("g-12345")


async def test_a_terminating_namespace_refuses_tokens_evictions_and_bindings(caller: Caller) -> None:
    held = {"metadata": {"name": "bot", "finalizers": ["example.com/held"]}}
    assert (await caller.create("serviceaccounts", held)).status == 201
    namespace = f"/api/v1/namespaces/{caller.namespace}"
    assert (await caller.call("DELETE", namespace)).status == 200
    why = f"unable to create new content in namespace {caller.namespace} because it is being terminated"
    target = {"target": {"name": "n"}, "metadata": {"name": "p"}}
    for dry_run in ("", "?dryRun=All"):
        for path, name, body in (
            ("serviceaccounts/bot/token", 'serviceaccounts "bot"', {}),
            ("pods/p/eviction", 'pods "p"', {"metadata": {"name": "p"}}),
            ("pods/p/binding", 'pods "p"', target),
            ("configmaps", 'configmaps "g-"', {"metadata": {"generateName": "g-"}}),
        ):
            answer = await caller.create(path + dry_run, body)
            assert (answer.status, answer.body["message"]) == (403, f"{name} is forbidden: {why}")
            assert answer.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    released = {"metadata": {"finalizers": None}}
    await caller.call("PATCH", f"{namespace}/serviceaccounts/bot", released, MERGE_PATCH)


@pytest.mark.parametrize("path", ["pods/p/eviction", "pods/p/binding", "serviceaccounts/a/token"])
async def test_a_subresource_of_a_missing_namespace_is_not_found_before_its_names_are_compared(
    caller: Caller, path: str
) -> None:
    body = {"metadata": {"name": "other"}, **({"target": {"name": "n"}} if path.endswith("binding") else {})}
    answer = await caller.call("POST", f"/api/v1/namespaces/missing/{path}", body)
    assert (answer.status, answer.body["message"]) == (404, 'namespaces "missing" not found')


@pytest.mark.parametrize(
    ("kind", "name", "why"),
    [
        ("Pod", "", "required."),
        ("Secret", "", "required."),
        ("Node", "", "required."),
        ("Pod", "a/b", "invalid: \"a/b\": may not contain '/'"),
        ("Secret", "..", "invalid: \"..\": may not be '..'"),
    ],
)
async def test_a_token_is_not_bound_to_an_object_without_a_usable_name(
    caller: Caller, kind: str, name: str, why: str
) -> None:
    assert (await caller.create("serviceaccounts", {"metadata": {"name": "bot"}})).status == 201
    request = {"spec": {"boundObjectRef": {"kind": kind, "apiVersion": "v1", "name": name}}}
    answer = await caller.create("serviceaccounts/bot/token", request)
    assert (answer.status, answer.body["message"]) == (400, f"Name parameter {why}")


async def test_a_body_that_is_no_object_is_refused_with_its_kind(caller: Caller) -> None:
    for path, kind in (
        (f"{AUTHORIZATION}/subjectaccessreviews", "SubjectAccessReview"),
        (f"{AUTHORIZATION}/namespaces/{caller.namespace}/localsubjectaccessreviews", "LocalSubjectAccessReview"),
        ("/apis/authentication.k8s.io/v1/selfsubjectreviews", "SelfSubjectReview"),
        (f"/api/v1/namespaces/{caller.namespace}/pods/p/eviction", "Eviction"),
        (f"/api/v1/namespaces/{caller.namespace}/pods/p/binding", "Binding"),
    ):
        answer = await caller.call("POST", path)
        assert answer.status == 400
        assert answer.body["message"] == (
            f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; "
            "json parse error: unexpected end of JSON input (<empty>)"
        )


async def test_system_priority_classes_cannot_be_deleted(caller: Caller) -> None:
    for query in ("", "?dryRun=All"):
        answer = await caller.call("DELETE", SYSTEM_CLASS + query)
        assert answer.status == 403
        assert answer.body["message"] == (
            'priorityclasses.scheduling.k8s.io "system-node-critical" is forbidden: '
            "this is a system priority class and cannot be deleted"
        )
    assert (await caller.call("GET", SYSTEM_CLASS)).status == 200


async def test_a_new_annotation_about_mountable_secrets_is_warned_of(caller: Caller) -> None:
    limited = {"metadata": {"name": "a", "annotations": {MOUNTABLE: "false"}}}
    assert (await caller.create("serviceaccounts", limited)).warnings == [MOUNTABLE_WARNING]
    path = f"/api/v1/namespaces/{caller.namespace}/serviceaccounts/a"
    changed = {"metadata": {"labels": {"a": "b"}}}
    assert (await caller.call("PATCH", path, changed, MERGE_PATCH)).warnings == []
    assert (await caller.create("serviceaccounts", {"metadata": {"name": "b"}})).warnings == []
    added = {"metadata": {"annotations": {MOUNTABLE: "true"}}}
    answer = await caller.call("PATCH", path[:-1] + "b", added, MERGE_PATCH)
    assert answer.warnings == [MOUNTABLE_WARNING]


async def test_the_token_of_a_secret_that_its_account_lists_is_warned_of(plane: Connection) -> None:
    """Only ours: in the real server of these tests no controller fills the Secret."""
    caller = Caller(plane, "default")
    await caller.create("serviceaccounts", {"metadata": {"name": "bot"}})
    secret = {"name": "bot-token", "annotations": {ACCOUNT_ANNOTATION: "bot"}}
    await caller.create("secrets", {"metadata": secret, "type": "kubernetes.io/service-account-token"})
    path = f"/api/v1/namespaces/{caller.namespace}"
    found: list[str] = []

    async def has_token() -> bool:
        answer = await caller.call("GET", f"{path}/secrets/bot-token")
        found[:] = [text for text in [(answer.body.get("data") or {}).get("token")] if text]
        return bool(found)

    await wait_until(has_token)
    token = base64.b64decode(found[0]).decode()
    bot = Caller(msgspec.structs.replace(plane, credentials=StaticToken(token, "test")), caller.namespace)
    review, review_path = {"spec": {"token": token}}, "/apis/authentication.k8s.io/v1/tokenreviews"
    assert (await bot.call("GET", f"{path}/pods")).warnings == []
    assert (await caller.call("POST", review_path, review)).warnings == []
    listed = {"secrets": [{"name": "bot-token"}]}
    assert (await caller.call("PATCH", f"{path}/serviceaccounts/bot", listed, MERGE_PATCH)).status == 200
    refused = await bot.call("GET", f"{path}/pods")
    assert (refused.status, refused.warnings) == (403, [AUTO_GENERATED_WARNING])
    whoami = await bot.call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert (whoami.status, whoami.warnings) == (201, [AUTO_GENERATED_WARNING])
    assert (await caller.call("POST", review_path, review)).warnings == [AUTO_GENERATED_WARNING]
