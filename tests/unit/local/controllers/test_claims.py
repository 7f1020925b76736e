"""A deleted claim stays as long as a pod uses it, and is then removed with its folder."""

from pathlib import Path
from typing import Any

import pytest

from gangline.api.core import Pod
from gangline.api.meta import Key, ObjectMeta
from gangline.api.scheme import CORE_SCHEME
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.errors import NotFound
from gangline.local.cluster import LocalSettings, local_cluster
from gangline.local.controllers.claims import (
    CLAIMS,
    PROTECTION_FINALIZER,
    ProtectedClaim,
    terminating_claims,
    uses_claim,
)
from gangline.runtime.cache import Cache
from gangline.testing.builders import make_pod
from gangline.testing.clock import FakeClock
from support.builders.objects import pod_body
from support.cluster.node import file_text
from support.waiting import wait_until

KEY = Key("default", "data")
CLAIM = {
    "metadata": {"name": "data", "namespace": "default"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
}
VOLUME = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
MOUNT = {"name": "data", "mountPath": "/data"}


def pod() -> dict[str, Any]:
    command = ["python", "-c", "open('/data/x', 'w').write('kept'); import time; time.sleep(600)"]
    container = {"name": "c", "image": "i", "command": command, "volumeMounts": [MOUNT]}
    return pod_body("p", "default", containers=[container], volumes=[VOLUME], terminationGracePeriodSeconds=0)


async def wait_until_deleted(client: Client) -> None:
    """Wait until the claim is deleted."""
    while True:
        try:
            await client.get(CLAIMS, KEY)
        except NotFound:
            return


@pytest.mark.slow
async def test_a_claim_goes_with_its_last_pod_and_takes_its_folder_along(tmp_path: Path) -> None:
    settings = LocalSettings(folder=tmp_path, logs=tmp_path / "state")
    folder = tmp_path / "state" / "claims" / "default_data"
    async with local_cluster(settings, CORE_SCHEME, SystemClock()) as plane:
        client = plane.client
        await client.create(CLAIMS, CLAIM)
        await client.create(Pod, pod())
        await wait_until(lambda: file_text(folder / "x") == "kept")
        await client.delete(CLAIMS, KEY)
        # The pod still uses the claim.
        assert (await client.get(CLAIMS, KEY)).is_terminating
        assert file_text(folder / "x") == "kept"
        await client.delete(Pod, Key("default", "p"))
        await wait_until_deleted(client)
        await wait_until(lambda: not folder.exists())
        # A claim that no pod ever used is deleted at once.
        await client.create(CLAIMS, CLAIM)
        await client.delete(CLAIMS, KEY)
        await wait_until_deleted(client)


@pytest.mark.parametrize(
    ("status", "volumes", "used"),
    [
        ({"phase": "Running"}, [VOLUME], True),
        ({}, [VOLUME], True),
        ({"phase": "Succeeded"}, [VOLUME], False),
        ({"phase": "Failed"}, [VOLUME], False),
        ({"phase": "Running"}, [{"name": "data", "emptyDir": {}}], False),
        ({"phase": "Running"}, None, False),
    ],
)
def test_a_pod_that_has_ended_uses_nothing(status: dict[str, str], volumes: Any, used: bool) -> None:
    assert uses_claim({"status": status, "spec": {"volumes": volumes}}, "data") is used


def test_a_change_of_a_pod_concerns_claims_of_its_namespace_that_wait_to_go() -> None:
    now = FakeClock().now()
    claims: Cache[ProtectedClaim] = Cache()
    for namespace, name, leaving in (("a", "x", True), ("a", "y", False), ("b", "z", True)):
        metadata = ObjectMeta(
            name=name,
            namespace=namespace,
            uid=name,
            finalizers=(PROTECTION_FINALIZER,),
            deletion_timestamp=now if leaving else None,
        )
        claims.put(ProtectedClaim(metadata=metadata))
    assert list(terminating_claims(claims)(make_pod(namespace="a"))) == [Key("a", "x")]
