"""Which object a body is, and which parts of its metadata a client cannot choose."""

import random
import uuid
from collections.abc import Callable

from gangline.api.meta import JSON, Key
from gangline.apiserver import refusals
from gangline.apiserver.errors import Refused
from gangline.apiserver.registry.catalog import Entry
from gangline.apiserver.registry.traits import needs_version
from gangline.schema.go_text import quoted
from gangline.schema.problems import Problem, ProblemKind

LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""For generated names: no vowels, so that no words come out; nothing that is easily misread."""
TRIES = 8
_LONGEST_PREFIX = 58
_FROM_SERVER = ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_KEPT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")

NAME_MISSING = "the name of the object ({name} based on URL) was undeterminable: name must be provided"
NAME_DIFFERS = "the name of the object ({given}) does not match the name on the URL ({name})"
NAMESPACE_DIFFERS = "the namespace of the provided object does not match the namespace sent on the request"


def metadata_of(body: JSON) -> JSON:
    """The metadata of a body, made an object where it is none."""
    found = body.get("metadata")
    if not isinstance(found, dict):
        found = body["metadata"] = {}
    return found


def check_place(entry: Entry, key: Key, body: JSON) -> None:
    """A body names the object that the URL names. Raises `Refused` (400)."""
    metadata = metadata_of(body)
    check_namespace(entry, key.namespace, metadata)
    name = metadata.get("name")
    if not name:
        raise refusals.bad_request(NAME_MISSING.format(name=key.name))
    if name != key.name:
        raise refusals.bad_request(NAME_DIFFERS.format(given=name, name=key.name))


def check_namespace(entry: Entry, namespace: str, metadata: JSON) -> None:
    """A body is in the namespace of the URL, or says none. Cluster-scoped kinds ignore what it says."""
    if not entry.served.namespaced:
        metadata.pop("namespace", None)
    elif (metadata.get("namespace") or namespace) != namespace:
        raise refusals.bad_request(NAMESPACE_DIFFERS)
    else:
        metadata["namespace"] = namespace


def identify(metadata: JSON, now: str, taken: Callable[[str], bool]) -> None:
    """What the server gives a new object, whatever the client sent. `taken` says whether a name is used already."""
    for name in _FROM_SERVER:
        metadata.pop(name, None)
    if not metadata.get("name") and metadata.get("generateName"):
        names = (generated(metadata["generateName"]) for _ in range(TRIES))
        metadata["name"] = next(
            (name for name in names if not taken(name)), generated(metadata["generateName"])
        )
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = now


def pinned_version(metadata: JSON) -> str:
    """The resourceVersion that an object must have to be changed; empty for any. Raises `Refused` (500).

    `0` is any, as for the real server, which reads a number.
    """
    version = str(metadata.get("resourceVersion") or "")
    if version and not (version.isascii() and version.isdecimal()):
        raise Refused(500, f"strconv.ParseUint: parsing {quoted(version)}: invalid syntax")
    return version.lstrip("0")


def same_object(entry: Entry, name: str, old: JSON, new: JSON, *, put: bool) -> None:
    """Fill in what a change may leave out, and keep what it may not touch. Raises `Refused`."""
    metadata, was = new["metadata"], old["metadata"]
    version = pinned_version(metadata)
    if not version and put and needs_version(entry):
        problem = Problem(
            ProblemKind.INVALID, "metadata.resourceVersion", 0, "must be specified for an update"
        )
        raise refusals.invalid_resource(entry, name, [problem])
    if version and version != was["resourceVersion"]:
        raise refusals.conflict(entry, name, refusals.MODIFIED)
    metadata["resourceVersion"] = was["resourceVersion"]
    for field in _KEPT:
        if field not in was:
            metadata.pop(field, None)
        elif field != "uid" or not metadata.get("uid"):
            metadata[field] = was[field]


def generated(prefix: str) -> str:
    """A name that nobody has yet, most likely."""
    suffix = "".join(random.choices(LETTERS, k=5))  # noqa: S311 - not a secret
    return f"{prefix[:_LONGEST_PREFIX]}{suffix}"
