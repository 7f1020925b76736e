"""An installation waits for what an earlier one left in the middle of its deletion."""

import asyncio
import io
from datetime import timedelta

import pytest

from gangline.api.core import ConfigMap
from gangline.api.meta import Key
from gangline.base.clock import SystemClock
from gangline.cli.install.cluster_objects import ClusterObjects
from gangline.cli.install.record import ObjectRef
from gangline.cli.install.screen import InstallScreen
from gangline.cli.install.waiting import NotReady, Waiter
from gangline.testing import local_cluster

REF = ObjectRef("v1", "ConfigMap", "default", "old")
OTHER = ObjectRef("v1", "ConfigMap", "default", "never-was")


async def test_it_waits_until_an_object_that_is_being_deleted_is_gone() -> None:
    output = io.StringIO()
    async with local_cluster() as cluster, asyncio.timeout(30):
        client = cluster.client
        body = {"metadata": {"name": "old", "finalizers": ["example.com/slow"]}}
        await client.create(ConfigMap, body, namespace="default")
        waiter = Waiter(ClusterObjects(client), InstallScreen(output), SystemClock(), timedelta(seconds=20))
        await waiter.wait_for_deletions([REF, OTHER])  # it is there, and stays
        assert output.getvalue() == ""

        await client.delete(ConfigMap, Key("default", "old"))
        hurried = Waiter(ClusterObjects(client), InstallScreen(output), SystemClock(), timedelta(milliseconds=1))
        with pytest.raises(NotReady, match="still being deleted: configmap/old"):
            await hurried.wait_for_deletions([REF, OTHER])

        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(waiter.wait_for_deletions([REF, OTHER]))
            while output.getvalue().count("still being deleted") < 2:
                assert not waiting.done()
                await asyncio.sleep(0)
            await client.patch(ConfigMap, Key("default", "old"), {"metadata": {"finalizers": None}})
        assert output.getvalue().splitlines() == ["still being deleted: configmap/old"] * 2
