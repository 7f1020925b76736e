"""Rights in one namespace reach no object of the cluster, however its path is written."""

import ssl
from pathlib import Path

import aiohttp
import pytest

from gangline.api.meta import JSON
from gangline.apiserver.store.store import Store
from gangline.apiserver.users import AUTHENTICATED_GROUP, UserInfo
from gangline.base.clock import SystemClock
from gangline.local.plane import PlaneSettings, control_plane
from support.servers.plane import PlaneAnswer, PlaneClient, widget_crd

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/namespaces/mine/rolebindings"
JANE = UserInfo("jane", (AUTHENTICATED_GROUP,))
NO_RESOURCE = "the server could not find the requested resource"


def cluster_crd() -> JSON:
    """Widgets of the cluster, with `scale`."""
    crd = widget_crd(
        schema={"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    )
    crd["spec"]["scope"] = "Cluster"
    paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    crd["spec"]["versions"][0]["subresources"] = {"scale": paths}
    return crd


@pytest.fixture
def namespace_admin() -> JSON:
    """A binding by which Jane may do everything in the namespace `mine`."""
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": JANE.name}
    return {"metadata": {"name": "jane"}, "roleRef": role, "subjects": [subject]}


async def test_subresources_of_the_cluster_are_not_in_a_namespace(tmp_path: Path, namespace_admin: JSON) -> None:
    settings = PlaneSettings(certificates=tmp_path, token="admin", users={"jane": JANE}, warn_on_inert_kinds=False)
    async with Store() as store, control_plane(store, settings, SystemClock()) as plane:
        assert plane.certificates is not None
        connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=plane.certificates.ca))
        async with aiohttp.ClientSession(plane.url, connector=connector) as session:
            client = PlaneClient(plane.url, session)

            async def call(user: str, method: str, path: str, body: JSON | None = None) -> PlaneAnswer:
                session.headers["Authorization"] = f"Bearer {user}"
                return await client.call(method, path, body)

            for name in ("mine", "other"):
                assert (await call("admin", "POST", "/api/v1/namespaces", {"metadata": {"name": name}})).status == 201
            assert (await call("admin", "POST", BINDINGS, namespace_admin)).status == 201
            assert (await call("admin", "POST", CRDS, cluster_crd())).status == 201
            await client.poll_status("/apis/example.com/v1/widgets", 200)
            widget = {
                "apiVersion": "example.com/v1",
                "kind": "Widget",
                "metadata": {"name": "a"},
                "spec": {"replicas": 1},
            }
            assert (await call("admin", "POST", "/apis/example.com/v1/widgets", widget)).status == 201

            other = (await call("admin", "GET", "/api/v1/namespaces/other")).body
            assert (await call("jane", "GET", "/api/v1/namespaces/other")).status == 403
            emptied = {**other, "spec": {"finalizers": []}}
            refused = await call("jane", "PUT", "/api/v1/namespaces/mine/namespaces/other/finalize", emptied)
            assert (refused.status, refused.body["message"]) == (404, NO_RESOURCE)
            assert (await call("admin", "GET", "/api/v1/namespaces/other")).body["spec"] == other["spec"]

            scale = "/apis/example.com/v1/namespaces/mine/widgets/a/scale"
            assert (await call("jane", "GET", scale)).status == 404
            body = {
                "apiVersion": "autoscaling/v1",
                "kind": "Scale",
                "metadata": {"name": "a"},
                "spec": {"replicas": 9},
            }
            assert (await call("jane", "PUT", scale, body)).status == 404
            assert (await call("admin", "GET", "/apis/example.com/v1/widgets/a")).body["spec"] == {"replicas": 1}
