"""Odd and malformed HTTP, as kube-apiserver answers it."""

import ssl

import pytest

from gangline.kube.config.connection import Connection
from support.servers.bytes_client import raw_response, status_code

MAPS = "/api/v1/namespaces/default/configmaps"
JSON_TYPE = "Content-Type: application/json\r\n"
HOST = "Host: localhost\r\n"


def get(path: str, headers: str = HOST) -> str:
    return f"GET {path} HTTP/1.1\r\n{headers}{{login}}\r\n"


def head(path: str) -> str:
    return f"HEAD {path} HTTP/1.1\r\n{HOST}Connection: close\r\n{{login}}\r\n"


def post(headers: str, body: str = "") -> str:
    return f"POST {MAPS} HTTP/1.1\r\n{HOST}{{login}}{JSON_TYPE}{headers}\r\n{body}"


DEPLOYMENT = """{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "floats"}, "spec": {"replicas": 2.0,
"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [
{"name": "c", "image": "i", "ports": [{"containerPort": 8e+01}]}]}}}}"""


def send_deployment(method: str, target: str, media: str) -> str:
    path = f"/apis/apps/v1/namespaces/default/deployments{target}?dryRun=All"
    headers = f"{HOST}{{login}}Content-Type: {media}\r\nContent-Length: {len(DEPLOYMENT)}\r\n"
    return f"{method} {path}&fieldManager=m HTTP/1.1\r\n{headers}\r\n{DEPLOYMENT}"


FORMS = {
    "whole floats in an object": (send_deployment("POST", "", "application/json"), 400),
    "whole floats in an apply": (send_deployment("PATCH", "/floats", "application/apply-patch+yaml"), 201),
    "bad resourceVersion of an event": (get("/api/v1/namespaces/default/events/a?resourceVersion=x"), 400),
    "bad resourceVersion of a resource": (get(f"{MAPS}/a?resourceVersion=x"), 500),
    "no host": (get("/version", ""), 400),
    "no host, HTTP 1.0": ("GET /version HTTP/1.0\r\n{login}\r\n", 200),
    "two hosts": (get("/version", HOST * 2), 400),
    "malformed host": (get("/version", "Host: a b\r\n"), 400),
    "two lengths": (post("Content-Length: 2\r\nContent-Length: 40\r\n", "{}"), 400),
    "negative length": (post("Content-Length: -1\r\n"), 400),
    "signed length": (post("Content-Length: +2\r\n", "{}"), 400),
    "compressed body": (post("Content-Encoding: gzip\r\nContent-Length: 2\r\n", "{}"), 422),
    "space before the colon": (get("/version", f"{HOST}X-A : b\r\n"), 400),
    "NUL in a header": (get("/version", f"{HOST}X-A: b\0c\r\n"), 400),
    "absolute form": (get("http://localhost/version"), 200),
    "absolute form of a resource": (get("https://localhost/api/v1/namespaces"), 200),
    "no slash": (get("version"), 400),
    "two slashes": (get("//version"), 404),
    "two slashes before a resource": (get("//api/v1/namespaces"), 404),
    "two slashes in a resource": (get("/api//v1/namespaces"), 404),
    "encoded slash": (get("/api/v1/namespaces%2fdefault"), 200),
    "two dots as a name": (get(f"{MAPS}/%2e%2e?resourceVersion={'9' * 30}"), 400),
    "a dot as a name to delete": (get(f"{MAPS}/.").replace("GET", "DELETE"), 400),
    "percent sign in a name": (get("/api/v1/namespaces/a%25b"), 400),
    "encoded NUL": (get(f"{MAPS}/a%00b"), 404),
    "no UTF-8": (get("/api/v1/namespaces/%ff%fe"), 404),
    "semicolon": (get("/api/v1/namespaces;a=b"), 404),
    "long URL": (get("/" + "a" * 100_000), 404),
    "too long URL": (get("/" + "a" * 1_200_000), 431),
    "long header": (get("/version", f"{HOST}X-A: {'a' * 100_000}\r\n"), 200),
    "too long header": (get("/version", f"{HOST}X-A: {'a' * 1_200_000}\r\n"), 431),
    "1000 headers": (get("/version", HOST + "".join(f"X-{number}: a\r\n" for number in range(1000))), 200),
    "headers of two megabytes": (get("/version", HOST + "".join(f"X-{n}: {'a' * 999}\r\n" for n in range(2000))), 431),
    "head of a resource": (head("/api/v1/namespaces"), 405),
    "head of no resource": (head("/api/v1/nope"), 404),
    "head of no group": (head("/apis/nope.example/v1/x"), 404),
    "post to a watch": (post("Content-Length: 2\r\n", "{}").replace("/api/v1", "/api/v1/watch"), 405),
    "watch of nothing": (get("/api/v1/watch?a=b"), 500),
    "proxy of nothing": (get("/apis/apps/v1/proxy"), 500),
    "proxy as a resource": (get("/api/v1/namespaces/a.b/proxy"), 404),
    "proxy of watch": (get("/api/v1/proxy/watch"), 404),
    "watch of proxy": (get("/api/v1/watch/proxy"), 404),
    "method of no resource": ("TRACE /version HTTP/1.1\r\nHost: localhost\r\n{login}\r\n", 405),
    "garbage": ("\0\1\2\3\r\n\r\n", 400),
    "body of a get": (get("/version", f"{HOST}Content-Length: 3\r\n") + "abc", 200),
    "malformed content type": (
        f"POST {MAPS} HTTP/1.1\r\n{HOST}{{login}}Content-Type: ;;;\r\nContent-Length: 2\r\n\r\n{{}}",
        415,
    ),
    "huge resourceVersion": (get(f"/api/v1/namespaces?resourceVersion={'9' * 30}"), 400),
    "resourceVersion in other digits": (get("/api/v1/namespaces?resourceVersion=%D9%A1"), 400),
    "huge limit": (get(f"/api/v1/namespaces?limit={'9' * 30}"), 400),
    "huge timeout of a watch": (get(f"/api/v1/namespaces?watch=1&timeoutSeconds={'9' * 20}"), 400),
}


@pytest.mark.parametrize("name", FORMS)
async def test_the_status_is_that_of_kube_apiserver(server: Connection, name: str) -> None:
    text, expected = FORMS[name]
    login = "".join(f"{key}: {value}\r\n" for key, value in (await server.credentials.headers()).items())
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    response = await raw_response(server.server, tls, text.replace("{login}", login).encode())
    assert status_code(response) == expected, response[:300]
