"""Metadata of custom resources. Its type is that of all kinds, whatever the schema of the resource says."""

from functools import cache

import msgspec

from gangline.api.meta import JSON
from gangline.schema.go_text import json_type_name
from gangline.schema.typed.openapi import builtin_type
from gangline.schema.typed.strict_decoding import NO_ERRORS, DecodingChecker, DecodingErrors
from gangline.schema.typed.types import TypeNode


@cache
def _metadata_type() -> TypeNode:
    node = builtin_type("v1", "ConfigMap").field_type("metadata")
    assert node is not None
    return node


@cache
def _metadata_decoder() -> DecodingChecker:
    return DecodingChecker(_metadata_type())


def metadata_errors(body: JSON) -> DecodingErrors:
    """What Go's decoder would report about an object's metadata."""
    metadata = body.get("metadata")
    if metadata is None:
        return NO_ERRORS
    if not isinstance(metadata, dict):
        return DecodingErrors(
            error=f"json: cannot unmarshal {json_type_name(metadata)} into Go value of type v1.ObjectMeta"
        )
    errors = _metadata_decoder().errors(msgspec.json.encode(metadata), metadata)
    return DecodingErrors(errors.error, tuple(text.replace('"', '"metadata.', 1) for text in errors.strict))


def prune_metadata(metadata: JSON) -> None:
    """Drop unknown and empty fields, which Go would not write again, in place. The types must be right."""
    fields = _metadata_type().fields
    for name, value in list(metadata.items()):
        if name not in fields or value is None or value in ("", {}, []):
            del metadata[name]
    for name in ("labels", "annotations"):
        for key, value in metadata.get(name, {}).items():
            if value is None:
                metadata[name][key] = ""
    owner_fields = fields["ownerReferences"].element.fields
    for reference in metadata.get("ownerReferences", ()):
        for name in [name for name in reference if name not in owner_fields or reference[name] is None]:
            del reference[name]
