"""Kubernetes' own types inside a custom resource: its published schemas, rewritten as a CRD must have them."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.schema.typed import published

POD_TEMPLATE = "io.k8s.api.core.v1.PodTemplateSpec"
METRIC = "io.k8s.api.autoscaling.v2.MetricSpec"
LABEL_SELECTOR = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_DOCUMENTS = ("api/v1", "apis/autoscaling/v2")

# The keywords that a CRD may have and that say something here. Strategic patches, unions and enums are not among
# them: the first two mean nothing in a CRD, and an enum would refuse what a newer Kubernetes takes.
_KEPT = (
    "type",
    "format",
    "required",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
)
_EITHER: JSON = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
QUANTITY: JSON = {
    **_EITHER,
    "pattern": r"^[+-]?([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)(([KMGTPE]i)|[numkMGTPE]|([eE][+-]?([0-9]+|[0-9]+\.[0-9]*|\.[0-9]+)))?$",
}
_TEXTS: JSON = {"type": "object", "additionalProperties": {"type": "string"}}
# What a template may say of the objects made from it: the five fields that v1 keeps.
_TEMPLATE_META: JSON = {
    "type": "object",
    "properties": {
        "annotations": _TEXTS,
        "finalizers": {"type": "array", "items": {"type": "string"}},
        "labels": _TEXTS,
        "name": {"type": "string"},
        "namespace": {"type": "string"},
    },
}
_WRITTEN_OUT: dict[str, JSON] = {
    _QUANTITY: QUANTITY,
    _INT_OR_STRING: _EITHER,
    _META + "ObjectMeta": _TEMPLATE_META,
}


@cache
def schema_of(definition: str, *, described: bool = False) -> JSON:
    """A published definition as a structural schema, all that it refers to written out. Shared: not to be changed."""
    return _Writer(_described() if described else published.schemas()).definition(definition)


@cache
def _described() -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    documents = published.documents()
    for name in _DOCUMENTS:
        found |= msgspec.json.decode(documents[name])["components"]["schemas"]
    return found


class _Writer:
    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions

    def definition(self, name: str) -> JSON:
        return self._schema({"$ref": name})

    def _schema(self, said: JSON) -> JSON:
        name = _reference(said)
        if name in _WRITTEN_OUT:
            return {**_WRITTEN_OUT[name], **_description(said)}
        if name:
            # What a field says of itself goes before what its type says.
            said = {**self._definitions[name], **said}
        written = {keyword: said[keyword] for keyword in _KEPT if keyword in said} | _description(said)
        if said.get("properties"):
            written["properties"] = {field: self._schema(part) for field, part in said["properties"].items()}
        for inner in ("items", "additionalProperties"):
            if isinstance(said.get(inner), dict):
                written[inner] = self._schema(said[inner])
        self._keep_key_defaults(written, said)
        return written

    def _keep_key_defaults(self, written: JSON, said: JSON) -> None:
        """A key that may be left out needs its default. All others Kubernetes fills in itself, in the pod."""
        keys = said.get("x-kubernetes-list-map-keys") or ()
        if not keys:
            return
        items = said["items"]
        name = _reference(items)
        items = self._definitions[name] if name else items
        for key in keys:
            if key not in items.get("required", ()):
                written["items"]["properties"][key]["default"] = items["properties"][key]["default"]


def _reference(schema: JSON) -> str:
    if len(schema.get("allOf", ())) == 1:
        schema = schema["allOf"][0]
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _description(schema: JSON) -> JSON:
    return {"description": schema["description"]} if schema.get("description") else {}
