"""Clusters for tests raise errors unchanged, and nothing of them remains."""

import threading

import pytest

from gangline.api.core import ConfigMap, Namespace
from gangline.api.meta import Key
from gangline.kube.errors import NotFound
from gangline.testing import local_cluster, operator_cluster, threaded_cluster
from relay_operator import Relay


async def test_a_failed_assertion_on_a_cluster_is_not_wrapped() -> None:
    with pytest.raises(AssertionError, match="mine"):
        async with local_cluster():
            raise AssertionError("mine")


async def test_nor_is_one_beside_an_operator() -> None:
    with pytest.raises(AssertionError, match="mine"):
        async with operator_cluster(Relay()):
            raise AssertionError("mine")


async def test_what_the_server_says_is_not_wrapped_either() -> None:
    with pytest.raises(NotFound):
        async with local_cluster() as cluster:
            await cluster.client.get(ConfigMap, Key("default", "nothing"))


def test_a_cluster_in_a_thread_ends_with_its_block() -> None:
    with threaded_cluster() as cluster:
        assert cluster.run(lambda client: client.get(Namespace, Key("", "default"))).metadata.uid
        assert cluster.kubeconfig.exists()
    assert not cluster.kubeconfig.exists()
    assert "gangline-cluster" not in [thread.name for thread in threading.enumerate()]


def test_an_error_of_a_request_is_raised_where_it_was_made() -> None:
    with threaded_cluster() as cluster, pytest.raises(NotFound):
        cluster.run(lambda client: client.get(ConfigMap, Key("default", "nothing")))
