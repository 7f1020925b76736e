"""Objects that the pods of a job refer to, and that a run on this machine does not have. Pure.

The control plane of a run is new: it has the objects in the files of the run, and nobody else creates any.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from gangline.api.codec.documents import Document
from gangline.api.codec.errors import FieldPath
from gangline.api.meta import JSON

CONFIG_MAP, SECRET, CLAIM = "ConfigMap", "Secret", "PersistentVolumeClaim"
PRIORITY_CLASS, QUEUE = "PriorityClass", "Queue"
OWN_OBJECTS = {(CONFIG_MAP, "kube-root-ca.crt"), (QUEUE, "default")} | {
    (PRIORITY_CLASS, name) for name in ("system-node-critical", "system-cluster-critical")
}
"""The objects that every control plane has."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_DATA_FIELDS = ("data", "binaryData", "stringData")
_SAMPLES = {
    CONFIG_MAP: ("v1", "data: {{{key}: value}}"),
    SECRET: ("v1", "stringData: {{{key}: value}}"),
    CLAIM: ("v1", "spec: {{accessModes: [ReadWriteMany], resources: {{requests: {{storage: 1Gi}}}}}}"),
    PRIORITY_CLASS: ("scheduling.k8s.io/v1", "value: 1000"),
    QUEUE: ("scheduling.gangline.dev/v1alpha1", "spec: {{weight: 1}}"),
}
"""The API version of each kind, and its shortest content."""


class Reference(NamedTuple):
    """Where a pod needs an object, and the keys that it needs of it."""

    path: FieldPath
    kind: str
    name: str
    keys: tuple[str, ...] = ()


class RunObjects:
    """The objects in the files of a run, by kind and name.

    Namespaces are left out: an object without one is created in the namespace of the job.
    """

    def __init__(self, documents: Iterable[Document] = ()) -> None:
        self._bodies: Mapping[tuple[str, str], JSON] = {
            (str(document.body.get("kind")), str((document.body.get("metadata") or {}).get("name"))): document.body
            for document in documents
        }

    def problem(self, reference: Reference) -> str:
        """Why the object does not do, and what to write; empty if it does."""
        identity = (reference.kind, reference.name)
        if identity in OWN_OBJECTS:
            return ""
        body = self._bodies.get(identity)
        if body is None:
            names = [name for kind, name in self._bodies if kind == reference.kind]
            if any(not _NAME.fullmatch(name) for name in names):
                # The server refuses that object, with its line.
                return ""
            if similar := get_close_matches(reference.name, names, 1, 0.7):
                return f'{reference.kind} "{reference.name}" is not in the file; did you mean "{similar[0]}"?'
            return (
                f'{reference.kind} "{reference.name}" is not in the file, and a run has a control plane of its own, '
                f"where nobody else creates it; add it to the file:\n{sample(reference)}"
            )
        keys = sorted({key for field in _DATA_FIELDS for key in body.get(field) or ()})
        missing = next((key for key in reference.keys if key not in keys), None)
        if missing is None:
            return ""
        return f'{reference.kind} "{reference.name}" has no key "{missing}"; it has: {", ".join(keys) or "none"}'


def sample(reference: Reference) -> str:
    """A document with the object, indented below a message."""
    version, content = _SAMPLES[reference.kind]
    lines = (
        "---",
        f"apiVersion: {version}",
        f"kind: {reference.kind}",
        f"metadata: {{name: {reference.name}}}",
        content.format(key=reference.keys[0] if reference.keys else "key"),
    )
    return "\n".join(f"       {line}" for line in lines)


def pod_references(spec: JSON) -> Iterator[Reference]:
    """The objects without which the pod of a template cannot start, in the order of a file."""
    if spec.get("priorityClassName"):
        yield Reference(("priorityClassName",), PRIORITY_CLASS, spec["priorityClassName"])
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield from _within((field, index), _container_references(container))
    for index, volume in enumerate(spec.get("volumes") or ()):
        yield from _within(("volumes", index), _volume_references(volume))


def _container_references(container: JSON) -> Iterator[Reference]:
    for index, source in enumerate(container.get("envFrom") or ()):
        for field, kind in (("configMapRef", CONFIG_MAP), ("secretRef", SECRET)):
            yield from _reference(("envFrom", index, field), kind, source.get(field))
    for index, variable in enumerate(container.get("env") or ()):
        source = variable.get("valueFrom") or {}
        for field, kind in (("configMapKeyRef", CONFIG_MAP), ("secretKeyRef", SECRET)):
            value = source.get(field) or {}
            yield from _reference(("env", index, "valueFrom", field), kind, value, keys=[value.get("key")])


def _volume_references(volume: JSON) -> Iterator[Reference]:
    yield from _reference(("configMap",), CONFIG_MAP, volume.get("configMap"))
    yield from _reference(("secret",), SECRET, volume.get("secret"), name="secretName")
    yield from _reference(("persistentVolumeClaim",), CLAIM, volume.get("persistentVolumeClaim"), name="claimName")
    for index, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
        yield from _reference(("projected", "sources", index, "configMap"), CONFIG_MAP, source.get("configMap"))
        yield from _reference(("projected", "sources", index, "secret"), SECRET, source.get("secret"))


def _reference(
    path: FieldPath, kind: str, value: JSON | None, name: str = "name", keys: Iterable[Any] = ()
) -> Iterator[Reference]:
    if value and value.get(name) and not value.get("optional"):
        items = [item.get("key") for item in value.get("items") or ()]
        yield Reference((*path, name), kind, value[name], tuple(str(key) for key in (*keys, *items) if key))


def _within(path: FieldPath, references: Iterable[Reference]) -> Iterator[Reference]:
    for reference in references:
        yield reference._replace(path=(*path, *reference.path))
