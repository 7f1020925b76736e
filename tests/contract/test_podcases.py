"""What `gangline check` says of pod templates is what servers say of the pods: no more, and no less."""

from typing import Any

import pytest

from gangline.api.meta import JSON
from gangline.api.scheme import Resource
from gangline.kube.client import Client
from gangline.kube.errors import Invalid
from support.cases.pods import POD_MISTAKES, VALID_POD_SPEC, VALID_VARIANTS

PODS = Resource("", "v1", "Pod", "pods", dict[str, Any])


@pytest.fixture
def disabled_plugins() -> tuple[str, ...]:
    """Without service accounts: they are looked up before a pod is validated."""
    return ("ServiceAccount",)


async def create(client: Client, namespace: str, spec: JSON) -> None:
    await client.create(PODS, {"metadata": {"generateName": "x-", "namespace": namespace}, "spec": spec})


async def test_a_server_refuses_every_pod_that_is_said_to_be_wrong(client: Client, namespace: str) -> None:
    for name, bad in POD_MISTAKES.items():
        with pytest.raises(Invalid) as caught:
            await create(client, namespace, bad.spec)
        assert caught.value.causes, name


async def test_a_server_takes_every_pod_that_nothing_is_said_of(client: Client, namespace: str) -> None:
    for spec in (VALID_POD_SPEC, *(fine.spec for fine in VALID_VARIANTS.values())):
        await create(client, namespace, spec)
