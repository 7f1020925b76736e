"""Patches of every format, as functions from the old object to the new one."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gangline.api.codec.nesting import is_too_deep
from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.http.body import Warn, check_kind, custom_errors, decode_json, json_error_text
from gangline.apiserver.patch.json_patch import go_value_text, json_patch, merge_patch
from gangline.apiserver.patch.strategic import strategic_merge
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.registry.writes import UpdateFunc
from gangline.schema.go_text import json_text
from gangline.schema.typed.conversion import conversion_error
from gangline.schema.typed.integers import with_integers
from gangline.schema.typed.strict_decoding import DecodingErrors, duplicate_fields

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
PATCH_MEDIA_TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)


def check_patch_type(media: str, *, custom: bool) -> None:
    """Check that objects of this kind can be patched in this format. Raises `StatusError` (415)."""
    if not custom and media not in PATCH_MEDIA_TYPES:
        raise apierrors.unsupported_patch_type()
    accepted = [media_type for media_type in PATCH_MEDIA_TYPES if not (custom and media_type == STRATEGIC_PATCH)]
    if media not in accepted:
        raise apierrors.unsupported_media_type(accepted)


def decode_patch(raw: bytes, media: str) -> Any:
    """The decoded patch. Raises `StatusError` (400)."""
    try:
        return decode_json(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        prefix = "" if media == STRATEGIC_PATCH else "error decoding patch: "
        raise apierrors.bad_request(f"{prefix}{json_error_text(raw, error)}") from error


def patch_function(served_kind: ServedKind, media: str, raw: bytes, *, validation: str, warn: Warn) -> UpdateFunc:
    """The function that applies a patch to an object. Both this and the function raise `StatusError`."""
    check_patch_type(media, custom=served_kind.custom)
    patch = decode_patch(raw, media)
    prefix = "json patch " if media == JSON_PATCH else ""
    duplicates = [f"{prefix}{text}" for text in duplicate_fields(raw, patch)]

    def patched(old: JSON | None) -> JSON:
        assert old is not None
        new: JSON = _patched_object(served_kind, media, patch, old)
        if problem := _result_error(served_kind, media, new, duplicates, validation, warn):
            raise apierrors.invalid_patch(_quoted_patch(served_kind, media, patch, new), problem)
        return new

    return patched


def _patched_object(served_kind: ServedKind, media: str, patch: Any, old: JSON) -> Any:
    if media == JSON_PATCH:
        return json_patch(old, patch)
    if media == MERGE_PATCH:
        return merge_patch(old, patch)
    merged = with_integers(strategic_merge(old, patch, served_kind.type), served_kind.type)
    # kube-apiserver decodes the result into the type of the URL, whatever kind the result claims to be.
    for name, value in (("kind", served_kind.resource.kind), ("apiVersion", served_kind.resource.api_version)):
        if isinstance(merged.get(name, ""), str):
            merged[name] = value
    return merged


def _result_error(
    served_kind: ServedKind, media: str, new: Any, duplicates: Sequence[str], validation: str, warn: Warn
) -> str:
    """Why the result is no object of the kind, or has a field of a wrong type; empty if it is fine."""
    encoded = msgspec.json.encode(new)
    if is_too_deep(encoded):
        raise apierrors.bad_request("the patched object exceeded max depth")
    if not isinstance(new, dict):
        return f"json: cannot unmarshal into Go value of type {served_kind.resource.kind}"
    if served_kind.decoder is None:
        check_kind(served_kind, new)
        errors = custom_errors(served_kind, new, duplicates, validation)
    else:
        if problem := _kind_error(served_kind, new):
            return problem
        errors = served_kind.decoder.errors(encoded, new)
        errors = DecodingErrors(errors.error, (*duplicates, *errors.strict))
    if errors.error:
        return (conversion_error(new, served_kind.type) if media == STRATEGIC_PATCH else "") or errors.error
    if errors.strict and validation == "Strict":
        return f"strict decoding error: {', '.join(errors.strict)}"
    if validation != "Ignore":
        for warning in errors.strict:
            warn(warning)
    return ""


def _kind_error(served_kind: ServedKind, new: JSON) -> str:
    """Set the kind of an object that has none. Says what is wrong with another kind than that of the URL."""
    resource = served_kind.resource
    new["kind"], new["apiVersion"] = new.get("kind") or resource.kind, new.get("apiVersion") or resource.api_version
    if (new["kind"], new["apiVersion"]) == (resource.kind, resource.api_version):
        return ""
    return apierrors.unregistered_kind_text(new["kind"], new["apiVersion"])


def _quoted_patch(served_kind: ServedKind, media: str, patch: Any, new: Any) -> str:
    """What a refused patch is shown as: the patch itself where it is merged as a map, else the text it results in."""
    if media == STRATEGIC_PATCH:
        return go_value_text(patch)
    if served_kind.custom or not isinstance(new, dict):
        return json_text(new)
    return msgspec.json.encode(_sorted_where_patched(new, patch)).decode()


def _sorted_where_patched(new: JSON, patch: Any) -> JSON:
    """The result with keys in order where the patch has touched it: the rest stays as it was encoded."""
    touched = patch if isinstance(patch, dict) else {}
    return {
        key: _sorted_where_patched(new[key], touched[key])
        if isinstance(new[key], dict) and isinstance(touched.get(key), dict)
        else new[key]
        for key in sorted(new)
    }
