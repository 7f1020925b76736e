"""Tokens of service accounts, as TokenRequest issues them and requests and TokenReviews present them."""

import asyncio
import base64
import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.config.credentials import StaticToken
from gangline.kube.errors import ApiError
from gangline.kube.transport.api import Request
from gangline.kube.transport.http import HttpTransport
from support.builders.objects import pod_body

ISSUER = "https://kubernetes.default.svc"
ACCOUNTS: Resource[JSON] = Resource("", "v1", "ServiceAccount", "serviceaccounts", dict[str, Any])
PODS: Resource[JSON] = Resource("", "v1", "Pod", "pods", dict[str, Any])
SECRETS: Resource[JSON] = Resource("", "v1", "Secret", "secrets", dict[str, Any])


class TokenServer:
    """A server with the service account `bot` in a new namespace."""

    def __init__(self, client: Client, connection: Connection, namespace: str, uid: str) -> None:
        self.client, self._connection, self.namespace, self.uid = client, connection, namespace, uid

    async def call(self, path: str, body: JSON, client: Client | None = None) -> JSON:
        request = Request("POST", path, (), json.dumps(body).encode(), "application/json")
        answer: JSON = json.loads(await (client or self.client).requests.call(request))
        return answer

    async def request_token(self, body: JSON, account: str = "bot") -> JSON:
        return await self.call(f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token", body)

    async def token(self, **spec: object) -> str:
        return str((await self.request_token({"spec": spec}))["status"]["token"])

    async def refusal(self, body: JSON, account: str = "bot") -> ApiError:
        with pytest.raises(ApiError) as refused:
            await self.request_token(body, account)
        return refused.value

    async def review(self, token: str, *audiences: str) -> JSON:
        spec: JSON = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
        answer = await self.call("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": spec})
        status: JSON = answer["status"]
        return status

    async def who_am_i(self, token: str) -> JSON:
        connection = msgspec.structs.replace(self._connection, credentials=StaticToken(token, "test"))
        async with HttpTransport(connection) as transport:
            answer = await self.call("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, Client(transport))
        user: JSON = answer["status"]["userInfo"]
        return user


@pytest.fixture
async def tokens(client: Client, server: Connection, namespace: str) -> TokenServer:
    account = await client.create(ACCOUNTS, {"metadata": {"name": "bot", "namespace": namespace}})
    return TokenServer(client, server, namespace, account["metadata"]["uid"])


def claims_of(token: str) -> JSON:
    part = token.split(".")[1]
    claims: JSON = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return claims


async def test_token_request_is_answered_with_a_token_and_its_defaults(tokens: TokenServer) -> None:
    answer = await tokens.request_token({})
    claims = claims_of(answer["status"]["token"])
    assert (answer["kind"], answer["apiVersion"]) == ("TokenRequest", "authentication.k8s.io/v1")
    assert answer["spec"] == {"audiences": [ISSUER], "expirationSeconds": 3600, "boundObjectRef": None}
    metadata = answer["metadata"]
    assert (metadata["name"], metadata["namespace"], metadata["uid"]) == ("bot", tokens.namespace, tokens.uid)
    assert metadata["managedFields"][0]["fieldsV1"] == {"f:spec": {"f:expirationSeconds": {}}}
    assert metadata["managedFields"][0]["subresource"] == "token"
    assert set(claims) == {"aud", "exp", "iat", "iss", "jti", "kubernetes.io", "nbf", "sub"}
    assert (claims["iss"], claims["aud"]) == (ISSUER, [ISSUER])
    assert claims["sub"] == f"system:serviceaccount:{tokens.namespace}:bot"
    assert claims["exp"] - claims["iat"] == 3600
    assert claims["kubernetes.io"] == {
        "namespace": tokens.namespace,
        "serviceaccount": {"name": "bot", "uid": tokens.uid},
    }


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (
            {"spec": {"expirationSeconds": 599}},
            422,
            (
                'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 599: '
                "may not specify a duration less than 10 minutes"
            ),
        ),
        (
            {"spec": {"expirationSeconds": 2**32 + 1}},
            422,
            (
                'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 4294967297: '
                "may not specify a duration larger than 2^32 seconds"
            ),
        ),
        (
            {"metadata": {"name": "other"}},
            422,
            (
                'TokenRequest.authentication.k8s.io "bot" is invalid: metadata.name: Invalid value: "other": '
                "must match the service account name if specified"
            ),
        ),
        (
            {"metadata": {"namespace": "other"}},
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            {"spec": {"boundObjectRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}}},
            400,
            "cannot bind token to object of type apps/v1, Kind=Deployment",
        ),
        ({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "x"}}}, 404, 'pods "x" not found'),
        (
            {"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": "x"}}},
            404,
            'secrets "x" not found',
        ),
        (
            {"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": "none-such"}}},
            404,
            'nodes "none-such" not found',
        ),
        (
            {"kind": "Pod", "apiVersion": "v1"},
            400,
            (
                'Pod in version "v1" cannot be handled as a TokenRequest: converting (v1.Pod) to '
                "(authentication.TokenRequest): unknown conversion"
            ),
        ),
    ],
)
async def test_bad_token_request_is_refused_in_kube_apiservers_words(
    tokens: TokenServer, body: JSON, code: int, message: str
) -> None:
    error = await tokens.refusal(body)
    assert (error.code, str(error)) == (code, message)


async def test_token_request_names_the_uid_it_expects(tokens: TokenServer) -> None:
    error = await tokens.refusal({"metadata": {"uid": "x"}})
    assert error.code == 409
    assert str(error) == (
        'Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "bot": the UID in the token request (x) '
        f"does not match the UID of the service account ({tokens.uid})"
    )
    assert (await tokens.refusal({}, "nobody")).status.message == 'serviceaccounts "nobody" not found'


async def test_token_bound_to_a_pod_ends_with_it(tokens: TokenServer) -> None:
    pod = await _create_pod(tokens, "bot")
    uid = pod["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "one", "uid": uid}
    token = await tokens.token(boundObjectRef=reference, expirationSeconds=3607)
    claims = claims_of(token)
    assert claims["kubernetes.io"]["pod"] == {"name": "one", "uid": uid}
    assert claims["kubernetes.io"]["node"] == {"name": "elsewhere"}
    assert claims["exp"] - claims["iat"] == 365 * 24 * 3600
    assert claims["kubernetes.io"]["warnafter"] - claims["iat"] == 3607
    user = await tokens.who_am_i(token)
    assert user == {
        "username": f"system:serviceaccount:{tokens.namespace}:bot",
        "uid": tokens.uid,
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{tokens.namespace}", "system:authenticated"],
        "extra": {
            "authentication.kubernetes.io/credential-id": [f"JTI={claims['jti']}"],
            "authentication.kubernetes.io/node-name": ["elsewhere"],
            "authentication.kubernetes.io/pod-name": ["one"],
            "authentication.kubernetes.io/pod-uid": [uid],
        },
    }
    error = await tokens.refusal({"spec": {"boundObjectRef": {**reference, "uid": "x"}}})
    assert str(error) == (
        'Operation cannot be fulfilled on Pod "one": the UID in the bound object reference (x) does not match the UID '
        "in record. The object might have been deleted and then recreated"
    )
    await tokens.client.delete(PODS, Key(tokens.namespace, "one"), grace=timedelta())
    # A real server accepts it for some seconds more: it caches what it has authenticated.
    async with asyncio.timeout(30):
        while (status := await tokens.review(token)).get("authenticated"):
            pass
    assert status == {
        "user": {},
        "error": "[invalid bearer token, service account token has been invalidated]",
    }


async def test_token_is_bound_only_to_pods_of_its_account(tokens: TokenServer) -> None:
    await tokens.client.create(ACCOUNTS, {"metadata": {"name": "other", "namespace": tokens.namespace}})
    await _create_pod(tokens, "other")
    error = await tokens.refusal({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "one"}}})
    assert (error.code, str(error)) == (
        400,
        'cannot bind token for serviceaccount "bot" to pod running with different serviceaccount name.',
    )


async def test_token_is_for_its_audiences_only(tokens: TokenServer) -> None:
    token = await tokens.token(audiences=["vault", "other"])
    status = await tokens.review(token, "vault", "more")
    assert (status["authenticated"], status["audiences"]) == (True, ["vault"])
    with pytest.raises(ApiError) as refused:
        await tokens.who_am_i(token)
    assert refused.value.code == 401
    status = await tokens.review(token)
    assert status == {
        "user": {},
        "error": (
            '[invalid bearer token, token audiences ["vault" "other"] is invalid for the target audiences '
            f'["{ISSUER}"]]'
        ),
    }


async def test_review_of_an_unknown_or_changed_token_says_why(tokens: TokenServer) -> None:
    assert await tokens.review("nonsense") == {"user": {}, "error": "invalid bearer token"}
    token = await tokens.token()
    changed = f"{token[:-8]}AAAAAAAA"
    error = "[invalid bearer token, go-jose/go-jose: error in cryptographic primitive]"
    assert await tokens.review(changed) == {"user": {}, "error": error}


async def _create_pod(tokens: TokenServer, account: str) -> JSON:
    body = pod_body("one", tokens.namespace, serviceAccountName=account, nodeName="elsewhere")
    return await tokens.client.create(PODS, body)
