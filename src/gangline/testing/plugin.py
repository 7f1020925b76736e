"""Fixtures for pytest, there wherever gangline is installed. Nothing is imported or started until a test asks for one."""

import re
from collections.abc import Iterator

import pytest

from gangline import testing


@pytest.fixture(scope="session")
def gangline_cluster(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[testing.ThreadedCluster]":
    """A running cluster, shared by the session: API server, operator for the six kinds, and a node that runs pods.

    `.url` and `.kubeconfig` are for any client; `.run` is for ours. Keep tests apart with `gangline_namespace`.
    """
    with testing.threaded_cluster(tmp_path_factory.mktemp("gangline")) as cluster:
        yield cluster


@pytest.fixture
def gangline_namespace(gangline_cluster: "testing.ThreadedCluster", request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new namespace on the cluster, which goes with everything in it when the test ends."""
    from gangline.api.core import Namespace
    from gangline.api.meta import Key

    spelled = re.sub("[^a-z0-9]+", "-", request.node.name.lower())[:40]
    body = {"metadata": {"generateName": f"{spelled.strip('-')}-"}}
    made = gangline_cluster.run(lambda client: client.create(Namespace, body))
    yield made.metadata.name
    gangline_cluster.run(lambda client: client.delete(Namespace, Key("", made.metadata.name)))


@pytest.fixture
def fake_clock() -> "testing.FakeClock":
    """Time that the test moves by hand."""
    return testing.FakeClock()
