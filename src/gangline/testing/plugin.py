"""Fixtures for pytest, available wherever gangline is installed. Nothing is imported or started before a test uses one."""

import re
from collections.abc import Iterator

import pytest

from gangline import testing


@pytest.fixture(scope="session")
def gangline_cluster(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[testing.ThreadedCluster]":
    """A running cluster, shared by the session: API server, operator for the six kinds, and a node that runs pods.

    `.url` and `.kubeconfig` are for any client; `.run` is for ours. Separate tests with `gangline_namespace`.
    """
    with testing.threaded_cluster(tmp_path_factory.mktemp("gangline")) as cluster:
        yield cluster


@pytest.fixture
def gangline_namespace(gangline_cluster: "testing.ThreadedCluster", request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new namespace of the cluster. It is deleted, with everything in it, when the test ends."""
    from gangline.api.core import Namespace
    from gangline.api.meta import Key

    prefix = re.sub("[^a-z0-9]+", "-", request.node.name.lower())[:40].strip("-")
    body = {"metadata": {"generateName": f"{prefix}-"}}
    namespace = gangline_cluster.run(lambda client: client.create(Namespace, body))
    yield namespace.metadata.name
    gangline_cluster.run(lambda client: client.delete(Namespace, Key("", namespace.metadata.name)))


@pytest.fixture
def fake_clock() -> "testing.FakeClock":
    """A clock that the test moves by hand."""
    return testing.FakeClock()
