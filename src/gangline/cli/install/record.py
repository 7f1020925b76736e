"""What is installed: the version, its values and its objects, in a ConfigMap beside the operator. Pure.

`upgrade` needs no flags because of it, and both `upgrade` and `uninstall` know by it which objects are theirs.
"""

from collections.abc import Iterable, Sequence

import msgspec

from gangline.api.meta import JSON, Key
from gangline.base.errors import InputError

RECORD_NAME = "gangline-installation"
"""The name of the ConfigMap."""
HANDOVER_NAME = "gangline-handover"
"""The beginning of the names of ConfigMaps with what `gangline handover` took away."""
PART_OF_LABEL, PART_OF = "app.kubernetes.io/part-of", "gangline"
RECORD_LABEL, RECORD_COMPONENT = "app.kubernetes.io/component", "installation"
RECORD_SELECTOR = f"{PART_OF_LABEL}={PART_OF},{RECORD_LABEL}={RECORD_COMPONENT}"


class ObjectRef(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """Which object: its kind, namespace and name."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def display_name(self) -> str:
        """The name as kubectl prints it: `deployment.apps/gangline-operator`."""
        group = self.api_version.rpartition("/")[0]
        return f"{self.kind.lower()}.{group}/{self.name}" if group else f"{self.kind.lower()}/{self.name}"


class InstallationRecord(msgspec.Struct, frozen=True):
    """What was installed last. `values` are those that differ from the defaults, by the names of the chart."""

    version: str
    values: JSON
    objects: tuple[ObjectRef, ...] = ()


def object_ref(body: JSON) -> ObjectRef:
    metadata = body["metadata"]
    return ObjectRef(body["apiVersion"], body["kind"], metadata.get("namespace") or "", metadata["name"])


def record_ref(namespace: str) -> ObjectRef:
    """The ConfigMap itself."""
    return ObjectRef("v1", "ConfigMap", namespace, RECORD_NAME)


def record_body(record: InstallationRecord, namespace: str) -> JSON:
    """The ConfigMap with a record."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": RECORD_NAME,
            "namespace": namespace,
            "labels": {PART_OF_LABEL: PART_OF, RECORD_LABEL: RECORD_COMPONENT},
        },
        "data": {
            "version": record.version,
            "values": msgspec.json.format(msgspec.json.encode(record.values), indent=2).decode(),
            "objects": "".join(f"{msgspec.json.encode(ref).decode()}\n" for ref in record.objects),
        },
    }


def read_record(body: JSON) -> InstallationRecord:
    """The record in a ConfigMap. Raises `InputError` if it is damaged."""
    data = body.get("data") or {}
    try:
        objects = [msgspec.json.decode(line, type=ObjectRef) for line in data["objects"].splitlines()]
        return InstallationRecord(data["version"], msgspec.json.decode(data["values"], type=JSON), tuple(objects))
    except (KeyError, msgspec.MsgspecError) as error:
        namespace = body["metadata"].get("namespace", "")
        raise InputError(
            f"configmap/{RECORD_NAME} in namespace {namespace} is damaged: {error}; delete it and install again:"
            f" kubectl -n {namespace} delete configmap {RECORD_NAME}"
        ) from error


def merged_objects(*groups: Iterable[ObjectRef]) -> tuple[ObjectRef, ...]:
    """The objects of all groups, each once, in order."""
    return tuple(dict.fromkeys(ref for group in groups for ref in group))


def stale_objects(record: InstallationRecord | None, current: Sequence[ObjectRef]) -> tuple[ObjectRef, ...]:
    """The objects of the last installation that are no part of the current one, last first.

    Definitions (CRDs) and namespaces are never among them: what users keep in them would be lost.
    """
    present = {_version_free(ref) for ref in current}
    stale = [ref for ref in (record.objects if record else ()) if _version_free(ref) not in present]
    return tuple(ref for ref in reversed(stale) if ref.kind not in ("CustomResourceDefinition", "Namespace"))


def _version_free(ref: ObjectRef) -> tuple[str, str, str, str]:
    """An object in one version of its group is the same one in another."""
    return ref.api_version.rpartition("/")[0], ref.kind, ref.namespace, ref.name


# Versions


def version_problem(installed: str, own: str) -> str:
    """Why this gangline must not follow the installed version; empty if it may: one minor version back at most."""
    before, after = _release(installed), _release(own)
    if not before or not after or after >= before:
        return ""
    if before[0] != after[0] or before[1] - after[1] > 1:
        older = f"{before[0]}.{before[1] - 1}" if before[1] else f"{before[0]}.0"
        return (
            f"{installed} is installed, and this is gangline {own}: going back by more than one minor version is not"
            f" supported; go back to {older} first"
        )
    return ""


def _release(version: str) -> tuple[int, int] | None:
    """Major and minor of a version; None if it has none."""
    parts = version.removeprefix("v").split(".")
    return (int(parts[0]), int(parts[1])) if len(parts) >= 2 and all(part.isdigit() for part in parts[:2]) else None
