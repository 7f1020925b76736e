"""The resource and the verb of a request."""

import pytest

from gangline.apiserver.http.request_info import RequestInfo, RequestVerb, request_info, request_verb


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/pods", RequestInfo("", "v1", "pods")),
        ("/api/v1/namespaces", RequestInfo("", "v1", "namespaces")),
        ("/api/v1/namespaces/ns", RequestInfo("", "v1", "namespaces", "", "ns")),
        ("/api/v1/namespaces/ns/status", RequestInfo("", "v1", "namespaces", "", "ns", "status")),
        ("/api/v1/namespaces/ns/finalize", RequestInfo("", "v1", "namespaces", "", "ns", "finalize")),
        ("/api/v1/namespaces/ns/pods", RequestInfo("", "v1", "pods", "ns")),
        ("/api/v1/namespaces/ns/pods/p", RequestInfo("", "v1", "pods", "ns", "p")),
        ("/api/v1/namespaces/ns/pods/p/log", RequestInfo("", "v1", "pods", "ns", "p", "log")),
        (
            "/apis/apps/v1/namespaces/ns/deployments/d/scale",
            RequestInfo("apps", "v1", "deployments", "ns", "d", "scale"),
        ),
        ("/apis/kubeflow.org/v1/tfjobs", RequestInfo("kubeflow.org", "v1", "tfjobs")),
        ("/api/v1/watch/namespaces/ns/pods", RequestInfo("", "v1", "pods", "ns", watch=True)),
        ("/api/v1/nodes/n", RequestInfo("", "v1", "nodes", "", "n")),
        ("/apis/apps/v1", RequestInfo("apps", "v1")),
        ("/version", None),
        ("/", None),
    ],
)
def test_path(path: str, expected: RequestInfo | None) -> None:
    assert request_info(path) == expected


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/api/v1/pods", {}, RequestVerb.LIST),
        ("GET", "/api/v1/pods", {"watch": "true"}, RequestVerb.WATCH),
        ("GET", "/api/v1/namespaces/ns/pods/p", {}, RequestVerb.GET),
        ("GET", "/api/v1/namespaces/ns/pods/p", {"watch": "1"}, RequestVerb.GET),
        ("POST", "/api/v1/namespaces/ns/pods", {}, RequestVerb.CREATE),
        ("PUT", "/api/v1/namespaces/ns/pods/p", {}, RequestVerb.UPDATE),
        ("PUT", "/api/v1/namespaces/ns/pods", {}, None),
        ("PATCH", "/api/v1/namespaces/ns/pods/p/status", {}, RequestVerb.PATCH),
        ("DELETE", "/api/v1/namespaces/ns/pods/p", {}, RequestVerb.DELETE),
        ("DELETE", "/api/v1/namespaces/ns/pods", {}, RequestVerb.DELETE_COLLECTION),
        ("TRACE", "/api/v1/pods", {}, None),
    ],
)
def test_verb(method: str, path: str, query: dict[str, str], expected: RequestVerb | None) -> None:
    found = request_info(path)
    assert found is not None
    assert request_verb(method, found, query) is expected
