"""What a URL asks for."""

import pytest

from gangline.apiserver.http.routes import Target, Verb, target, verb


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/pods", Target("", "v1", "pods")),
        ("/api/v1/namespaces", Target("", "v1", "namespaces")),
        ("/api/v1/namespaces/ns", Target("", "v1", "namespaces", "", "ns")),
        ("/api/v1/namespaces/ns/status", Target("", "v1", "namespaces", "", "ns", "status")),
        ("/api/v1/namespaces/ns/finalize", Target("", "v1", "namespaces", "", "ns", "finalize")),
        ("/api/v1/namespaces/ns/pods", Target("", "v1", "pods", "ns")),
        ("/api/v1/namespaces/ns/pods/p", Target("", "v1", "pods", "ns", "p")),
        ("/api/v1/namespaces/ns/pods/p/log", Target("", "v1", "pods", "ns", "p", "log")),
        (
            "/apis/apps/v1/namespaces/ns/deployments/d/scale",
            Target("apps", "v1", "deployments", "ns", "d", "scale"),
        ),
        ("/apis/kubeflow.org/v1/tfjobs", Target("kubeflow.org", "v1", "tfjobs")),
        ("/api/v1/watch/namespaces/ns/pods", Target("", "v1", "pods", "ns", watch=True)),
        ("/api/v1/nodes/n", Target("", "v1", "nodes", "", "n")),
        ("/apis/apps/v1", Target("apps", "v1")),
        ("/version", None),
        ("/", None),
    ],
)
def test_path(path: str, expected: Target | None) -> None:
    assert target(path) == expected


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/api/v1/pods", {}, Verb.LIST),
        ("GET", "/api/v1/pods", {"watch": "true"}, Verb.WATCH),
        ("GET", "/api/v1/namespaces/ns/pods/p", {}, Verb.GET),
        ("GET", "/api/v1/namespaces/ns/pods/p", {"watch": "1"}, Verb.GET),
        ("POST", "/api/v1/namespaces/ns/pods", {}, Verb.CREATE),
        ("PUT", "/api/v1/namespaces/ns/pods/p", {}, Verb.UPDATE),
        ("PUT", "/api/v1/namespaces/ns/pods", {}, None),
        ("PATCH", "/api/v1/namespaces/ns/pods/p/status", {}, Verb.PATCH),
        ("DELETE", "/api/v1/namespaces/ns/pods/p", {}, Verb.DELETE),
        ("DELETE", "/api/v1/namespaces/ns/pods", {}, Verb.DELETE_COLLECTION),
        ("TRACE", "/api/v1/pods", {}, None),
    ],
)
def test_verb(method: str, path: str, query: dict[str, str], expected: Verb | None) -> None:
    found = target(path)
    assert found is not None
    assert verb(method, found, query) is expected
