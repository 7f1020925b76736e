"""The service of the API server itself."""

from support.servers.plane import running_plane

PATH = "/api/v1/namespaces/default/services/kubernetes"


async def test_a_plane_has_the_service_that_every_cluster_has() -> None:
    async with running_plane() as plane:
        found = (await plane.call("GET", PATH)).body
    assert found["spec"]["clusterIP"] == "10.96.0.1"
    (port,) = found["spec"]["ports"]
    assert (port["name"], port["port"]) == ("https", 443)
    assert port["targetPort"] == int(plane.url.rpartition(":")[2])
    assert found["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}
