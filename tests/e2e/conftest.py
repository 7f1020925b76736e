"""A plane for tests of what a server offers of pods: logs, commands, ports, addresses, proxies."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gangline.kube.client import Client
from gangline.local.cluster import LocalCluster
from support.cluster.streams import stream_cluster


@pytest.fixture
async def cluster(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[LocalCluster]:
    async with stream_cluster(tmp_path) as running:
        yield running
    assert not [each for each in caplog.get_records("call") if each.levelno >= logging.ERROR]


@pytest.fixture
def client(cluster: LocalCluster) -> Client:
    return cluster.client
