"""OpenAPI documents, for `kubectl explain`, `apply` and client-side validation.

Built-in groups have kube-apiserver's own documents. A document of custom resources is built as kube-apiserver builds
it: the CRD's schema, completed with the fields of every object, and the paths of a saved template.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import msgspec

from gangline.api.core import KUBERNETES_VERSION
from gangline.api.meta import JSON
from gangline.apiserver.registry.resources import ApiResource, crd_resources, group_version_path
from gangline.schema.protobuf import openapi_v2
from gangline.schema.typed import published

_SCALE_DEFINITION = "io.k8s.api.autoscaling.v1.Scale"
_META_PREFIX = "io.k8s.apimachinery.pkg.apis.meta.v1."
_CONVENTIONS_URL = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"

# The names in the template, chosen by hack/openapi.py.
_GROUP, _VERSION, _KIND, _PLURAL = "sentinelgroup.test", "v777", "Sentinelkind", "sentinelkinds"


class OpenApiDocument(msgspec.Struct, frozen=True):
    """A document and its hash, which is its ETag and part of its URL."""

    content: bytes
    hash: str


class OpenApiDocuments:
    """The documents of a server with these CRDs, each built at first use. Immutable."""

    def __init__(self, crds: Iterable[JSON] = ()) -> None:
        self._custom_kinds: dict[str, list[tuple[ApiResource, JSON]]] = {}
        for crd in crds:
            versions = {item["name"]: item for item in crd["spec"]["versions"]}
            for resource in crd_resources(crd):
                self._custom_kinds.setdefault(resource.group_version_path, []).append(
                    (resource, versions[resource.version])
                )
        self._custom_documents: dict[str, OpenApiDocument] = {}

    @cached_property
    def index(self) -> bytes:
        """/openapi/v3: the URLs of all documents."""
        hashes = {
            **published.discovery_data().hashes,
            **{name: self._document_hash(name) for name in self._custom_kinds},
        }
        paths = {
            name: {"serverRelativeURL": f"/openapi/v3/{name}?hash={digest}"} for name, digest in sorted(hashes.items())
        }
        return msgspec.json.encode({"paths": paths})

    def document(self, name: str) -> OpenApiDocument | None:
        """/openapi/v3/NAME (`apis/apps/v1`); None if there is none: 404 with an empty body."""
        if name in self._custom_kinds:
            return self._custom_document(name)
        content = published.openapi_documents().get(name)
        return None if content is None else OpenApiDocument(bytes(content), published.discovery_data().hashes[name])

    def _custom_document(self, name: str) -> OpenApiDocument:
        if name not in self._custom_documents:
            content = msgspec.json.encode(_group_document(self._custom_kinds[name]))
            self._custom_documents[name] = OpenApiDocument(content, self._document_hash(name))
        return self._custom_documents[name]

    def _document_hash(self, name: str) -> str:
        # A hash of the CRDs, not of the document, so that the index does not build all documents.
        return hashlib.sha512(msgspec.json.encode(self._custom_kinds[name])).hexdigest().upper()

    def swagger(self) -> bytes:
        """/openapi/v2: all schemas and no paths. kubectl uses it to validate a `List`, for which v3 has no schema."""
        return msgspec.json.encode(self._swagger)

    @cached_property
    def swagger_protobuf(self) -> bytes:
        """/openapi/v2 in protobuf, the only format in which kubectl accepts it."""
        return openapi_v2.encode(self._swagger)

    @cached_property
    def _swagger(self) -> JSON:
        definitions: JSON = {}
        contents = [bytes(document) for document in published.openapi_documents().values()]
        for content in [*contents, *(self._custom_document(name).content for name in self._custom_kinds)]:
            definitions.update(msgspec.json.decode(content).get("components", {}).get("schemas", {}))
        return {
            "swagger": "2.0",
            "info": {"title": "Kubernetes", "version": f"v{KUBERNETES_VERSION}"},
            "paths": {},
            "definitions": {name: _v2_schema(schema) for name, schema in definitions.items()},
        }


# Documents of custom resources


def _group_document(kinds: list[tuple[ApiResource, JSON]]) -> JSON:
    """The document of resources, each with its version of the CRD."""
    document: JSON = {}
    for resource, version in kinds:
        kind_document = msgspec.json.decode(
            _template_for(published.crd_document_template(namespaced=resource.namespaced), resource)
        )
        schema_name = definition_name(resource.group, resource.version, resource.kind)
        kind_document["components"]["schemas"].update(_definitions(schema_name, resource, version))
        for part in ("status", "scale"):
            if resource.subresource(part) is None:
                _drop_subresource(kind_document, part)
        if not document:
            document = kind_document
        document["paths"].update(kind_document["paths"])
        document["components"]["schemas"].update(kind_document["components"]["schemas"])
    return document


def _drop_subresource(document: JSON, subresource: str) -> None:
    for path in [path for path in document["paths"] if path.endswith(f"}}/{subresource}")]:
        del document["paths"][path]
    if subresource == "scale":
        for name in [name for name in document["components"]["schemas"] if name.startswith(_SCALE_DEFINITION)]:
            del document["components"]["schemas"][name]


def definition_name(group: str, version: str, kind: str) -> str:
    """The name of a schema, with the group reversed: `org.kubeflow.v1.TFJob`."""
    return ".".join([*reversed(group.split(".")), version, kind])


def _template_for(template: bytes, resource: ApiResource) -> bytes:
    """The template with the names of a resource in place of its own, in all their spellings."""
    text = template.decode()
    for old, new in (
        (definition_name(_GROUP, _VERSION, _KIND), definition_name(resource.group, resource.version, resource.kind)),
        (_group_title(_GROUP) + _VERSION.title(), _group_title(resource.group) + resource.version.title()),
        (f"{_group_camel_case(_GROUP)}_{_VERSION}", f"{_group_camel_case(resource.group)}_{resource.version}"),
        (group_version_path(_GROUP, _VERSION), resource.group_version_path),
        (f'"{_GROUP}"', f'"{resource.group}"'),
        (f'"{_VERSION}"', f'"{resource.version}"'),
        (_PLURAL, resource.plural),
        (_KIND, resource.kind),
    ):
        text = text.replace(old, new)
    return text.encode()


def _group_title(group: str) -> str:
    return "".join(part.title() for part in group.replace("-", ".").split("."))


def _group_camel_case(group: str) -> str:
    title = _group_title(group)
    return title[:1].lower() + title[1:]


def _definitions(name: str, resource: ApiResource, version: JSON) -> JSON:
    key, schema = {"group": resource.group, "version": resource.version}, version.get("schema") or {}
    extensions = _selectable_fields(version)
    schema_of_kind = {
        **_published_schema(schema.get("openAPIV3Schema") or {}),
        "x-kubernetes-group-version-kind": [{**key, "kind": resource.kind}],
        **extensions,
    }
    schema_of_kind["properties"] = {**schema_of_kind.get("properties", {}), **_type_meta("APIVersion", "Kind")}
    schema_of_kind["properties"]["metadata"] = _schema_reference(
        "ObjectMeta", "Standard object's metadata.", "metadata"
    )
    items = {
        "description": f"List of {resource.plural}. More info: {_CONVENTIONS_URL}",
        "items": {"$ref": f"#/components/schemas/{name}"},
        "type": "array",
    }
    list_schema = {
        "description": f"{resource.list_kind} is a list of {resource.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            **_type_meta("APIVersion", "Kind"),
            "items": items,
            "metadata": _schema_reference("ListMeta", "Standard list metadata.", "types-kinds"),
        },
        "x-kubernetes-group-version-kind": [{**key, "kind": resource.list_kind}],
        **extensions,
    }
    return {name: schema_of_kind, definition_name(resource.group, resource.version, resource.list_kind): list_schema}


def _selectable_fields(version: JSON) -> JSON:
    fields = [{"fieldPath": item["jsonPath"].removeprefix(".")} for item in version.get("selectableFields") or ()]
    return {"x-kubernetes-selectable-fields": fields} if fields else {}


def _type_meta(api_version: str, kind: str) -> JSON:
    converted = (
        "Servers should convert recognized schemas to the latest internal value, and may reject unrecognized values. "
    )
    inferred = "Servers may infer this from the endpoint the client submits requests to. Cannot be updated. "
    return {
        "apiVersion": {
            "description": f"{api_version} defines the versioned schema of this representation of an object. "
            f"{converted}More info: {_CONVENTIONS_URL}#resources",
            "type": "string",
        },
        "kind": {
            "description": f"{kind} is a string value representing the REST resource this object represents. "
            f"{inferred}In CamelCase. More info: {_CONVENTIONS_URL}#types-kinds",
            "type": "string",
        },
    }


def _embedded_meta() -> JSON:
    return {
        "apiVersion": {
            "description": "apiVersion defines the versioned schema of this representation of an object. "
            f"More info: {_CONVENTIONS_URL}#resources",
            "type": "string",
        },
        "kind": {
            "description": "kind is a string value representing the type of this object. In CamelCase. "
            f"More info: {_CONVENTIONS_URL}#types-kinds",
            "type": "string",
        },
        "metadata": _schema_reference("ObjectMeta", "Standard object's metadata.", "metadata"),
    }


def _schema_reference(name: str, description: str, section: str) -> JSON:
    return {
        "description": f"{description} More info: {_CONVENTIONS_URL}#{section}",
        "allOf": [{"$ref": f"#/components/schemas/{_META_PREFIX}{name}"}],
    }


def _published_schema(schema: JSON) -> JSON:
    """A CRD's schema as it is published, with what the `x-kubernetes` extensions imply."""
    result = {key: _published_keyword(key, value) for key, value in schema.items()}
    if result.get("x-kubernetes-int-or-string") and not {"anyOf", "allOf"} & result.keys():
        result["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if result.get("x-kubernetes-embedded-resource"):
        result["properties"] = {**result.get("properties", {}), **_embedded_meta()}
        result["required"] = [*dict.fromkeys([*result.get("required", ()), "kind", "apiVersion"])]
    return result


def _published_keyword(key: str, value: Any) -> Any:
    if key == "properties":
        return {name: _published_schema(item) for name, item in value.items()}
    if key in ("items", "additionalProperties") and isinstance(value, Mapping):
        return _published_schema(dict(value))
    return value


# OpenAPI v2

_V3_ONLY_KEYWORDS = frozenset({"nullable", "anyOf", "oneOf", "not", "allOf", "default"})


def _v2_schema(schema: Any) -> JSON:
    if not isinstance(schema, dict):
        return {}
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        # OpenAPI v2 cannot express it, so kube-apiserver publishes nothing about the object.
        if "x-kubernetes-group-version-kind" in schema:
            kept = ("x-kubernetes-group-version-kind", "x-kubernetes-selectable-fields")
            return {"type": "object", **{key: schema[key] for key in kept if key in schema}}
        return {key: value for key, value in schema.items() if key.startswith("x-kubernetes-") or key == "description"}
    result = dict(_v2_keywords(schema))
    for part in schema.get("allOf", ()):
        if "$ref" in part:
            result["$ref"] = _v2_reference(part["$ref"])
    if "oneOf" in schema and "type" not in result:
        result["type"] = "string"
    return result


def _v2_keywords(schema: JSON) -> Iterator[tuple[str, Any]]:
    for key, value in schema.items():
        if key == "$ref":
            yield key, _v2_reference(value)
        elif key == "properties":
            yield key, {name: _v2_schema(item) for name, item in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            yield key, _v2_schema(value)
        elif key not in _V3_ONLY_KEYWORDS:
            yield key, value


def _v2_reference(reference: str) -> str:
    return reference.replace("#/components/schemas/", "#/definitions/")
