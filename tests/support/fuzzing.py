"""Requests that nobody would send: made from good objects by a seeded generator, the same for the same seed.

schemathesis was tried: of 204 operations of the core API it had not finished the first phase after a minute, because it
makes whole objects from schemas, and most of those fail at their first field. Good objects with a few faults reach far
deeper, at hundreds of requests a second.
"""

import copy
import json
import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import yaml

from support.cases.kinds import CASES_FILE, RESOURCES, KindResource

NAMESPACE = "fuzz"
NAMES = ("a", "b", "c", "x", "a.b", "A", "", "..", "%2e%2e", "a%2Fb", "a" * 260, "ü", "-a")
ODD_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 1e308, 2**31, 2**63, -(2**63) - 1, 10**40, "", " ", "a", "0", "-1", "1e3", "1Gi", "1m", "٣",
    "\x00", "\u202e", "\ud83d\ude00", "a" * 70, "a" * 5000, "A_b", "..", "/", "2020-01-01T00:00:00Z", "9999-99-99",
    "{}", "*", "$(A)", [], {}, [None], [[]], [{}], {"": ""}, {"a": None}, {"a": {"b": [1]}}, ["a", "a"],
)  # fmt: skip
QUERIES: Mapping[str, tuple[str, ...]] = {
    "dryRun": ("All", "", "None"),
    "fieldManager": ("m", "", "x" * 200, "\x00"),
    "fieldValidation": ("Strict", "Warn", "Ignore", "Other"),
    "force": ("true", "false", "x"),
    "pretty": ("true", "1", "x"),
    "limit": ("1", "0", "-1", "x", "9" * 25),
    "continue": ("x", "e30", "eyJydiI6MSwic3RhcnQiOiJhIn0"),
    "resourceVersion": ("0", "1", "-1", "x", "9" * 12, "9" * 25),
    "resourceVersionMatch": ("Exact", "NotOlderThan", "Other"),
    "labelSelector": ("a=b", "a in (b,c)", "!a", "a", "a==b,c!=d", "a in (", "=", "a>1", "\x00", "," * 50),
    "fieldSelector": ("metadata.name=a", "metadata.name!=a", "spec.nodeName=x", "x=y", "=", "metadata.name", "\\"),
    "timeoutSeconds": ("1", "0", "-1", "x"),
    "gracePeriodSeconds": ("0", "1", "-1", "x"),
    "propagationPolicy": ("Foreground", "Background", "Orphan", "x"),
    "sendInitialEvents": ("true", "false", "x"),
    "allowWatchBookmarks": ("true",),
    "includeObject": ("None", "Object", "x"),
    "tailLines": ("1", "-1", "x"),
}
ACCEPTS = (
    "", "*/*", "application/json", "application/yaml", "application/json;as=Table;g=meta.k8s.io;v=v1", "text/html", ";",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "application/vnd.kubernetes.protobuf", "a/b;q=x,*/*",
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "application/json;as=x;g=y;v=z",
)  # fmt: skip
BODY_TYPES = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "text/plain", "", ";;")
PATCH_TYPES = (
    "application/merge-patch+json", "application/json-patch+json", "application/strategic-merge-patch+json",
    "application/apply-patch+yaml", "application/json", "x/y",
)  # fmt: skip
SUBRESOURCES = (
    "status", "scale", "log", "exec", "attach", "portforward", "binding", "eviction", "finalize", "token", "approval",
    "proxy", "proxy/x", "x", "status/x", "resize", "ephemeralcontainers",
)  # fmt: skip
ROOTS = (
    "/", "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/version", "/openapi/v3", "/openapi/v2", "/metrics",
    "/openapi/v3/api/v1", "/healthz", "/livez/ping", "/readyz?verbose", "/apis/x.example/v1/y", "/api/v1/x", "/.well-known",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/api/v2/pods", "//", "/logs", "/debug/pprof", "/api/v1/watch",
    "/api/v1/proxy/nodes/a", "/openid/v1/jwks", "/apis//v1/x", "/api/v1/namespaces/fuzz/configmaps/a/b/c/d",
)  # fmt: skip
REVIEWS = (
    "/apis/authentication.k8s.io/v1/tokenreviews",
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
    f"/apis/authorization.k8s.io/v1/namespaces/{NAMESPACE}/localsubjectaccessreviews",
)


class FuzzRequest(NamedTuple):
    method: str
    path: str
    """Path and query, encoded."""
    headers: Mapping[str, str]
    body: bytes | None


def good_objects() -> dict[str, list[dict[str, Any]]]:
    """Objects by kind, good ones and some bad ones."""
    cases: dict[str, list[dict[str, Any]]] = yaml.load(CASES_FILE.read_bytes(), yaml.CSafeLoader)
    return {kind: bodies for kind, bodies in cases.items() if kind in RESOURCES}


class RequestMaker:
    """Makes requests from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._objects = good_objects()
        self._kinds = sorted(self._objects)
        self._makers: tuple[tuple[int, Callable[[], FuzzRequest]], ...] = (
            (30, self._create),
            (15, self._update),
            (25, self._patch),
            (12, self._read),
            (8, self._delete),
            (4, self._root),
            (4, self._review),
            (2, self._define),
        )

    def next(self) -> FuzzRequest:
        """The next request."""
        weights = [weight for weight, _ in self._makers]
        (_, make), *_ = self._random.choices(self._makers, weights)
        request = make()
        if self._random.random() < 0.05 and request.body:
            request = request._replace(body=self._damaged(request.body))
        return request

    # Requests

    def _create(self) -> FuzzRequest:
        resource, body = self._object()
        return self._with_body("POST", resource.path(NAMESPACE), body)

    def _update(self) -> FuzzRequest:
        resource, body = self._object()
        name = self._name(body)
        return self._with_body("PUT", f"{resource.path(NAMESPACE)}/{name}{self._subresource()}", body)

    def _patch(self) -> FuzzRequest:
        resource, body = self._object()
        kind = self._random.choice(PATCH_TYPES)
        patch: Any = body
        if kind == "application/json-patch+json" and self._random.random() < 0.9:
            patch = [self._operation(body) for _ in range(self._random.randint(0, 4))]
        request = self._with_body(
            "PATCH",
            f"{resource.path(NAMESPACE)}/{self._name(body)}{self._subresource()}",
            patch,
            ("fieldManager", "force"),
        )
        return request._replace(headers={**request.headers, "Content-Type": kind})

    def _read(self) -> FuzzRequest:
        resource = RESOURCES[self._random.choice(self._kinds)]
        path = resource.path(NAMESPACE)
        if self._random.random() < 0.5:
            path += f"/{self._random.choice(NAMES)}{self._subresource()}"
        elif self._random.random() < 0.3:
            path += "?watch=1&timeoutSeconds=1"
            return FuzzRequest("GET", path + "&" + self._query().removeprefix("?"), self._headers(), None)
        return FuzzRequest(self._random.choice(("GET", "GET", "HEAD")), path + self._query(), self._headers(), None)

    def _delete(self) -> FuzzRequest:
        resource = RESOURCES[self._random.choice(self._kinds)]
        path = resource.path(NAMESPACE)
        if resource.namespaced and self._random.random() < 0.2:
            return FuzzRequest("DELETE", path + self._query(), self._headers(), None)
        options = self._mutated({"propagationPolicy": "Background", "preconditions": {"uid": "x"}})
        body = json.dumps(options).encode() if self._random.random() < 0.3 else None
        name = self._random.choice(NAMES) or "a"
        return FuzzRequest("DELETE", f"{path}/{name}{self._query()}", self._headers("application/json"), body)

    def _root(self) -> FuzzRequest:
        method = self._random.choice(("GET", "GET", "GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"))
        return FuzzRequest(method, self._random.choice(ROOTS), self._headers(), None)

    def _review(self) -> FuzzRequest:
        spec = {"resourceAttributes": {"verb": "get", "resource": "pods"}, "user": "a", "namespace": "b", "token": "c"}
        return self._with_body("POST", self._random.choice(REVIEWS), self._mutated({"spec": spec}))

    def _define(self) -> FuzzRequest:
        schema = {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": {"n": {"type": "integer", "minimum": 1, "default": 2}, "s": {"type": "string"}},
                    "x-kubernetes-validations": [{"rule": "self.n > 0", "message": "m"}],
                }
            },
        }
        plural = self._random.choice(("foos", "bars"))
        crd = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.fuzz.example"},
            "spec": {
                "group": "fuzz.example",
                "scope": "Namespaced",
                "names": {"plural": plural, "kind": plural.title()},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": schema},
                        "subresources": {},
                    }
                ],
            },
        }
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        objects = f"/apis/fuzz.example/v1/namespaces/{NAMESPACE}/{plural}"
        chance = self._random.random()
        if chance < 0.4:
            return self._with_body("POST", definitions, self._mutated(crd) if chance < 0.3 else crd)
        if chance < 0.5:
            return FuzzRequest("DELETE", f"{definitions}/{plural}.fuzz.example", self._headers(), None)
        body = {"apiVersion": "fuzz.example/v1", "kind": plural.title(), "metadata": {"name": "a"}, "spec": {"n": 3}}
        if chance < 0.8:
            return self._with_body("POST", objects, self._mutated(body))
        request = self._with_body("PATCH", f"{objects}/a", self._mutated(body), ("fieldManager", "force"))
        return request._replace(headers={**request.headers, "Content-Type": self._random.choice(PATCH_TYPES)})

    # Parts

    def _object(self) -> tuple[KindResource, Any]:
        kind = self._random.choice(self._kinds)
        resource, body = RESOURCES[kind], copy.deepcopy(self._random.choice(self._objects[kind]))
        if isinstance(body, dict):
            body.setdefault("apiVersion", f"{resource.group}/{resource.version}".lstrip("/"))
            body.setdefault("kind", resource.kind)
            metadata = body.setdefault("metadata", {})
            if isinstance(metadata, dict):
                metadata.setdefault("name", self._random.choice(("a", "b", "c", "x")))
        for _ in range(self._random.choice((0, 0, 1, 1, 2, 4))):
            body = self._mutated(body)
        return resource, body

    def _name(self, body: Any) -> str:
        metadata = body.get("metadata") if isinstance(body, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if self._random.random() < 0.9 and isinstance(name, str) and name.isalnum() and name.isascii():
            return name
        return self._random.choice(NAMES) or "a"

    def _subresource(self) -> str:
        return f"/{self._random.choice(SUBRESOURCES)}" if self._random.random() < 0.15 else ""

    def _operation(self, body: Any) -> dict[str, Any]:
        operation = {
            "op": self._random.choice(("add", "remove", "replace", "move", "copy", "test", "x")),
            "path": "".join(f"/{step}" for step in self._random_path(body))
            or self._random.choice(("", "/", "x", "/~", "/-")),
            "from": "".join(f"/{step}" for step in self._random_path(body)),
            "value": self._random.choice(ODD_VALUES),
        }
        return self._mutated(operation) if self._random.random() < 0.1 else operation

    def _random_path(self, body: Any) -> list[str]:
        path: list[str] = []
        while isinstance(body, dict | list) and body and self._random.random() < 0.8:
            key = self._random.choice(list(body)) if isinstance(body, dict) else self._random.randrange(len(body))
            path.append(str(key))
            body = body[key]
        return path

    def _mutated(self, body: Any) -> Any:
        """The body with one value replaced, removed, added, doubled or buried."""
        body = copy.deepcopy(body)
        places = list(_places(body))
        if not places:
            return self._random.choice(ODD_VALUES)
        parent, key = self._random.choice(places)
        match self._random.randrange(6):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, dict):
                parent[self._random.choice(("x", "", "name", "spec", "status", "a" * 300, "$", "x-kubernetes-a"))] = (
                    self._random.choice(ODD_VALUES)
                )
            case 2 if isinstance(parent, list):
                parent.append(copy.deepcopy(parent[key]))
            case 3:
                parent[key] = {"a": parent[key]} if self._random.random() < 0.5 else [parent[key]]
            case _:
                parent[key] = copy.deepcopy(self._random.choice(ODD_VALUES))
        return body

    def _damaged(self, body: bytes) -> bytes:
        place = self._random.randrange(len(body))
        match self._random.randrange(4):
            case 0:
                return body[:place]
            case 1:
                return body[:place] + bytes([self._random.randrange(256)]) + body[place + 1 :]
            case 2:
                return body[:place] + body[place // 2 :]
            case _:
                return self._random.randbytes(self._random.randrange(200))

    def _with_body(self, method: str, path: str, body: Any, options: tuple[str, ...] = ()) -> FuzzRequest:
        media = self._random.choice(BODY_TYPES) if self._random.random() < 0.05 else "application/json"
        query = self._query(options)
        return FuzzRequest(method, path + query, self._headers(media), json.dumps(body).encode())

    def _query(self, likely: tuple[str, ...] = ()) -> str:
        names = [name for name in likely if self._random.random() < 0.7]
        if self._random.random() < 0.3:
            names += self._random.sample(sorted(QUERIES), self._random.randint(1, 3))
        pairs = [f"{name}={_encoded(self._random.choice(QUERIES[name]))}" for name in dict.fromkeys(names)]
        return "?" + "&".join(pairs) if pairs else ""

    def _headers(self, media: str = "") -> dict[str, str]:
        headers = {"Content-Type": media} if media else {}
        if self._random.random() < 0.3:
            headers["Accept"] = self._random.choice(ACCEPTS)
        if self._random.random() < 0.03:
            headers["Impersonate-User"] = self._random.choice(("nobody", "system:serviceaccount:a:b", ""))
        if self._random.random() < 0.03:
            headers["Authorization"] = self._random.choice(("Bearer x", "Basic eDp5", "x", ""))
        return headers


def _places(value: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            found.append((value, key))
            found += _places(value[key])
    return found


def _encoded(text: str) -> str:
    return "".join(f"%{byte:02X}" if not chr(byte).isalnum() or byte > 127 else chr(byte) for byte in text.encode())
