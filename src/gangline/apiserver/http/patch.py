"""Patches of every format, as functions from the old object to the new one."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gangline.api.codec.nesting import is_too_deep
from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.http.body import Warn, check_kind, custom_errors, decode_json, json_error_text
from gangline.apiserver.patch.json_patch import json_patch, merge_patch
from gangline.apiserver.patch.strategic import strategic_merge
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.registry.writes import UpdateFunc
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


def decode_patch(raw: bytes) -> Any:
    """The decoded patch. Raises `StatusError` (400)."""
    try:
        return decode_json(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise apierrors.bad_request(f"error decoding patch: {json_error_text(raw, error)}") from error


def patch_function(served_kind: ServedKind, media: str, raw: bytes, *, validation: str, warn: Warn) -> UpdateFunc:
    """The function that applies a patch to an object. Both this and the function raise `StatusError`."""
    check_patch_type(media, custom=served_kind.custom)
    patch = decode_patch(raw)
    prefix = "json patch " if media == JSON_PATCH else ""
    duplicates = [f"{prefix}{text}" for text in duplicate_fields(raw, patch)]

    def patched(old: JSON | None) -> JSON:
        assert old is not None
        new: JSON = _patched_object(served_kind, media, patch, old)
        _check_result(served_kind, new, duplicates, validation, warn)
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


def _check_result(served_kind: ServedKind, new: Any, duplicates: Sequence[str], validation: str, warn: Warn) -> None:
    """Check that the result is an object of the kind and that all fields have the right type. Raises `StatusError`."""
    encoded = msgspec.json.encode(new)
    if is_too_deep(encoded):
        raise apierrors.bad_request("the patched object exceeded max depth")
    new_text = encoded.decode()
    if not isinstance(new, dict):
        raise apierrors.invalid_patch(
            new_text, f"json: cannot unmarshal into Go value of type {served_kind.resource.kind}"
        )
    if served_kind.decoder is None:
        check_kind(served_kind, new)
        errors = custom_errors(served_kind, new, duplicates, validation)
    else:
        _check_same_kind(served_kind, new, new_text)
        errors = served_kind.decoder.errors(encoded, new)
        errors = DecodingErrors(errors.error, (*duplicates, *errors.strict))
    if errors.error:
        raise apierrors.invalid_patch(new_text, errors.error)
    if errors.strict and validation == "Strict":
        raise apierrors.invalid_patch(new_text, f"strict decoding error: {', '.join(errors.strict)}")
    if validation != "Ignore":
        for warning in errors.strict:
            warn(warning)


def _check_same_kind(served_kind: ServedKind, new: JSON, text: str) -> None:
    kind, version = new.get("kind"), new.get("apiVersion")
    if (kind, version) != (served_kind.resource.kind, served_kind.resource.api_version):
        raise apierrors.invalid_patch(text, apierrors.unregistered_kind_text(kind, version))
