"""Kubernetes' own types inside a custom resource: published schemas, rewritten as structural schemas."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.schema.typed import published

POD_TEMPLATE = "io.k8s.api.core.v1.PodTemplateSpec"
METRIC_SPEC = "io.k8s.api.autoscaling.v2.MetricSpec"
LABEL_SELECTOR = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_QUANTITY_NAME = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING_NAME = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_DOCUMENTS = ("api/v1", "apis/autoscaling/v2")

# The keywords to keep. Strategic patches and unions mean nothing in a CRD, and an enum would refuse values of a newer
# Kubernetes.
_KEPT_KEYWORDS = (
    "type",
    "format",
    "required",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
)
_INT_OR_STRING_SCHEMA: JSON = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
QUANTITY_SCHEMA: JSON = {
    **_INT_OR_STRING_SCHEMA,
    "pattern": r"^[+-]?([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)))?$",
}
_STRING_MAP: JSON = {"type": "object", "additionalProperties": {"type": "string"}}
# The five metadata fields of a template that v1 keeps.
_TEMPLATE_META_SCHEMA: JSON = {
    "type": "object",
    "properties": {
        "annotations": _STRING_MAP,
        "finalizers": {"type": "array", "items": {"type": "string"}},
        "labels": _STRING_MAP,
        "name": {"type": "string"},
        "namespace": {"type": "string"},
    },
}
_INLINE_SCHEMAS: dict[str, JSON] = {
    _QUANTITY_NAME: QUANTITY_SCHEMA,
    _INT_OR_STRING_NAME: _INT_OR_STRING_SCHEMA,
    _META + "ObjectMeta": _TEMPLATE_META_SCHEMA,
}


@cache
def definition_schema(definition: str, *, described: bool = False) -> JSON:
    """A published definition as a structural schema with all references inlined. Shared: must not be changed."""
    return _DefinitionWriter(_described_schemas() if described else published.schemas()).definition_schema(definition)


@cache
def _described_schemas() -> Mapping[str, Any]:
    schemas: dict[str, Any] = {}
    documents = published.openapi_documents()
    for name in _DOCUMENTS:
        schemas |= msgspec.json.decode(documents[name])["components"]["schemas"]
    return schemas


class _DefinitionWriter:
    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions

    def definition_schema(self, name: str) -> JSON:
        return self._inline_schema({"$ref": name})

    def _inline_schema(self, schema: JSON) -> JSON:
        name = published.ref_name(schema)
        if name in _INLINE_SCHEMAS:
            return {**_INLINE_SCHEMAS[name], **_description(schema)}
        if name:
            # Keywords of a field override those of its type.
            schema = {**self._definitions[name], **schema}
        result = {keyword: schema[keyword] for keyword in _KEPT_KEYWORDS if keyword in schema} | _description(schema)
        if schema.get("properties"):
            result["properties"] = {field: self._inline_schema(part) for field, part in schema["properties"].items()}
        for inner in ("items", "additionalProperties"):
            if isinstance(schema.get(inner), dict):
                result[inner] = self._inline_schema(schema[inner])
        self._keep_key_defaults(result, schema)
        return result

    def _keep_key_defaults(self, result: JSON, schema: JSON) -> None:
        """Keep the defaults of list map keys that are optional. Kubernetes sets all other defaults in the pod."""
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        if not keys:
            return
        items = schema["items"]
        name = published.ref_name(items)
        items = self._definitions[name] if name else items
        for key in keys:
            if key not in items.get("required", ()):
                result["items"]["properties"][key]["default"] = items["properties"][key]["default"]


def _description(schema: JSON) -> JSON:
    return {"description": schema["description"]} if schema.get("description") else {}
