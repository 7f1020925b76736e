"""The metadata of custom resources, which is of the same type as that of all others, whatever their schema says."""

from functools import cache

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.patch.json_patch import json_name
from gangline.schema.typed.openapi import types_of
from gangline.schema.typed.strict_decoding import NOTHING, Decoder, Findings
from gangline.schema.typed.types import Type


@cache
def _type() -> Type:
    found = types_of("v1", "ConfigMap").of("metadata")
    assert found is not None
    return found


@cache
def _decoder() -> Decoder:
    return Decoder(_type())


def metadata_findings(body: JSON) -> Findings:
    """What Go's decoder would say about an object's metadata."""
    metadata = body.get("metadata")
    if metadata is None:
        return NOTHING
    if not isinstance(metadata, dict):
        return Findings(
            error=f"json: cannot unmarshal {json_name(metadata)} into Go value of type v1.ObjectMeta"
        )
    found = _decoder().findings(msgspec.json.encode(metadata), metadata)
    return Findings(found.error, tuple(text.replace('"', '"metadata.', 1) for text in found.strict))


def tidy(metadata: JSON) -> None:
    """Drop, in place, what Go would not write again: unknown fields, and empty ones. Its types must be right."""
    known = _type().fields
    for name, value in list(metadata.items()):
        if name not in known or value is None or value in ("", {}, []):
            del metadata[name]
    for name in ("labels", "annotations"):
        for key, value in metadata.get(name, {}).items():
            if value is None:
                metadata[name][key] = ""
    owner = known["ownerReferences"].element.fields
    for reference in metadata.get("ownerReferences", ()):
        for name in [name for name in reference if name not in owner or reference[name] is None]:
            del reference[name]
