"""Metadata of every kind, custom resources included: what may be written, and what may not change."""

from collections.abc import Iterable, Mapping
from typing import Any

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, gostruct
from gangline.apiserver.kinds.machinery.problems import each, forbidden, invalid, negative, required, too_long
from gangline.schema.problems import Problem, ProblemKind

MOST_ANNOTATION_BYTES = 256 * 1024
IMMUTABLE = "field is immutable"
_ORPHAN, _FOREGROUND = "orphan", "foregroundDeletion"
_NEVER_CHANGES = (
    ("name", ""),
    ("namespace", ""),
    ("uid", ""),
    ("creationTimestamp", None),
    ("deletionTimestamp", None),
    ("deletionGracePeriodSeconds", None),
)


def validate(
    meta: JSON, name_check: formats.Check, *, namespaced: bool, path: str = "metadata"
) -> list[Problem]:
    """Metadata of a new object, its name already generated."""
    found: list[Problem] = []
    if "generateName" in meta:
        prefix = meta["generateName"]
        found += each(f"{path}.generateName", prefix, name_check(formats.prefix_of_a_name(prefix)))
    name = meta.get("name")
    if not name:
        found.append(required(f"{path}.name", "name or generateName is required"))
    elif said := name_check(name):
        found += each(f"{path}.name", name, said)
    found += _namespace(meta.get("namespace"), f"{path}.namespace", required_here=namespaced)
    if meta.get("generation", 0) < 0:
        found += negative(f"{path}.generation", meta["generation"])
    if meta.keys() & _CHECKED:
        found += _common(meta, path)
        if "finalizers" in meta:
            found += _finalizers(meta["finalizers"], f"{path}.finalizers")
        if "managedFields" in meta:
            found += _managed_fields(meta["managedFields"], f"{path}.managedFields")
    return found


_CHECKED = frozenset({"labels", "annotations", "ownerReferences", "finalizers", "managedFields"})


def validate_update(new: JSON, old: JSON, *, path: str = "metadata") -> list[Problem]:
    """Metadata of a changed object. The registry has filled in what a client may leave out (uid, timestamps)."""
    found: list[Problem] = []
    if old.get("deletionTimestamp"):
        found += _no_new_finalizers(new, old, f"{path}.finalizers")
    if not new.get("resourceVersion"):
        found.append(invalid(f"{path}.resourceVersion", "", "must be specified for an update"))
    if new.get("generation", 0) < old.get("generation", 0):
        found.append(invalid(f"{path}.generation", new.get("generation", 0), "must not be decremented"))
    for name, absent in _NEVER_CHANGES:
        if new.get(name, absent) != old.get(name, absent):
            found.append(invalid(f"{path}.{name}", new.get(name, absent), IMMUTABLE))
    found += _common(new, path)
    if "managedFields" in new:
        found += _managed_fields(new["managedFields"], f"{path}.managedFields")
    return found


def _common(meta: JSON, path: str) -> list[Problem]:
    found: list[Problem] = []
    if "labels" in meta:
        found += labels(meta["labels"], f"{path}.labels")
    if "annotations" in meta:
        found += annotations(meta["annotations"], f"{path}.annotations")
    if "ownerReferences" in meta:
        found += _owners(meta["ownerReferences"], f"{path}.ownerReferences")
    return found


def _namespace(namespace: str | None, path: str, *, required_here: bool) -> list[Problem]:
    if required_here:
        return each(path, namespace, formats.dns_label(namespace)) if namespace else [required(path)]
    return [forbidden(path, "not allowed on this type")] if namespace else []


def labels(found_labels: Mapping[str, str], path: str) -> list[Problem]:
    """Keys and values of labels, or of a selector of plain equalities."""
    found: list[Problem] = []
    for key, value in found_labels.items():
        if said := formats.qualified_name(key):
            found += each(path, key, said)
        if said := formats.label_value(value):
            found += each(path, value, said)
    return found


def annotations(found_annotations: Mapping[str, str], path: str) -> list[Problem]:
    """Keys are as those of labels, in any case; all of it is at most 256 KiB."""
    found: list[Problem] = []
    total = 0
    for key, value in found_annotations.items():
        if said := formats.qualified_name(key.lower()):
            found += each(path, key, said)
        total += len(key) + len(value)
    # No character is longer than four bytes, so most objects need no encoding to be counted.
    if total * 4 > MOST_ANNOTATION_BYTES and _bytes(found_annotations) > MOST_ANNOTATION_BYTES:
        found.append(too_long(path, MOST_ANNOTATION_BYTES))
    return found


def _bytes(texts: Mapping[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in texts.items())


def _owners(references: list[JSON], path: str) -> list[Problem]:
    found: list[Problem] = []
    controller = ""
    for reference in references:
        found += _owner(reference, path)
        if reference.get("controller"):
            name = f"{reference.get('kind', '')}/{reference.get('name', '')}"
            if controller:
                found.append(
                    invalid(
                        path,
                        [gostruct.ordered(one, gostruct.OWNER) for one in references],
                        "Only one reference can have Controller set to true. "
                        f'Found "true" in references for {controller} and {name}',
                    )
                )
            else:
                controller = name
    return found


def _owner(reference: JSON, path: str) -> list[Problem]:
    found: list[Problem] = []
    version, kind = reference.get("apiVersion", ""), reference.get("kind", "")
    if not version.rpartition("/")[2]:
        found.append(invalid(f"{path}.apiVersion", version, "version must not be empty"))
    found += [
        invalid(f"{path}.{name}", "", "must not be empty")
        for name in ("kind", "name", "uid")
        if not reference.get(name)
    ]
    if version == "v1" and kind == "Event":
        found.append(
            invalid(
                path,
                gostruct.ordered(reference, gostruct.OWNER),
                "/v1, Kind=Event is disallowed from being an owner",
            )
        )
    return found


def _finalizers(finalizers: list[str], path: str) -> list[Problem]:
    found: list[Problem] = []
    for finalizer in finalizers:
        found += each(path, finalizer, formats.qualified_name(finalizer))
    if _ORPHAN in finalizers and _FOREGROUND in finalizers:
        found.append(invalid(path, finalizers, f"finalizer {_ORPHAN} and {_FOREGROUND} cannot be both set"))
    return found


def unqualified_finalizers(finalizers: Iterable[str], path: str) -> list[Problem]:
    """Of core kinds: a finalizer without a domain must be one Kubernetes knows."""
    known = {_ORPHAN, _FOREGROUND, "kubernetes"}
    return [
        invalid(
            f"{path}[{index}]",
            finalizer,
            "name is neither a standard finalizer name nor is it fully qualified",
        )
        for index, finalizer in enumerate(finalizers)
        if "/" not in finalizer and finalizer not in known
    ]


def _no_new_finalizers(new: JSON, old: JSON, path: str) -> list[Problem]:
    extra = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
    if not extra:
        return []
    told = ", ".join(f'"{one}"' for one in extra)
    return [
        forbidden(
            path,
            "no new finalizers can be added if the object is being deleted, "
            f"found new finalizers []string{{{told}}}",
        )
    ]


def _managed_fields(entries: list[Any], path: str) -> list[Problem]:
    found: list[Problem] = []
    for index, entry in enumerate(entries):
        here = f"{path}[{index}]"
        if entry.get("operation") not in {"Apply", "Update"}:
            found.append(
                invalid(f"{here}.operation", entry.get("operation", ""), "must be `Apply` or `Update`")
            )
        if entry.get("fieldsType", "FieldsV1") not in {"", "FieldsV1"}:
            found.append(invalid(f"{here}.fieldsType", entry["fieldsType"], "must be `FieldsV1`"))
        found += field_manager(entry.get("manager") or "", f"{here}.manager")
        if len((entry.get("subresource") or "").encode()) > 256:
            found.append(too_long(f"{here}.subresource", 256))
    return found


def field_manager(name: str, path: str) -> list[Problem]:
    """A field manager's name: at most 128 bytes, all of them printable."""
    found = [too_long(path, 128)] if len(name.encode()) > 128 else []
    for position, letter in enumerate(name):
        if not letter.isprintable():
            told = f"invalid character U+{ord(letter):04X} (at position {len(name[:position].encode())})"
            found.append(invalid(path, name, told))
    return found


def immutable(new: Any, old: Any, path: str) -> list[Problem]:
    """Nothing, when nothing changed."""
    return [Problem(ProblemKind.INVALID, path, new, IMMUTABLE)] if new != old else []
