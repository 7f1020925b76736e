"""Storage classes of claims: the default class, and whether a claim may grow."""

from gangline.api.meta import JSON
from gangline.api.quantity import ZERO
from gangline.apiserver import errors as apierrors
from gangline.apiserver.kinds.machinery.pod_amounts import parse_amounts
from gangline.apiserver.registry.admission import AdmissionPlugin, AdmissionRequest, WriteOperation
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.store.paths import collection_prefix, object_path
from gangline.apiserver.store.store import Store

STORAGE_CLASSES = ("storage.k8s.io", "storageclasses")
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_ANNOTATIONS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_NOT_RESIZABLE = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
)


def storage_class_name(claim: JSON) -> str | None:
    """The class that a PersistentVolumeClaim names. None: it leaves the choice to the cluster."""
    annotations = claim["metadata"].get("annotations") or {}
    name: str | None = annotations.get(CLASS_ANNOTATION, claim["spec"].get("storageClassName"))
    return name


class DefaultStorageClass(AdmissionPlugin):
    """Claims that name no class get the default one, the newest if there are several."""

    name = "DefaultStorageClass"
    resources = frozenset({("", "persistentvolumeclaims")})

    def __init__(self, store: Store) -> None:
        self._store = store

    def admit(self, request: AdmissionRequest) -> None:
        if storage_class_name(request.obj) is not None:
            return
        classes = [decode_record(record) for record in self._store.range(collection_prefix(*STORAGE_CLASSES)).records]
        defaults = [item["metadata"] for item in classes if _is_default(item["metadata"])]
        if defaults:
            newest = max(metadata["creationTimestamp"] for metadata in defaults)
            names = [metadata["name"] for metadata in defaults if metadata["creationTimestamp"] == newest]
            request.obj["spec"]["storageClassName"] = min(names)


def _is_default(metadata: JSON) -> bool:
    annotations = metadata.get("annotations") or {}
    return any(annotations.get(name) == "true" for name in _DEFAULT_ANNOTATIONS)


class PersistentVolumeClaimResize(AdmissionPlugin):
    """A claim may grow only if its storage class allows it."""

    name = "PersistentVolumeClaimResize"
    operations = frozenset({WriteOperation.UPDATE})
    resources = frozenset({("", "persistentvolumeclaims")})

    def __init__(self, store: Store) -> None:
        self._store = store

    async def validate(self, request: AdmissionRequest) -> None:
        assert request.old is not None
        sizes = [
            parse_amounts((claim["spec"].get("resources") or {}).get("requests")).get("storage", ZERO)
            for claim in (request.old, request.obj)
        ]
        if sizes[1] > sizes[0] and not self._may_grow(request.old, request.obj):
            raise apierrors.forbidden(request.served_kind.resource, request.key.name, _NOT_RESIZABLE)

    def _may_grow(self, old: JSON, new: JSON) -> bool:
        name = storage_class_name(new)
        if not name or name != storage_class_name(old):
            return False
        record = self._store.get(object_path(*STORAGE_CLASSES, "", name))
        return record is not None and decode_record(record).get("allowVolumeExpansion") is True
