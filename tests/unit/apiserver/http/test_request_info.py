"""The resource and the verb of a request."""

import pytest

from gangline.apiserver.http.request_info import (
    RequestInfo,
    RequestPathError,
    RequestVerb,
    access_attributes,
    request_info,
    request_verb,
)
from gangline.apiserver.users import ANONYMOUS_USER


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
        ("/api/v1/watch/proxy", RequestInfo("", "v1", "proxy", watch=True)),
        ("/api/v1/watch/namespaces/ns/proxy", RequestInfo("", "v1", "proxy", "ns", watch=True)),
        ("/api/v1/namespaces/ns/proxy", RequestInfo("", "v1", "proxy", "ns")),
        ("/api/v1/proxy/watch", RequestInfo("", "v1", "proxy", "", "watch")),
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
        ("POST", "/api/v1/watch/namespaces/ns/pods", {}, None),
        ("DELETE", "/api/v1/watch/namespaces/ns/pods", {}, None),
    ],
)
def test_verb(method: str, path: str, query: dict[str, str], expected: RequestVerb | None) -> None:
    found = request_info(path)
    assert found is not None
    assert request_verb(method, found, query) is expected


@pytest.mark.parametrize("path", ["/api/v1/watch", "/api/v9/watch/", "/api/v1/proxy", "/apis/x.example/v1/watch"])
def test_a_prefix_without_a_resource_is_refused_with_the_url(path: str) -> None:
    with pytest.raises(RequestPathError, match=r"failed to create RequestInfo: .* from url, /as%20sent"):
        request_info(path, "/as%20sent")


@pytest.mark.parametrize("target", ["watch", "proxy", "namespaces/ns/proxy", "namespaces/ns/watch/a/b"])
def test_any_resource_may_follow_the_proxy_prefix(target: str) -> None:
    """Found by the fuzzer: the resource behind the prefix was parsed as a prefix again."""
    found = request_info(f"/api/v1/proxy/{target}")
    assert found is not None
    attributes = access_attributes(ANONYMOUS_USER, "GET", found, {})
    assert (attributes.verb, attributes.resource) == ("proxy", target.removeprefix("namespaces/ns/").partition("/")[0])
