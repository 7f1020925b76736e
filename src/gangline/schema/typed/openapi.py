"""Type trees: of built-in kinds from the OpenAPI schemas that kube-apiserver publishes, of others from a CRD's schema.

Trees are lazy, and the fields of a definition are built once and shared by all that refer to it, so a tree may be
recursive and costs what is looked at.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from gangline.api.meta import JSON
from gangline.schema.typed import published
from gangline.schema.typed.types import ANY, FREE, Merge, Shape, Type

_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_SCHEMAS = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
OBJECT_META = _META + "ObjectMeta"

# Definitions whose JSON Go reads and writes with code of its own, so that their schema does not tell all.
_SPECIAL = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
    _META + "Time": "time",
    _META + "MicroTime": "micro-time",
}
_FREE = {
    _META + "FieldsV1",
    _META + "Patch",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
    *(
        f"{_SCHEMAS}JSON{part}"
        for part in ("", "SchemaPropsOrArray", "SchemaPropsOrBool", "SchemaPropsOrStringArray")
    ),
}
_PLAIN_GO = {
    "string": "string",
    "boolean": "bool",
    "byte": "[]uint8",
    "number": "float64",
    "integer": "int64",
}


@cache
def types_of(api_version: str, kind: str) -> Type:
    """The tree of a built-in kind. Shared, lazy. Raises LookupError when there is no such kind."""
    return _type({"$ref": _definitions()[api_version, kind]})


@cache
def type_named(definition: str) -> Type:
    """The tree of any published definition: `io.k8s.api.core.v1.PodSpec`. Raises LookupError."""
    if definition not in published.schemas():
        raise LookupError(definition)
    return _type({"$ref": definition})


def types_of_crd(schema: JSON) -> Type:
    """The tree of a custom kind from one version's `openAPIV3Schema`, with the fields that every object has."""
    return _type({**schema, "type": "object", "x-kubernetes-embedded-resource": True})


@cache
def _definitions() -> dict[tuple[str, str], str]:
    found = {}
    for name, schema in published.schemas().items():
        for key in schema.get("x-kubernetes-group-version-kind", ()):
            group, version = key["group"], key["version"]
            found[f"{group}/{version}" if group else version, key["kind"]] = name
    return found


def _type(schema: JSON) -> Type:
    """One node. What a property says of itself goes before what the definition it refers to says."""
    name = _reference(schema)
    if not name:
        return _node(schema, schema, partial(_fields, schema))
    definition = published.schemas()[name]
    if name in _SPECIAL:
        return Type(Shape.SCALAR, scalar=_SPECIAL[name], **_go(schema, name))
    if name in _FREE:
        return Type(Shape.ANY, merge=Merge.ATOMIC, **_go(schema, name))
    merged = {**definition, **schema, "x-go-type": schema.get("x-go-type") or _go_name(name)}
    return _node(merged, definition, partial(_fields_of, name))


def _reference(schema: JSON) -> str:
    if "allOf" in schema and len(schema["allOf"]) == 1:
        schema = schema["allOf"][0]
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _node(schema: JSON, definition: JSON, fields: Callable[[], Mapping[str, Type]]) -> Type:
    match definition.get("type"):
        case _ if schema.get("x-kubernetes-int-or-string"):
            return Type(Shape.SCALAR, scalar="int-or-string", **_go(schema))
        case "object":
            return _object(schema, fields)
        case "array":
            return _list(schema)
        case None:
            return FREE
        case scalar:
            scalar = "byte" if schema.get("format") == "byte" else scalar
            return Type(Shape.SCALAR, scalar=scalar, **_go(schema, scalar=scalar))


def _object(schema: JSON, fields: Callable[[], Mapping[str, Type]]) -> Type:
    merge = Merge.ATOMIC if schema.get("x-kubernetes-map-type") == "atomic" else Merge.GRANULAR
    values = schema.get("additionalProperties")
    if values and not schema.get("properties"):
        shared: dict[str, Any] = {"merge": merge, **_patch(schema), **_go(schema)}
        return Type(Shape.MAP, element=partial(_element, schema, values), **shared)
    keeps = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    return Type(Shape.OBJECT, fields=fields, merge=merge, keep_unknown=keeps, **_patch(schema), **_go(schema))


def _list(schema: JSON) -> Type:
    kinds = {"map": Merge.MAP, "set": Merge.SET}
    keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
    return Type(
        Shape.LIST,
        element=partial(_element, schema, schema.get("items", {})),
        merge=kinds.get(schema.get("x-kubernetes-list-type", ""), Merge.ATOMIC),
        keys=keys,
        key_defaults=_key_defaults(schema, keys),
        **_patch(schema),
        **_go(schema),
    )


def _element(schema: JSON, values: JSON | bool) -> Type:
    """The type of a list's or map's values. Go names it in the container's own name: `[]v1.Capability`."""
    if not isinstance(values, dict) or not values:
        return FREE if schema.get("type") == "object" else ANY
    outer = str(schema.get("x-go-type", ""))
    inner = (
        outer[2:] if outer.startswith("[]") else outer.partition("]")[2] if outer.startswith("map[") else ""
    )
    return _type({**values, "x-go-type": inner} if inner else values)


def _key_defaults(schema: JSON, keys: tuple[str, ...]) -> dict[str, object]:
    if not keys:
        return {}
    items = schema.get("items", {})
    name = _reference(items)
    properties = (published.schemas()[name] if name else items).get("properties", {})
    return {key: properties[key]["default"] for key in keys if "default" in properties.get(key, {})}


def _patch(schema: JSON) -> dict[str, Any]:
    strategies = str(schema.get("x-kubernetes-patch-strategy", "")).split(",")
    return {
        "patch_merge": "merge" in strategies,
        "patch_retain_keys": "retainKeys" in strategies,
        "patch_replace": "replace" in strategies,
        "patch_key": schema.get("x-kubernetes-patch-merge-key", ""),
    }


def _go(schema: JSON, definition: str = "", scalar: str = "") -> dict[str, Any]:
    plain = schema.get("format") if schema.get("format") in ("int32", "int64") else _PLAIN_GO.get(scalar, "")
    return {
        "go": schema.get("x-go-type") or (_go_name(definition) if definition else plain),
        "pointer": bool(schema.get("x-go-pointer")),
        "omit": bool(schema.get("x-go-omit")),
    }


def _go_name(definition: str) -> str:
    """`v1.PodSpec` of `io.k8s.api.core.v1.PodSpec`."""
    return ".".join(definition.rsplit(".", 2)[1:])


@cache
def _fields_of(name: str) -> Mapping[str, Type]:
    return _fields(published.schemas()[name])


def _fields(schema: JSON) -> Mapping[str, Type]:
    found = {name: _type(field) for name, field in schema.get("properties", {}).items()}
    if schema.get("x-kubernetes-embedded-resource"):
        text = Type(Shape.SCALAR, scalar="string", go="string")
        found = {**found, "apiVersion": text, "kind": text, "metadata": type_named(OBJECT_META)}
    return found
