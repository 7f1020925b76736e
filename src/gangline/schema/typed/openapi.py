"""Type trees: of built-in kinds from the published OpenAPI schemas, of custom kinds from the schema of their CRD.

Trees are lazy. The fields of a definition are built once and shared by all references to it, so a tree may be recursive
and costs only what is used.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from gangline.api.meta import JSON
from gangline.schema.typed import published
from gangline.schema.typed.types import UNTYPED_ATOMIC, UNTYPED_DEDUCED, MergeType, TypeNode, TypeShape

_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_APIEXTENSIONS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
OBJECT_META = _META + "ObjectMeta"

# Definitions with their own JSON code in Go, which their schemas do not describe.
_SPECIAL_SCALARS = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
    _META + "Time": "time",
    _META + "MicroTime": "micro-time",
}
_FREE_FORM = {
    _META + "FieldsV1",
    _META + "Patch",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
    *(
        f"{_APIEXTENSIONS}JSON{part}"
        for part in ("", "SchemaPropsOrArray", "SchemaPropsOrBool", "SchemaPropsOrStringArray")
    ),
}
_GO_SCALARS = {"string": "string", "boolean": "bool", "byte": "[]uint8", "number": "float64", "integer": "int64"}


@cache
def builtin_type(api_version: str, kind: str) -> TypeNode:
    """The tree of a built-in kind. Shared and lazy. Raises LookupError for an unknown kind."""
    return _schema_type({"$ref": definition_name(api_version, kind)})


def definition_name(api_version: str, kind: str) -> str:
    """The definition of a built-in kind: `io.k8s.api.core.v1.Pod`. Raises LookupError for an unknown kind."""
    return published.definition_names()[api_version][kind]


@cache
def definition_type(definition: str) -> TypeNode:
    """The tree of any published definition: `io.k8s.api.core.v1.PodSpec`. Raises LookupError."""
    if definition not in published.schemas():
        raise LookupError(definition)
    return _schema_type({"$ref": definition})


def crd_type(schema: JSON) -> TypeNode:
    """The tree of a custom kind, from the `openAPIV3Schema` of one version and the fields that every object has."""
    return _schema_type({**schema, "type": "object", "x-kubernetes-embedded-resource": True})


def _schema_type(schema: JSON) -> TypeNode:
    """The node of a schema. Keywords of a property override those of the definition that it refers to."""
    name = published.ref_name(schema)
    if not name:
        return _typed_node(schema, schema, partial(_field_types, schema))
    definition = published.schemas()[name]
    if name in _SPECIAL_SCALARS:
        return TypeNode(TypeShape.SCALAR, scalar=_SPECIAL_SCALARS[name], **_go_options(schema, name))
    if name in _FREE_FORM:
        return TypeNode(TypeShape.ANY, merge=MergeType.ATOMIC, **_go_options(schema, name))
    merged = {**definition, **schema, "x-go-type": schema.get("x-go-type") or _go_type_name(name)}
    return _typed_node(merged, definition, partial(_definition_fields, name))


def _typed_node(schema: JSON, definition: JSON, fields: Callable[[], Mapping[str, TypeNode]]) -> TypeNode:
    match definition.get("type"):
        case _ if schema.get("x-kubernetes-int-or-string"):
            return TypeNode(TypeShape.SCALAR, scalar="int-or-string", **_go_options(schema))
        case "object":
            return _object_type(schema, fields)
        case "array":
            return _list_type(schema)
        case None:
            return UNTYPED_DEDUCED
        case scalar:
            scalar = "byte" if schema.get("format") == "byte" else scalar
            return TypeNode(TypeShape.SCALAR, scalar=scalar, **_go_options(schema, scalar=scalar))


def _object_type(schema: JSON, fields: Callable[[], Mapping[str, TypeNode]]) -> TypeNode:
    merge = MergeType.ATOMIC if schema.get("x-kubernetes-map-type") == "atomic" else MergeType.GRANULAR
    values = schema.get("additionalProperties")
    if values and not schema.get("properties"):
        shared: dict[str, Any] = {"merge": merge, **_patch_options(schema), **_go_options(schema)}
        return TypeNode(TypeShape.MAP, element=partial(_element_type, schema, values), **shared)
    keeps = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    return TypeNode(
        TypeShape.OBJECT,
        fields=fields,
        merge=merge,
        keep_unknown=keeps,
        **_patch_options(schema),
        **_go_options(schema),
    )


def _list_type(schema: JSON) -> TypeNode:
    kinds = {"map": MergeType.MAP, "set": MergeType.SET}
    keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
    return TypeNode(
        TypeShape.LIST,
        element=partial(_element_type, schema, schema.get("items", {})),
        merge=kinds.get(schema.get("x-kubernetes-list-type", ""), MergeType.ATOMIC),
        keys=keys,
        key_defaults=_key_defaults(schema, keys),
        **_patch_options(schema),
        **_go_options(schema),
    )


def _element_type(schema: JSON, values: JSON | bool) -> TypeNode:
    """The type of a list's or map's values. The Go name of the container includes theirs: `[]v1.Capability`."""
    if not isinstance(values, dict) or not values:
        return UNTYPED_DEDUCED if schema.get("type") == "object" else UNTYPED_ATOMIC
    outer = str(schema.get("x-go-type", ""))
    inner = outer[2:] if outer.startswith("[]") else outer.partition("]")[2] if outer.startswith("map[") else ""
    return _schema_type({**values, "x-go-type": inner} if inner else values)


def _key_defaults(schema: JSON, keys: tuple[str, ...]) -> dict[str, object]:
    if not keys:
        return {}
    items = schema.get("items", {})
    name = published.ref_name(items)
    properties = (published.schemas()[name] if name else items).get("properties", {})
    return {key: properties[key]["default"] for key in keys if "default" in properties.get(key, {})}


def _patch_options(schema: JSON) -> dict[str, Any]:
    strategies = str(schema.get("x-kubernetes-patch-strategy", "")).split(",")
    return {
        "patch_merge": "merge" in strategies,
        "patch_retain_keys": "retainKeys" in strategies,
        "patch_replace": "replace" in strategies,
        "patch_key": schema.get("x-kubernetes-patch-merge-key", ""),
    }


def _go_options(schema: JSON, definition: str = "", scalar: str = "") -> dict[str, Any]:
    plain = schema.get("format") if schema.get("format") in ("int32", "int64") else _GO_SCALARS.get(scalar, "")
    return {
        "go": schema.get("x-go-type") or (_go_type_name(definition) if definition else plain),
        "pointer": bool(schema.get("x-go-pointer")),
        "omit": bool(schema.get("x-go-omit")),
    }


def _go_type_name(definition: str) -> str:
    """`v1.PodSpec` of `io.k8s.api.core.v1.PodSpec`."""
    return ".".join(definition.rsplit(".", 2)[1:])


@cache
def _definition_fields(name: str) -> Mapping[str, TypeNode]:
    return _field_types(published.schemas()[name])


def _field_types(schema: JSON) -> Mapping[str, TypeNode]:
    fields = {name: _schema_type(field) for name, field in schema.get("properties", {}).items()}
    if schema.get("x-kubernetes-embedded-resource"):
        text = TypeNode(TypeShape.SCALAR, scalar="string", go="string")
        fields = {**fields, "apiVersion": text, "kind": text, "metadata": definition_type(OBJECT_META)}
    return fields
