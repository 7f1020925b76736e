"""OpenAPI documents: what `kubectl explain`, `apply` and client-side validation read.

Built-in groups have kube-apiserver's own documents. Those of custom resources are made as it makes them: the CRD's
schema, completed with what every object has, between the paths of a saved template.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.registry.resources import Served, defined, root
from gangline.schema.protobuf import openapi_v2
from gangline.schema.typed import published

"""The content type of the index is this, of all else `application/json`: kube-apiserver has it so."""

_SCALE = "io.k8s.api.autoscaling.v1.Scale"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_CONVENTIONS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"

# The names in the template, as hack/openapi.py chose them.
_GROUP, _VERSION, _KIND, _PLURAL = "sentinelgroup.test", "v777", "Sentinelkind", "sentinelkinds"


class Document(msgspec.Struct, frozen=True):
    """A document to be sent, and its hash, which is its ETag and part of its address."""

    content: bytes
    hash: str


class Documents:
    """The documents of a server with these CRDs. A value: when CRDs change, make another. Made when asked for."""

    def __init__(self, crds: Iterable[JSON] = ()) -> None:
        self._kinds: dict[str, list[tuple[Served, JSON]]] = {}
        for crd in crds:
            schemas = {item["name"]: item.get("schema") or {} for item in crd["spec"]["versions"]}
            for served in defined(crd):
                schema = schemas[served.version].get("openAPIV3Schema") or {}
                self._kinds.setdefault(served.root, []).append((served, schema))
        self._made: dict[str, Document] = {}

    @cached_property
    def index(self) -> bytes:
        """/openapi/v3: where each document is."""
        hashes = {**published.discovery().hashes, **{name: self._hash(name) for name in self._kinds}}
        paths = {
            name: {"serverRelativeURL": f"/openapi/v3/{name}?hash={hashed}"}
            for name, hashed in sorted(hashes.items())
        }
        return msgspec.json.encode({"paths": paths})

    def document(self, name: str) -> Document | None:
        """/openapi/v3/NAME (`apis/apps/v1`); None when there is none: 404 with an empty body."""
        if name in self._kinds:
            return self._custom(name)
        content = published.documents().get(name)
        return None if content is None else Document(bytes(content), published.discovery().hashes[name])

    def _custom(self, name: str) -> Document:
        if name not in self._made:
            content = msgspec.json.encode(_group_document(self._kinds[name]))
            self._made[name] = Document(content, self._hash(name))
        return self._made[name]

    def _hash(self, name: str) -> str:
        # Of what the document is made from, so that the index need not make them all.
        return hashlib.sha512(msgspec.json.encode(self._kinds[name])).hexdigest().upper()

    def swagger(self) -> bytes:
        """/openapi/v2: all schemas, and no paths. kubectl reads it where v3 says nothing: to validate a `List`."""
        return msgspec.json.encode(self._swagger)

    @cached_property
    def swagger_protobuf(self) -> bytes:
        """The same in protobuf, the only form of it that kubectl takes."""
        return openapi_v2.encode(self._swagger)

    @cached_property
    def _swagger(self) -> JSON:
        definitions: JSON = {}
        contents = [bytes(document) for document in published.documents().values()]
        for content in [*contents, *(self._custom(name).content for name in self._kinds)]:
            definitions.update(msgspec.json.decode(content).get("components", {}).get("schemas", {}))
        return {
            "swagger": "2.0",
            "info": {"title": "Kubernetes", "version": "v1.34.4"},
            "paths": {},
            "definitions": {name: _as_v2(schema) for name, schema in definitions.items()},
        }


# Documents of custom resources


def _group_document(kinds: list[tuple[Served, JSON]]) -> JSON:
    document: JSON = {}
    for served, schema in kinds:
        made = msgspec.json.decode(_renamed(published.template(namespaced=served.namespaced), served))
        definition = definition_name(served.group, served.version, served.kind)
        made["components"]["schemas"].update(_definitions(definition, served, schema))
        for part in ("status", "scale"):
            if served.subresource(part) is None:
                _drop(made, part)
        if not document:
            document = made
        document["paths"].update(made["paths"])
        document["components"]["schemas"].update(made["components"]["schemas"])
    return document


def _drop(document: JSON, subresource: str) -> None:
    for path in [path for path in document["paths"] if path.endswith(f"}}/{subresource}")]:
        del document["paths"][path]
    if subresource == "scale":
        for name in [name for name in document["components"]["schemas"] if name.startswith(_SCALE)]:
            del document["components"]["schemas"][name]


def definition_name(group: str, version: str, kind: str) -> str:
    """`org.kubeflow.v1.TFJob`: the group is turned round."""
    return ".".join([*reversed(group.split(".")), version, kind])


def _renamed(template: bytes, served: Served) -> bytes:
    """The template with the names of a resource, in each of the ways it spells them."""
    text = template.decode()
    for old, new in (
        (
            definition_name(_GROUP, _VERSION, _KIND),
            definition_name(served.group, served.version, served.kind),
        ),
        (_title(_GROUP) + _VERSION.title(), _title(served.group) + served.version.title()),
        (f"{_camel(_GROUP)}_{_VERSION}", f"{_camel(served.group)}_{served.version}"),
        (root(_GROUP, _VERSION), served.root),
        (f'"{_GROUP}"', f'"{served.group}"'),
        (f'"{_VERSION}"', f'"{served.version}"'),
        (_PLURAL, served.plural),
        (_KIND, served.kind),
    ):
        text = text.replace(old, new)
    return text.encode()


def _title(group: str) -> str:
    return "".join(part.title() for part in group.replace("-", ".").split("."))


def _camel(group: str) -> str:
    title = _title(group)
    return title[:1].lower() + title[1:]


def _definitions(name: str, served: Served, schema: JSON) -> JSON:
    key = {"group": served.group, "version": served.version}
    kind = {
        **_completed(schema),
        "x-kubernetes-group-version-kind": [{**key, "kind": served.kind}],
    }
    kind["properties"] = {**kind.get("properties", {}), **_type_meta("APIVersion", "Kind")}
    kind["properties"]["metadata"] = _reference("ObjectMeta", "Standard object's metadata.", "metadata")
    items = {
        "description": f"List of {served.plural}. More info: {_CONVENTIONS}",
        "items": {"$ref": f"#/components/schemas/{name}"},
        "type": "array",
    }
    listed = {
        "description": f"{served.list_kind} is a list of {served.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            **_type_meta("APIVersion", "Kind"),
            "items": items,
            "metadata": _reference("ListMeta", "Standard list metadata.", "types-kinds"),
        },
        "x-kubernetes-group-version-kind": [{**key, "kind": served.list_kind}],
    }
    return {name: kind, definition_name(served.group, served.version, served.list_kind): listed}


def _type_meta(api_version: str, kind: str) -> JSON:
    converted = "Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. "
    inferred = "Servers may infer this from the endpoint the client submits requests to. Cannot be updated. "
    return {
        "apiVersion": {
            "description": f"{api_version} defines the versioned schema of this representation of an object. "
            f"{converted}More info: {_CONVENTIONS}#resources",
            "type": "string",
        },
        "kind": {
            "description": f"{kind} is a string value representing the REST resource this object represents. "
            f"{inferred}In CamelCase. More info: {_CONVENTIONS}#types-kinds",
            "type": "string",
        },
    }


def _embedded_meta() -> JSON:
    return {
        "apiVersion": {
            "description": "apiVersion defines the versioned schema of this representation of an object. "
            f"More info: {_CONVENTIONS}#resources",
            "type": "string",
        },
        "kind": {
            "description": "kind is a string value representing the type of this object. In CamelCase. "
            f"More info: {_CONVENTIONS}#types-kinds",
            "type": "string",
        },
        "metadata": _reference("ObjectMeta", "Standard object's metadata.", "metadata"),
    }


def _reference(name: str, told: str, section: str) -> JSON:
    return {
        "description": f"{told} More info: {_CONVENTIONS}#{section}",
        "allOf": [{"$ref": f"#/components/schemas/{_META}{name}"}],
    }


def _completed(schema: JSON) -> JSON:
    """A CRD's schema as it is published: with what its extensions imply."""
    result = {key: _completed_part(key, value) for key, value in schema.items()}
    if result.get("x-kubernetes-int-or-string") and not {"anyOf", "allOf"} & result.keys():
        result["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if result.get("x-kubernetes-embedded-resource"):
        result["properties"] = {**result.get("properties", {}), **_embedded_meta()}
        result["required"] = [*dict.fromkeys([*result.get("required", ()), "kind", "apiVersion"])]
    return result


def _completed_part(key: str, value: Any) -> Any:
    if key == "properties":
        return {name: _completed(item) for name, item in value.items()}
    if key in ("items", "additionalProperties") and isinstance(value, Mapping):
        return _completed(dict(value))
    return value


# The second version of OpenAPI

_NOT_IN_V2 = frozenset({"nullable", "anyOf", "oneOf", "not", "allOf", "default"})


def _as_v2(schema: Any) -> JSON:
    if not isinstance(schema, dict):
        return {}
    if schema.get("x-kubernetes-preserve-unknown-fields") and "x-kubernetes-group-version-kind" not in schema:
        # The second version cannot say it, so it says nothing of the object at all.
        return {
            key: value
            for key, value in schema.items()
            if key.startswith("x-kubernetes-") or key == "description"
        }
    result = dict(_v2_parts(schema))
    for part in schema.get("allOf", ()):
        if "$ref" in part:
            result["$ref"] = _v2_reference(part["$ref"])
    if "oneOf" in schema and "type" not in result:
        result["type"] = "string"
    return result


def _v2_parts(schema: JSON) -> Iterator[tuple[str, Any]]:
    for key, value in schema.items():
        if key == "$ref":
            yield key, _v2_reference(value)
        elif key == "properties":
            yield key, {name: _as_v2(item) for name, item in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            yield key, _as_v2(value)
        elif key not in _NOT_IN_V2:
            yield key, value


def _v2_reference(reference: str) -> str:
    return reference.replace("#/components/schemas/", "#/definitions/")
