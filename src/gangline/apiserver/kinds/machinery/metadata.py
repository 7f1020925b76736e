"""Validation of the metadata of every kind, custom resources included."""

from collections.abc import Iterable, Mapping
from typing import Any

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, gostruct
from gangline.schema.problems import FieldProblem, forbidden, invalid, invalid_each, required, too_long

MAX_ANNOTATION_BYTES = 256 * 1024
IMMUTABLE_MESSAGE = "field is immutable"
_ORPHAN_FINALIZER, _FOREGROUND_FINALIZER = "orphan", "foregroundDeletion"
_IMMUTABLE_FIELDS = (
    ("name", ""),
    ("namespace", ""),
    ("uid", ""),
    ("creationTimestamp", None),
    ("deletionTimestamp", None),
    ("deletionGracePeriodSeconds", None),
)


def validate_object_meta(
    meta: JSON, name_check: formats.FormatCheck, *, namespaced: bool, path: str = "metadata"
) -> list[FieldProblem]:
    """Problems in the metadata of a new object whose name is already generated."""
    problems: list[FieldProblem] = []
    if "generateName" in meta:
        prefix = meta["generateName"]
        problems += invalid_each(f"{path}.generateName", prefix, name_check(formats.name_from_prefix(prefix)))
    name = meta.get("name")
    if not name:
        problems.append(required(f"{path}.name", "name or generateName is required"))
    elif errors := name_check(name):
        problems += invalid_each(f"{path}.name", name, errors)
    problems += _validate_namespace(meta.get("namespace"), f"{path}.namespace", required_here=namespaced)
    if meta.get("generation", 0) < 0:
        problems += validate_non_negative(f"{path}.generation", meta["generation"])
    if meta.keys() & _VALIDATED_FIELDS:
        problems += _validate_shared_fields(meta, path)
        if "finalizers" in meta:
            problems += _validate_finalizers(meta["finalizers"], f"{path}.finalizers")
        if "managedFields" in meta:
            problems += _validate_managed_fields(meta["managedFields"], f"{path}.managedFields")
    return problems


_VALIDATED_FIELDS = frozenset({"labels", "annotations", "ownerReferences", "finalizers", "managedFields"})


def validate_object_meta_update(new: JSON, old: JSON, *, path: str = "metadata") -> list[FieldProblem]:
    """Problems in the metadata of a changed object.

    The registry has restored the fields that a client may leave out (uid, timestamps).
    """
    problems: list[FieldProblem] = []
    if old.get("deletionTimestamp"):
        problems += _validate_no_new_finalizers(new, old, f"{path}.finalizers")
    if not new.get("resourceVersion"):
        problems.append(invalid(f"{path}.resourceVersion", "", "must be specified for an update"))
    if new.get("generation", 0) < old.get("generation", 0):
        problems.append(invalid(f"{path}.generation", new.get("generation", 0), "must not be decremented"))
    for name, absent in _IMMUTABLE_FIELDS:
        if new.get(name, absent) != old.get(name, absent):
            problems.append(invalid(f"{path}.{name}", new.get(name, absent), IMMUTABLE_MESSAGE))
    problems += _validate_shared_fields(new, path)
    if "managedFields" in new:
        problems += _validate_managed_fields(new["managedFields"], f"{path}.managedFields")
    return problems


class MetadataRules:
    """Validation of the metadata of one kind. These are the rules of custom resources and their definitions."""

    def __init__(self, name_errors: formats.FormatCheck, *, namespaced: bool) -> None:
        self._name_errors, self._namespaced = name_errors, namespaced

    def validate(self, obj: JSON) -> list[FieldProblem]:
        """Problems that the kind itself reports in the metadata of a new object."""
        return validate_object_meta(obj["metadata"], self._name_errors, namespaced=self._namespaced)

    def validate_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        """Problems that the kind itself reports in the metadata of a changed object."""
        return validate_object_meta_update(obj["metadata"], old["metadata"])

    def validate_common_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        """Problems in the metadata of a changed object that are reported for every built-in kind."""
        new, before = obj["metadata"], old["metadata"]
        problems = validate_object_meta(new, formats.path_segment_errors, namespaced=self._namespaced)
        return problems + validate_object_meta_update(new, before)


class CoreMetadataRules(MetadataRules):
    """Rules of built-in kinds: a finalizer without a domain must be one that Kubernetes knows."""

    def validate(self, obj: JSON) -> list[FieldProblem]:
        problems = super().validate(obj)
        if "finalizers" in obj["metadata"]:
            problems += _validate_core_finalizers(obj["metadata"]["finalizers"])
        return problems

    def validate_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        problems = super().validate_update(obj, old)
        if "finalizers" in obj["metadata"]:
            problems += _validate_core_finalizers(obj["metadata"]["finalizers"])
        return problems


def _validate_shared_fields(meta: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    if "labels" in meta:
        problems += validate_labels(meta["labels"], f"{path}.labels")
    if "annotations" in meta:
        problems += validate_annotations(meta["annotations"], f"{path}.annotations")
    if "ownerReferences" in meta:
        problems += _validate_owner_references(meta["ownerReferences"], f"{path}.ownerReferences")
    return problems


def _validate_namespace(namespace: str | None, path: str, *, required_here: bool) -> list[FieldProblem]:
    if required_here:
        return invalid_each(path, namespace, formats.dns_label_errors(namespace)) if namespace else [required(path)]
    return [forbidden(path, "not allowed on this type")] if namespace else []


def validate_labels(labels: Mapping[str, str], path: str) -> list[FieldProblem]:
    """Problems in keys and values of labels, or of a selector by equality."""
    problems: list[FieldProblem] = []
    for key, value in labels.items():
        if errors := formats.qualified_name_errors(key):
            problems += invalid_each(path, key, errors)
        if errors := formats.label_value_errors(value):
            problems += invalid_each(path, value, errors)
    return problems


def validate_annotations(annotations: Mapping[str, str], path: str) -> list[FieldProblem]:
    """Problems of annotations. Keys are like those of labels, in any case; the total size is at most 256 KiB."""
    problems: list[FieldProblem] = []
    total = 0
    for key, value in annotations.items():
        if errors := formats.qualified_name_errors(key.lower()):
            problems += invalid_each(path, key, errors)
        total += len(key) + len(value)
    # No character is longer than four bytes, so most objects need no encoding to be counted.
    if total * 4 > MAX_ANNOTATION_BYTES and _total_bytes(annotations) > MAX_ANNOTATION_BYTES:
        problems.append(too_long(path, MAX_ANNOTATION_BYTES))
    return problems


def _total_bytes(texts: Mapping[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in texts.items())


def _validate_owner_references(references: list[JSON], path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    controller = ""
    for reference in references:
        problems += _validate_owner_reference(reference, path)
        if reference.get("controller"):
            name = f"{reference.get('kind', '')}/{reference.get('name', '')}"
            if controller:
                problems.append(
                    invalid(
                        path,
                        [gostruct.json_struct(owner, gostruct.OWNER_REFERENCE_FIELDS) for owner in references],
                        "Only one reference can have Controller set to true. "
                        f'Found "true" in references for {controller} and {name}',
                    )
                )
            else:
                controller = name
    return problems


def _validate_owner_reference(reference: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    version, kind = reference.get("apiVersion", ""), reference.get("kind", "")
    if not version.rpartition("/")[2] or version.count("/") > 1:
        problems.append(invalid(f"{path}.apiVersion", version, "version must not be empty"))
    problems += [
        invalid(f"{path}.{name}", "", "must not be empty")
        for name in ("kind", "name", "uid")
        if not reference.get(name)
    ]
    if version == "v1" and kind == "Event":
        problems.append(
            invalid(
                path,
                gostruct.json_struct(reference, gostruct.OWNER_REFERENCE_FIELDS),
                "/v1, Kind=Event is disallowed from being an owner",
            )
        )
    return problems


def _validate_finalizers(finalizers: list[str], path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for finalizer in finalizers:
        problems += invalid_each(path, finalizer, formats.qualified_name_errors(finalizer))
    if _ORPHAN_FINALIZER in finalizers and _FOREGROUND_FINALIZER in finalizers:
        problems.append(
            invalid(path, finalizers, f"finalizer {_ORPHAN_FINALIZER} and {_FOREGROUND_FINALIZER} cannot be both set")
        )
    return problems


def _validate_core_finalizers(finalizers: Iterable[str]) -> list[FieldProblem]:
    standard = {_ORPHAN_FINALIZER, _FOREGROUND_FINALIZER, "kubernetes"}
    return [
        invalid(
            f"metadata.finalizers[{index}]",
            finalizer,
            "name is neither a standard finalizer name nor is it fully qualified",
        )
        for index, finalizer in enumerate(finalizers)
        if "/" not in finalizer and finalizer not in standard
    ]


def _validate_no_new_finalizers(new: JSON, old: JSON, path: str) -> list[FieldProblem]:
    extra = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
    if not extra:
        return []
    detail = ", ".join(f'"{finalizer}"' for finalizer in extra)
    return [
        forbidden(
            path,
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{detail}}}",
        )
    ]


def _validate_managed_fields(entries: list[Any], path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for index, entry in enumerate(entries):
        item_path = f"{path}[{index}]"
        if entry.get("operation") not in {"Apply", "Update"}:
            problems.append(
                invalid(f"{item_path}.operation", entry.get("operation", ""), "must be `Apply` or `Update`")
            )
        if entry.get("fieldsType", "FieldsV1") not in {"", "FieldsV1"}:
            problems.append(invalid(f"{item_path}.fieldsType", entry["fieldsType"], "must be `FieldsV1`"))
        problems += validate_field_manager(entry.get("manager") or "", f"{item_path}.manager")
        if len((entry.get("subresource") or "").encode()) > 256:
            problems.append(too_long(f"{item_path}.subresource", 256))
    return problems


def validate_field_manager(name: str, path: str) -> list[FieldProblem]:
    """Problems of a field manager's name, which has at most 128 bytes, all printable."""
    problems = [too_long(path, 128)] if len(name.encode()) > 128 else []
    for position, letter in enumerate(name):
        if not letter.isprintable():
            detail = f"invalid character U+{ord(letter):04X} (at position {len(name[:position].encode())})"
            problems.append(invalid(path, name, detail))
    return problems


def validate_immutable(new: Any, old: Any, path: str) -> list[FieldProblem]:
    """A problem if the field changed."""
    return [invalid(path, new, IMMUTABLE_MESSAGE)] if new != old else []


def validate_non_negative(path: str, value: int) -> list[FieldProblem]:
    return [invalid(path, value, "must be greater than or equal to 0")] if value < 0 else []
