"""The Service of the API server itself."""

from support.servers.plane import running_plane

PATH = "/api/v1/namespaces/default/services/kubernetes"


async def test_a_plane_has_the_service_that_every_cluster_has() -> None:
    async with running_plane() as plane:
        service = (await plane.call("GET", PATH)).body
    assert service["spec"]["clusterIP"] == "10.96.0.1"
    (port,) = service["spec"]["ports"]
    assert (port["name"], port["port"]) == ("https", 443)
    assert port["targetPort"] == int(plane.url.rpartition(":")[2])
    assert service["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}
