"""Tests in a cluster with real nodes. `make test-cluster` starts it and runs them inside."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.nodes.inside import NodeCluster
from support.nodes.installation import NAMESPACE, install, is_installed
from support.nodes.layout import Layout
from support.requirements import skip_or_fail


@pytest.fixture(scope="session")
def cluster() -> NodeCluster:
    """The cluster around this process."""
    folder = os.environ.get("GANGLINE_CLUSTER_DIR", "")
    if not folder or os.environ.get("KUBECONFIG") != str(Path(folder) / "admin.kubeconfig"):
        skip_or_fail("not inside a cluster with nodes: make test-cluster", required="GANGLINE_REQUIRE_CLUSTER")
    return NodeCluster(Layout.read(Path(folder)))


@pytest.fixture
def installed(cluster: NodeCluster) -> NodeCluster:
    """The cluster with gangline in it, as an earlier test left it or freshly installed."""
    if not is_installed(cluster):
        install(cluster)
    return cluster


@pytest.fixture
def empty(cluster: NodeCluster) -> Iterator[NodeCluster]:
    """The cluster without gangline, before and after."""
    cluster.gangline("uninstall", "--delete-crds", "--yes", seconds=330)
    yield cluster
    cluster.gangline("uninstall", "--delete-crds", "--yes", seconds=330)
    cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")


@pytest.fixture
def namespace(cluster: NodeCluster) -> Iterator[str]:
    """A new namespace, which goes when the test ends."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Rights are looked at last: when all other tests have made gangline use them."""
    items.sort(key=lambda item: item.path.name == "test_rights.py")
