"""The example of a controller that is not a job, on both servers: owner reference, finalizer, leader election."""

import importlib.util
from pathlib import Path
from typing import Any

from gangline.api.core import ConfigMap, Lease, Secret
from gangline.api.meta import Key
from gangline.base.tasks import background_tasks
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.errors import NotFound
from support.waiting import wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "folder_per_configmap.py"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("folder_per_configmap", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_short() -> None:
    assert len(EXAMPLE.read_text().splitlines()) < 60


async def test_a_folder_comes_and_goes_with_its_configmap(
    server: Connection, client: Client, namespace: str, tmp_path: Path
) -> None:
    key, folder = Key(namespace, "data"), tmp_path / namespace / "data"
    async with background_tasks(example().main(server, tmp_path, namespace)):
        body = {"metadata": {"name": "data", "labels": {"example.dev/folder": ""}}}
        made = await client.create(ConfigMap, body, namespace=namespace)

        async def told() -> bool:
            try:
                secret = await client.get(Secret, key)
            except NotFound:
                return False
            return secret.metadata.owner_references[0].uid == made.metadata.uid

        await wait_until(told)
        assert folder.is_dir()
        assert (await client.get(ConfigMap, key)).metadata.finalizers == ("example.dev/folder",)
        assert (await client.get(Lease, Key(namespace, "folders"))).spec.holder_identity
        await client.delete(ConfigMap, key)

        async def left() -> bool:
            try:
                await client.get(ConfigMap, key)
            except NotFound:
                return True
            return False

        await wait_until(left)
        assert not folder.exists()
