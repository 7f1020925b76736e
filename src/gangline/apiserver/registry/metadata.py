"""Which object a body is, and which parts of its metadata a client cannot choose."""

import random
import uuid
from collections.abc import Callable

from gangline.api.meta import JSON, Key
from gangline.apiserver import errors as apierrors
from gangline.apiserver.errors import StatusError
from gangline.apiserver.registry.catalog import ServedKind, requires_resource_version
from gangline.schema.go_text import quoted_text
from gangline.schema.problems import FieldProblem, ProblemKind

SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""For generated names: no vowels, so that no words come out; nothing that is easily misread."""
MAX_NAME_ATTEMPTS = 8
_MAX_PREFIX_LENGTH = 58
_SERVER_SET_FIELDS = ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_PRESERVED_FIELDS = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)

NAME_MISSING = "the name of the object ({name} based on URL) was undeterminable: name must be provided"
NAME_DIFFERS = "the name of the object ({given}) does not match the name on the URL ({name})"
NAMESPACE_DIFFERS = "the namespace of the provided object does not match the namespace sent on the request"


def ensure_metadata(body: JSON) -> JSON:
    """The metadata of a body, made an object where it is none."""
    found = body.get("metadata")
    if not isinstance(found, dict):
        found = body["metadata"] = {}
    return found


def check_object_key(entry: ServedKind, key: Key, body: JSON) -> None:
    """A body names the object that the URL names. Raises `Refused` (400)."""
    metadata = ensure_metadata(body)
    check_namespace(entry, key.namespace, metadata)
    name = metadata.get("name")
    if not name:
        raise apierrors.bad_request(NAME_MISSING.format(name=key.name))
    if name != key.name:
        raise apierrors.bad_request(NAME_DIFFERS.format(given=name, name=key.name))


def check_namespace(entry: ServedKind, namespace: str, metadata: JSON) -> None:
    """A body is in the namespace of the URL, or says none. Cluster-scoped kinds ignore what it says."""
    if not entry.resource.namespaced:
        metadata.pop("namespace", None)
    elif (metadata.get("namespace") or namespace) != namespace:
        raise apierrors.bad_request(NAMESPACE_DIFFERS)
    else:
        metadata["namespace"] = namespace


def fill_system_fields(metadata: JSON, now: str, taken: Callable[[str], bool]) -> None:
    """What the server gives a new object, whatever the client sent. `taken` says whether a name is used already."""
    for name in _SERVER_SET_FIELDS:
        metadata.pop(name, None)
    if not metadata.get("name") and metadata.get("generateName"):
        names = (generate_name(metadata["generateName"]) for _ in range(MAX_NAME_ATTEMPTS))
        metadata["name"] = next((name for name in names if not taken(name)), generate_name(metadata["generateName"]))
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = now


def version_precondition(metadata: JSON) -> str:
    """The resourceVersion that an object must have to be changed; empty for any. Raises `Refused` (500).

    `0` is any, as for the real server, which reads a number.
    """
    version = str(metadata.get("resourceVersion") or "")
    if version and not (version.isascii() and version.isdecimal()):
        raise StatusError(500, f"strconv.ParseUint: parsing {quoted_text(version)}: invalid syntax")
    return version.lstrip("0")


def preserve_system_fields(entry: ServedKind, name: str, old: JSON, new: JSON, *, put: bool) -> None:
    """Fill in what a change may leave out, and keep what it may not touch. Raises `Refused`."""
    metadata, was = new["metadata"], old["metadata"]
    version = version_precondition(metadata)
    if not version and put and requires_resource_version(entry):
        problem = FieldProblem(ProblemKind.INVALID, "metadata.resourceVersion", 0, "must be specified for an update")
        raise apierrors.invalid_resource(entry, name, [problem])
    if version and version != was["resourceVersion"]:
        raise apierrors.conflict(entry, name, apierrors.MODIFIED_MESSAGE)
    metadata["resourceVersion"] = was["resourceVersion"]
    for field in _PRESERVED_FIELDS:
        if field not in was:
            metadata.pop(field, None)
        elif field != "uid" or not metadata.get("uid"):
            metadata[field] = was[field]


def generate_name(prefix: str) -> str:
    """A name that nobody has yet, most likely."""
    suffix = "".join(random.choices(SUFFIX_ALPHABET, k=5))  # noqa: S311 - not a secret
    return f"{prefix[:_MAX_PREFIX_LENGTH]}{suffix}"
