"""Saves what a real kube-apiserver says about its kinds, for the server in gangline.local. The same bytes every time.

    python hack/openapi.py    needs hack/kubernetes.sh to have run, and Go; a few seconds

Writes five files to src/gangline/schema/data, all JSON, compressed; NOTICE there says whose work it is:

    types.json.z        the schemas of all kinds, without descriptions, with what hack/gotypes knows about Go's types
    columns.json.z      the columns of tables, of kinds whose rows are data
    discovery.json.z    groups, versions and resources; hashes of the documents
    protobuf.json.z     protobuf messages: the numbers and types of their fields
    documents.json.xz   the OpenAPI v3 documents, and two of custom resources as templates for others

and, next to the tests, objects that Go encoded both as protobuf and as JSON.
"""

import hashlib
import json
import lzma
import ssl
import subprocess
import sys
import time
import urllib.request
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.servers import real  # noqa: E402

DATA = ROOT / "src" / "gangline" / "schema" / "data"
VECTORS = ROOT / "tests" / "data"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

SERVED = (
    "api/v1",
    "apis/apps/v1",
    "apis/events.k8s.io/v1",
    "apis/authentication.k8s.io/v1",
    "apis/authorization.k8s.io/v1",
    "apis/autoscaling/v1",
    "apis/autoscaling/v2",
    "apis/batch/v1",
    "apis/policy/v1",
    "apis/rbac.authorization.k8s.io/v1",
    "apis/storage.k8s.io/v1",
    "apis/apiextensions.k8s.io/v1",
    "apis/scheduling.k8s.io/v1",
    "apis/coordination.k8s.io/v1",
    "apis/discovery.k8s.io/v1",
    "apis/admissionregistration.k8s.io/v1",
    "apis/apiregistration.k8s.io/v1",
    "apis/certificates.k8s.io/v1",
    "apis/flowcontrol.apiserver.k8s.io/v1",
    "apis/networking.k8s.io/v1",
    "apis/node.k8s.io/v1",
    "apis/resource.k8s.io/v1",
)
# Groups whose kinds are checked by what their schemas enumerate; the others have rules of their own.
DECLARED = (
    "admissionregistration",
    "apiregistration",
    "certificates",
    "flowcontrol",
    "networking",
    "resource",
    "storage",
)
# Component statuses are deprecated.
WITHOUT = {("componentstatuses", "")}

# A custom resource whose every name is easily found and replaced.
GROUP, VERSION, KIND, PLURAL = "sentinelgroup.test", "v777", "Sentinelkind", "sentinelkinds"


def main() -> None:
    with real.RealServer() as server:
        documents = {name: narrowed(name, fetch(server, f"/openapi/v3/{name}")) for name in SERVED}
        for root in ("api", "apis", "version", *sorted({"/".join(n.split("/")[:2]) for n in SERVED[1:]})):
            documents[root] = fetch(server, f"/openapi/v3/{root}")
        groups = [fetch(server, path, AGGREGATED)["items"] for path in ("/api", "/apis")]
        columns = dict(table_columns(server, [group for part in groups for group in part]))
        templates = {scope: template(server, scope) for scope in ("Namespaced", "Cluster")}
    discovery = {
        "groups": list(kept(groups[0] + groups[1])),
        "hashes": {name: hashlib.sha512(packed(document)).hexdigest().upper() for name, document in documents.items()},
    }
    for folder in (DATA, VECTORS):
        folder.mkdir(exist_ok=True)
    write(DATA / "types.json.z", zlib.compress(packed(types(documents)), 9))
    write(DATA / "columns.json.z", zlib.compress(packed(columns), 9))
    write(DATA / "discovery.json.z", zlib.compress(packed(discovery), 9))
    versions = [name.removeprefix("api/").removeprefix("apis/") for name in SERVED]
    write(DATA / "protobuf.json.z", zlib.compress(packed(gotypes("messages", *versions)), 9))
    write(VECTORS / "protobuf.json.xz", lzma.compress(packed(gotypes("vectors", *versions)), preset=9))
    contents = packed({"documents": documents, "templates": templates})
    write(DATA / "documents.json.xz", lzma.compress(contents, preset=9 | lzma.PRESET_EXTREME))


def fetch(server: real.RealServer, path: str, accept: str = "application/json") -> Any:
    headers = {"Authorization": f"Bearer {server.token}", "Accept": accept}
    request = urllib.request.Request(server.url + path, headers=headers)
    secure = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=server.ca))
    # Past any proxy the environment names: the server is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), secure)
    with opener.open(request, timeout=30) as response:
        return json.load(response)


def packed(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    print(f"{path.name}: {len(content):,} bytes")


def gotypes(*arguments: str) -> Any:
    """What hack/gotypes prints."""
    return json.loads(subprocess.check_output(["go", "run", ".", *arguments], cwd=ROOT / "hack" / "gotypes"))


# Only what we serve


def is_served(name: str, resource: str, subresource: str) -> bool:
    return not {(resource, subresource), (resource, "")} & WITHOUT


def narrowed(name: str, document: Any) -> Any:
    """The document without what we do not serve, and without the schemas that then nothing mentions."""
    document["paths"] = {p: path for p, path in document["paths"].items() if is_served(name, *resource_of(p))}
    schemas = document["components"]["schemas"]
    wanted, waiting = set(), list(references(document["paths"]))
    while waiting:
        if (schema := waiting.pop()) not in wanted:
            wanted.add(schema)
            waiting += references(schemas[schema])
    document["components"]["schemas"] = {key: schemas[key] for key in schemas if key in wanted}
    return document


def resource_of(path: str) -> tuple[str, str]:
    """Resource and subresource: /api/v1/namespaces/{namespace}/pods/{name}/log is pods and log."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    parts = parts[1:] if parts[:1] == ["watch"] else parts
    if parts[:2] == ["namespaces", "{namespace}"] and len(parts) > 2:
        parts = parts[2:]
    return (parts[0] if parts else ""), (parts[2] if len(parts) > 2 else "")


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "$ref" and isinstance(item, str):
                yield item.rpartition("/")[2]
            else:
                yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def kept(groups: list[Any]) -> Iterator[Any]:
    for group in groups:
        name = group["metadata"].get("name", "")
        versions = [
            {"version": item["version"], "resources": list(resources(root(name, item["version"]), item))}
            for item in group["versions"]
            if root(name, item["version"]) in SERVED
        ]
        if versions:
            yield {"name": name, "versions": versions}


def root(group: str, version: str) -> str:
    return f"apis/{group}/{version}" if group else f"api/{version}"


def resources(name: str, version: Any) -> Iterator[Any]:
    for resource in version["resources"]:
        plural = resource["resource"]
        parts = resource.get("subresources", [])
        if is_served(name, plural, ""):
            served = [part for part in parts if is_served(name, plural, part["subresource"])]
            yield {**resource, "subresources": served}


# Types


def types(documents: dict[str, Any]) -> Any:
    """All schemas, bare, each property with what Go knows about it."""
    go = gotypes()
    found: dict[str, Any] = {}
    kinds: dict[str, dict[str, str]] = {}
    for document in documents.values():
        for name, schema in document.get("components", {}).get("schemas", {}).items():
            found[name] = bare(schema, enums=any(f".{group}.v1." in name for group in DECLARED))
            for key in found[name].pop("x-kubernetes-group-version-kind", ()):
                version = f"{key['group']}/{key['version']}" if key["group"] else key["version"]
                kinds.setdefault(version, {})[key["kind"]] = name
            for field, known in go.get(name, {}).items():
                found[name]["properties"][field].update(extensions(known))
    return {"kinds": kinds, "schemas": dict(sorted(found.items()))}


def extensions(known: dict[str, Any]) -> dict[str, Any]:
    flags = {"x-go-pointer": known.get("pointer", False), "x-go-omit": known.get("omit", False)}
    return {"x-go-type": known["go"], **{name: True for name, value in flags.items() if value}}


def bare(schema: Any, *, enums: bool) -> Any:
    """Without text for people, and mostly without enumerations: many kinds check their own values."""
    if isinstance(schema, list):
        return [bare(item, enums=enums) for item in schema]
    if not isinstance(schema, dict):
        return schema
    unwanted = {"description", "x-kubernetes-unions", "properties", *(() if enums else ("enum",))}
    result = {key: bare(item, enums=enums) for key, item in schema.items() if key not in unwanted}
    if "properties" in schema:
        result["properties"] = {name: bare(item, enums=enums) for name, item in schema["properties"].items()}
    return result


# Tables


def table_columns(server: real.RealServer, groups: list[Any]) -> Iterator[tuple[str, Any]]:
    """The columns of the kinds of the declared groups. A kind that has no printer has none."""
    for group in kept(groups):
        for version in group["versions"] if group["name"].partition(".")[0] in (*DECLARED, "node") else ():
            for resource in version["resources"]:
                path = f"/{root(group['name'], version['version'])}/{resource['resource']}"
                found = fetch(server, path, "application/json;as=Table;v=v1;g=meta.k8s.io")["columnDefinitions"]
                if [column["name"] for column in found] != ["Name", "Created At"]:
                    yield resource["responseKind"]["kind"], found


# Custom resources


def template(server: real.RealServer, scope: str) -> Any:
    """The document of a group with one custom resource that has every subresource."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    definition = {
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {"plural": PLURAL, "singular": KIND.lower(), "kind": KIND},
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                    "subresources": {
                        "status": {},
                        "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"},
                    },
                }
            ],
        },
    }
    if server.call("POST", path, definition).status != 201:
        raise SystemExit("the template's definition was refused")
    name = f"/openapi/v3/apis/{GROUP}/{VERSION}"
    wait(server, name, 200)
    document = fetch(server, name)
    server.call("DELETE", f"{path}/{PLURAL}.{GROUP}")
    wait(server, name, 404)
    return document


def wait(server: real.RealServer, path: str, status: int) -> None:
    deadline = time.monotonic() + 60
    while server.call("GET", path).status != status:
        if time.monotonic() > deadline:
            raise SystemExit(f"{path} did not become {status}")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
