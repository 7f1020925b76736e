"""Object metadata: the key of a request body, and the fields that the server sets."""

import random
from collections.abc import Callable
from datetime import datetime

from gangline.api.meta import JSON, Key
from gangline.apiserver import errors as apierrors
from gangline.apiserver.errors import StatusError
from gangline.apiserver.registry.catalog import ServedKind, requires_resource_version
from gangline.base.uuids import random_uuid
from gangline.schema.go_text import quoted_text
from gangline.schema.problems import FieldProblem, ProblemKind

SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Characters of generated names: no vowels, so that no words come out, and no characters that are easily misread."""
MAX_NAME_ATTEMPTS = 8
_MAX_PREFIX_LENGTH = 58
_SERVER_SET_FIELDS = ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds")
_PRESERVED_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")

NAME_MISSING = "the name of the object ({name} based on URL) was undeterminable: name must be provided"
NAME_DIFFERS = "the name of the object ({body_name}) does not match the name on the URL ({name})"
NAMESPACE_DIFFERS = "the namespace of the provided object does not match the namespace sent on the request"


def ensure_metadata(body: JSON) -> JSON:
    """The metadata of a body; set to an empty object if it is missing or not an object."""
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        metadata = body["metadata"] = {}
    return metadata


def check_object_key(served_kind: ServedKind, key: Key, body: JSON) -> None:
    """Check that a body has the name and the namespace of the URL. Raises `StatusError` (400)."""
    metadata = ensure_metadata(body)
    check_namespace(served_kind, key.namespace, metadata)
    name = metadata.get("name")
    if not name:
        raise apierrors.bad_request(NAME_MISSING.format(name=key.name))
    if name != key.name:
        raise apierrors.bad_request(NAME_DIFFERS.format(body_name=name, name=key.name))


def check_namespace(served_kind: ServedKind, namespace: str, metadata: JSON) -> None:
    """Check that a body has the namespace of the URL, or none, and set it; for cluster-scoped kinds remove it.

    Raises `StatusError` (400).
    """
    if not served_kind.resource.namespaced:
        metadata.pop("namespace", None)
    elif (metadata.get("namespace") or namespace) != namespace:
        raise apierrors.bad_request(NAMESPACE_DIFFERS)
    else:
        metadata["namespace"] = namespace


def fill_system_fields(metadata: JSON, now: str, name_exists: Callable[[str], bool]) -> None:
    """Set the uid, the creation time and, with generateName, the name of a new object, whatever the client sent.

    `name_exists` says whether an object of that name exists.
    """
    for name in _SERVER_SET_FIELDS:
        metadata.pop(name, None)
    if not metadata.get("name") and metadata.get("generateName"):
        names = (generate_name(metadata["generateName"]) for _ in range(MAX_NAME_ATTEMPTS))
        unused = (name for name in names if not name_exists(name))
        metadata["name"] = next(unused, None) or generate_name(metadata["generateName"])
    metadata["uid"] = random_uuid()
    metadata["creationTimestamp"] = now


DUPLICATE_OWNERS_WARNING = (
    ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may "
    "reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {uids}"
)


def drop_duplicate_owners(metadata: JSON, *, patched: bool) -> list[str]:
    """Drop owner references that are there twice, in place. Returns warnings."""
    references = metadata.get("ownerReferences") or []
    if len(references) < 2:
        return []
    distinct: list[JSON] = []
    duplicates: list[str] = []
    for reference in references:
        if reference in distinct:
            duplicates.append(reference.get("uid", ""))
        else:
            distinct.append(reference)
    if not duplicates:
        return []
    metadata["ownerReferences"] = distinct
    when = " after mutating admission happens" if patched else ""
    return [DUPLICATE_OWNERS_WARNING.format(when=when, uids=", ".join(duplicates))]


def version_precondition(metadata: JSON) -> str:
    """The resourceVersion that the stored object must have; empty for any. Raises `StatusError` (500).

    `0` means any, because kube-apiserver parses a number and takes 0 for unset.
    """
    version = str(metadata.get("resourceVersion") or "")
    if version and not (version.isascii() and version.isdecimal()):
        raise StatusError(500, f"strconv.ParseUint: parsing {quoted_text(version)}: invalid syntax")
    return version.lstrip("0")


def preserve_system_fields(served_kind: ServedKind, name: str, old: JSON, new: JSON, *, put: bool) -> None:
    """Copy the metadata that clients may omit or may not change from the old object to the new one.

    Raises `StatusError` when a required resourceVersion is missing, or is not the current one.
    """
    metadata, old_metadata = new["metadata"], old["metadata"]
    version = version_precondition(metadata)
    if not version and put and requires_resource_version(served_kind):
        problem = FieldProblem(ProblemKind.INVALID, "metadata.resourceVersion", 0, "must be specified for an update")
        raise apierrors.invalid_resource(served_kind.resource, name, [problem])
    if version and version != old_metadata["resourceVersion"]:
        raise apierrors.conflict(served_kind.resource, name, apierrors.MODIFIED_MESSAGE)
    metadata["resourceVersion"] = old_metadata["resourceVersion"]
    metadata.pop("selfLink", None)
    for field in _PRESERVED_FIELDS:
        if field not in old_metadata:
            metadata.pop(field, None)
        elif field != "uid" or not metadata.get("uid"):
            metadata[field] = old_metadata[field]


def generate_name(prefix: str) -> str:
    """The prefix with a random suffix."""
    suffix = "".join(random.choices(SUFFIX_ALPHABET, k=5))  # noqa: S311 - not a secret
    return f"{prefix[:_MAX_PREFIX_LENGTH]}{suffix}"


def rfc3339(moment: datetime) -> str:
    """A UTC time as metadata and conditions have it, to the second."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
