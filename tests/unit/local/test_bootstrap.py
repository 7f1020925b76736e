"""The Service of the API server itself."""

import json

import pytest

from gangline.apiserver.store.paths import object_path
from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.local.bootstrap import publish_api_endpoints
from gangline.local.listen import ListenAddress
from gangline.local.plane import PlaneSettings, control_plane
from support.servers.plane import running_plane

NAME = ("default", "kubernetes")
PATH = "/api/v1/namespaces/default/services/kubernetes"


async def test_a_plane_has_the_service_that_every_cluster_has() -> None:
    async with running_plane() as plane:
        service = (await plane.call("GET", PATH)).body
    assert service["spec"]["clusterIP"] == "10.96.0.1"
    (port,) = service["spec"]["ports"]
    assert (port["name"], port["port"]) == ("https", 443)
    assert port["targetPort"] == int(plane.url.rpartition(":")[2])
    assert service["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}


async def test_a_server_with_an_address_of_its_own_is_an_endpoint_of_the_service() -> None:
    clock = SystemClock()
    async with Store() as store, control_plane(store, PlaneSettings(), clock) as plane:
        slices, endpoints = (
            object_path("discovery.k8s.io", "endpointslices", *NAME),
            object_path("", "endpoints", *NAME),
        )
        assert store.get(slices) is None
        for host in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):  # it may have another one after a restart
            await publish_api_endpoints(plane.registry, host, 6443)
        found, old = (json.loads(store.range(path).records[0].data) for path in (slices, endpoints))
    assert found["endpoints"] == [{"addresses": ["192.0.2.2"], "conditions": {"ready": True}}]
    assert found["ports"] == [{"name": "https", "port": 6443, "protocol": "TCP"}]
    assert found["metadata"]["labels"] == {"kubernetes.io/service-name": "kubernetes"}
    assert old["subsets"][0]["addresses"] == [{"ip": "192.0.2.2"}]


@pytest.mark.parametrize(("host", "advertised"), [("127.0.0.1", ""), ("0.0.0.0", ""), ("192.0.2.1", "192.0.2.1")])
def test_only_an_address_that_others_reach_is_advertised(host: str, advertised: str) -> None:
    assert ListenAddress(host).advertised_host == advertised
