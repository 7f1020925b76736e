"""Structural schemas of our structs: the names of fields on the wire, types, and what is required."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect

from gangline.api.meta import JSON, QUANTITY_FORMAT
from gangline.api.scheme import Resource
from gangline.schema.crds.pod_schemas import QUANTITY_SCHEMA

FieldKeywords: TypeAlias = Mapping[tuple[type, str], JSON]
"""Keywords that a type does not imply: bounds, defaults, rules. By struct and name on the wire."""


class StructSchemaWriter:
    """Writes schemas of structs.

    Args:
        fields: keywords to add. A field with a type here has its whole schema here.
        words: descriptions, by struct and name on the wire.
    """

    def __init__(self, fields: FieldKeywords, words: Mapping[tuple[type, str], str]) -> None:
        self._keywords, self._descriptions = fields, words

    def struct_schema(self, model: type) -> JSON:
        """The schema of a struct."""
        struct = inspect.type_info(model)
        assert isinstance(struct, inspect.StructType)
        return self._struct_schema(struct)

    def _struct_schema(self, struct: inspect.StructType) -> JSON:
        schema: JSON = {"type": "object"}
        required = [field.encode_name for field in struct.fields if field.required]
        if required:
            schema["required"] = required
        schema["properties"] = {
            field.encode_name: self._field_schema(struct.cls, field)
            for field in sorted(struct.fields, key=lambda field: field.encode_name)
        }
        return schema

    def _field_schema(self, owner: type, field: inspect.Field) -> JSON:
        key = owner, field.encode_name
        described = {"description": self._descriptions[key]} if key in self._descriptions else {}
        keywords = self._keywords.get(key, {})
        return {
            **(keywords if "type" in keywords else _merge_schemas(self._type_schema(field.type), keywords)),
            **described,
        }

    def _type_schema(self, type_info: inspect.Type) -> JSON:
        match type_info:
            case inspect.Metadata(type=inner, extra=extra):
                return (
                    dict(QUANTITY_SCHEMA)
                    if (extra or {}).get("format") == QUANTITY_FORMAT
                    else self._type_schema(inner)
                )
            case inspect.UnionType(types=types) if any(isinstance(part, inspect.FloatType) for part in types):
                # On the wire an integer is a number, too.
                return {"type": "number"}
            case inspect.UnionType(types=types):
                (inner,) = (part for part in types if not isinstance(part, inspect.NoneType))
                return self._type_schema(inner)
            case inspect.StructType():
                return self._struct_schema(type_info)
            case inspect.AnyType() | inspect.DictType(value_type=inspect.AnyType()):
                return {}
            case inspect.DictType(value_type=value):
                return {"type": "object", "additionalProperties": self._type_schema(value)}
            case inspect.VarTupleType(item_type=item):
                return {"type": "array", "items": self._type_schema(item)}
            case inspect.DateTimeType():
                return {"type": "string", "format": "date-time"}
            case inspect.IntType():
                return {"type": "integer", "format": "int32"}
            case inspect.BoolType():
                return {"type": "boolean"}
            case inspect.StrType():
                return {"type": "string"}
        raise TypeError(f"no schema for {type_info}")


def crd_document(resource: Resource[Any], names: JSON, versions: Sequence[JSON]) -> JSON:
    """A CustomResourceDefinition. It shares no part with the versions; `names` adds to `spec.names`."""
    definition: JSON = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.name},
        "spec": {
            "group": resource.group,
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                **names,
            },
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": list(versions),
        },
    }
    copied: JSON = msgspec.json.decode(msgspec.json.encode(definition))
    return copied


def crd_version(name: str, columns: list[JSON], schema: JSON, subresources: JSON, *, storage: bool = True) -> JSON:
    """A version of a CustomResourceDefinition. Exactly one has `storage`."""
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": schema},
        "subresources": subresources,
    }


def _merge_schemas(schema: JSON, keywords: JSON) -> JSON:
    """Both schemas; keywords of the second override those of the first, and nested schemas are merged alike."""
    merged: dict[str, Any] = dict(schema)
    for keyword, value in keywords.items():
        inner = merged.get(keyword)
        if isinstance(inner, dict) and isinstance(value, dict):
            value = _merge_schemas(inner, value)
        merged[keyword] = value
    return merged
