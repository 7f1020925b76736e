"""Tokens of service accounts end with time, and at once with the objects they name."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from gangline.api.meta import JSON, Key
from gangline.apiserver.auth.authentication import Authenticator
from gangline.apiserver.auth.service_account_tokens import MAX_VERIFIED_TOKENS, ServiceAccountTokens, TokenError
from gangline.apiserver.auth.signing_key import SigningKey
from gangline.apiserver.auth.token_requests import TokenIssuer
from gangline.apiserver.errors import StatusError
from gangline.apiserver.registry.deletion import DeletionOptions
from gangline.testing.clock import FakeClock
from support.builders.objects import pod_body
from support.servers.plane import TEST_CALL, RegistryHarness, registry_harness

ACCOUNT = Key("ns", "bot")


class Tokens:
    """A registry with the service account `bot`, and who authenticates its tokens."""

    def __init__(self, registry: RegistryHarness, clock: FakeClock) -> None:
        self.registry, self.clock = registry, clock
        self.key = CountingKey()
        self.authenticator = Authenticator({}, ServiceAccountTokens(registry.store, self.key, clock))
        self.issuer = TokenIssuer(registry.store, self.key, clock)

    def issue(self, **spec: object) -> str:
        answer = self.issuer.issue(ACCOUNT, {"spec": {"expirationSeconds": 3600, **spec}})
        return str(answer["status"]["token"])

    def bound_token(self, kind: str, name: str) -> str:
        return self.issue(boundObjectRef={"apiVersion": "v1", "kind": kind, "name": name})

    def user(self, token: str) -> str:
        return self.authenticator.authenticate(f"Bearer {token}", None).name

    def refusal(self, token: str) -> str:
        with pytest.raises(TokenError) as refused:
            self.authenticator.authenticate_token(token)
        with pytest.raises(StatusError) as unauthorized:
            self.authenticator.authenticate(f"Bearer {token}", None)
        assert unauthorized.value.code == 401
        assert token not in str(refused.value)
        return str(refused.value)

    async def delete(self, plural: str, name: str) -> None:
        kind = self.registry.entry(plural)
        await self.registry.registry.delete(TEST_CALL, kind, Key("ns", name), DeletionOptions(grace_seconds=0))


class CountingKey(SigningKey):
    """Counts verified signatures."""

    def __init__(self) -> None:
        super().__init__()
        self.verified = 0

    def verify(self, token: str) -> None:
        self.verified += 1
        super().verify(token)


@pytest.fixture
async def tokens() -> AsyncIterator[Tokens]:
    clock = FakeClock()
    async with registry_harness(clock) as registry:
        await registry.create("serviceaccounts", {"metadata": {"name": "bot"}})
        yield Tokens(registry, clock)


async def test_signature_is_verified_once(tokens: Tokens) -> None:
    token = tokens.issue()
    for _ in range(3):
        assert tokens.user(token) == "system:serviceaccount:ns:bot"
    assert tokens.key.verified == 1


async def test_verified_tokens_are_bounded(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.apiserver.auth.service_account_tokens.MAX_VERIFIED_TOKENS", 2)
    assert MAX_VERIFIED_TOKENS > 2
    issued = [tokens.issue() for _ in range(3)]
    for token in (*issued, issued[0]):
        tokens.user(token)
    assert tokens.key.verified == 4


async def test_token_expires_although_it_was_verified(tokens: Tokens) -> None:
    token = tokens.issue(expirationSeconds=600)
    tokens.user(token)
    await tokens.clock.advance(timedelta(seconds=659))
    tokens.user(token)
    await tokens.clock.advance(timedelta(seconds=2))
    assert tokens.refusal(token) == "[invalid bearer token, service account token has expired]"


async def test_token_ends_at_once_with_its_account(tokens: Tokens) -> None:
    token = tokens.issue()
    tokens.user(token)
    await tokens.delete("serviceaccounts", "bot")
    assert tokens.refusal(token) == '[invalid bearer token, serviceaccounts "bot" not found]'
    await tokens.registry.create("serviceaccounts", {"metadata": {"name": "bot"}})
    assert "does not match claim" in tokens.refusal(token)


@pytest.mark.parametrize(("kind", "plural"), [("Pod", "pods"), ("Secret", "secrets"), ("Node", "nodes")])
async def test_token_ends_at_once_with_the_object_it_is_bound_to(tokens: Tokens, kind: str, plural: str) -> None:
    def body() -> JSON:
        return pod_body("one", serviceAccountName="bot") if kind == "Pod" else {"metadata": {"name": "one"}}

    await tokens.registry.create(plural, body())
    token = tokens.bound_token(kind, "one")
    tokens.user(token)
    await tokens.delete(plural, "one")
    assert tokens.refusal(token) == "[invalid bearer token, service account token has been invalidated]"
    await tokens.registry.create(plural, body())
    assert f"does not match service account {kind.lower()} ref claim" in tokens.refusal(token)


async def test_projected_token_of_a_pod_is_accepted_longer_than_its_file_is_kept(tokens: Tokens) -> None:
    await tokens.registry.create("pods", pod_body("one", serviceAccountName="bot"))
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "one"}
    token = tokens.issue(boundObjectRef=reference, expirationSeconds=3607)
    await tokens.clock.advance(timedelta(days=364))
    tokens.user(token)
    await tokens.clock.advance(timedelta(days=2))
    assert "expired" in tokens.refusal(token)


@pytest.mark.parametrize("token", ["nonsense", "a.b.c", "..", "eyJhbGciOiJub25lIn0.e30.", "[" * 5000])
async def test_text_that_is_no_token_of_ours_is_unknown(tokens: Tokens, token: str) -> None:
    assert tokens.refusal(token) == "invalid bearer token"
