"""Secrets with tokens of service accounts, on a running plane."""

import base64
from typing import Any

import pytest

from gangline.api.meta import JSON
from gangline.apiserver.store.errors import StoreFailed
from gangline.local.controllers import legacy_tokens
from gangline.local.registry_writes import edit_object
from support.servers.plane import PlaneClient, running_plane

SECRETS, ACCOUNTS = "/api/v1/namespaces/default/secrets", "/api/v1/namespaces/default/serviceaccounts"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


def token_secret(name: str, account: str) -> JSON:
    annotations = {"kubernetes.io/service-account.name": account}
    return {
        "metadata": {"name": name, "annotations": annotations},
        "type": "kubernetes.io/service-account-token",
    }


async def filled_secret(plane: PlaneClient) -> JSON:
    await plane.call("POST", ACCOUNTS, {"metadata": {"name": "bot"}, "secrets": [{"name": "old"}]})
    await plane.call("POST", SECRETS, token_secret("old", "bot"))
    answer = await plane.poll_until(f"{SECRETS}/old", lambda answer: bool(answer.body.get("data", {}).get("token")))
    secret: JSON = answer.body
    return secret


async def test_secret_is_filled_and_its_token_works_until_it_is_deleted() -> None:
    async with running_plane() as plane:
        secret = await filled_secret(plane)
        account = (await plane.call("GET", f"{ACCOUNTS}/bot")).body["metadata"]
        assert base64.b64decode(secret["data"]["namespace"]) == b"default"
        assert secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"] == account["uid"]
        token = base64.b64decode(secret["data"]["token"]).decode()
        status = (await plane.call("POST", REVIEWS, {"spec": {"token": token}})).body["status"]
        assert status["user"] == {
            "username": "system:serviceaccount:default:bot",
            "uid": account["uid"],
            "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
        }
        label = "kubernetes.io/legacy-token-last-used"
        await plane.poll_until(f"{SECRETS}/old", lambda answer: label in answer.body["metadata"].get("labels", {}))
        await plane.call("DELETE", f"{SECRETS}/old")
        status = (await plane.call("POST", REVIEWS, {"spec": {"token": token}})).body["status"]
        assert status == {"user": {}, "error": "[invalid bearer token, Token has been invalidated]"}
        await plane.poll_until(f"{ACCOUNTS}/bot", lambda answer: not answer.body.get("secrets"))


async def test_secret_without_its_account_is_deleted() -> None:
    async with running_plane() as plane:
        await filled_secret(plane)
        await plane.call("DELETE", f"{ACCOUNTS}/bot")
        await plane.poll_status(f"{SECRETS}/old", 404)
        assert (await plane.call("POST", SECRETS, token_secret("lost", "nobody"))).status == 201
        await plane.poll_status(f"{SECRETS}/lost", 404)


async def test_token_that_was_marked_invalid_is_refused() -> None:
    async with running_plane() as plane:
        secret = await filled_secret(plane)
        labels = {"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": "2026-01-01"}}}
        await plane.call("PATCH", f"{SECRETS}/old", labels, media="application/merge-patch+json")
        token = base64.b64decode(secret["data"]["token"]).decode()
        status = (await plane.call("POST", REVIEWS, {"spec": {"token": token}})).body["status"]
        assert "has been marked invalid. Use tokens from the TokenRequest API" in status["error"]


async def test_secret_that_could_not_be_filled_is_filled_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_plane() as plane:
        failures = [StoreFailed("no space")]

        async def fail_once(*args: Any) -> None:
            if failures:
                raise failures.pop()
            await edit_object(*args)

        monkeypatch.setattr(legacy_tokens, "edit_object", fail_once)
        assert (await filled_secret(plane))["data"]["token"]
        assert not failures
