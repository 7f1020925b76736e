"""How a folder travels to the pods of a job: as objects of the cluster, and as edits of the job's templates.

Every member gets a copy of its own, in a volume that is empty at first and writable: a program may write beside its
script, as it does on the machine it comes from. A ConfigMap itself could not be written to.

========  =========================  =======================================  =======================
form      when                       carried by                               an image needs
========  =========================  =======================================  =======================
FILES     up to 900 KiB, 100 files   a ConfigMap, a key for each file         `cp`
ARCHIVE   up to 900 KiB packed       a ConfigMap with a tar.gz                `tar`, `gzip`
CLAIM     beyond that                a claim, filled by a pod of the image    the same, `dd`, `sleep`
========  =========================  =======================================  =======================

No shell is started anywhere, and no word of a user is part of a command. All of this is pure, but for reading files.
"""

import base64
import re
from enum import StrEnum
from pathlib import Path

import msgspec

from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.sdk.build.pod_templates import edited, pod_specs, trainer, trainers
from gangline.sdk.ship.archive import MIB, Parcel, pack

SMALL = 900 * 1024
"""What a ConfigMap is asked to hold. It may hold a MiB, keys and all."""
FEW = 100
"""More files than this would make every pod long to read, and slow to send."""
WORK = "/gangline/work"
"""The working directory of a member: its own copy of the folder."""
SOURCE = "/gangline/parcel"
INSIDE, PACKED = "folder", "folder.tar.gz"
PARCEL = "training.gangline.dev/parcel"
"""Label of what carries a folder: the name of the job it is for."""
DIGEST = "training.gangline.dev/sha256"
"""Annotation of what carries a folder: the SHA-256 of its archive."""
UNPACKER, LOADER = "gangline-unpack", "gangline-loader"
PARCEL_VOLUME, WORK_VOLUME = "gangline-parcel", "gangline-work"
LOADER_SECONDS = 3600
"""For so long a folder may be on its way."""
OF_POD = (
    "imagePullSecrets",
    "serviceAccountName",
    "securityContext",
    "nodeName",
    "nodeSelector",
    "tolerations",
)
OF_CONTAINER = ("image", "imagePullPolicy", "securityContext")
SHARED = ("cpu", "memory", "ephemeral-storage")


class Form(StrEnum):
    FILES = "files"
    ARCHIVE = "archive"
    CLAIM = "claim"


class Shipment(msgspec.Struct, frozen=True):
    """A folder, ready to go."""

    parcel: Parcel
    form: Form
    # Of the archive; nothing where files go one by one.
    digest: str = ""
    size: int = 0
    # Where the archive is until it is sent.
    archive: Path | None = None


def ready(parcel: Parcel, scratch: Path) -> Shipment:
    """Decide how it travels; pack it into a file in `scratch` where that is needed. Raises `InputError`."""
    if parcel.size <= SMALL and len(parcel.items) <= FEW:
        return Shipment(parcel, Form.FILES, size=parcel.size)
    archive = scratch / PACKED
    with archive.open("wb") as file:
        digest = pack(parcel, file)
    size = archive.stat().st_size
    return Shipment(parcel, Form.ARCHIVE if size <= SMALL else Form.CLAIM, digest, size, archive)


# Objects


def config_map(shipment: Shipment, job: str) -> JSON:
    """The ConfigMap of a shipment that fits into one. What is text can be read in it."""
    body: JSON = {"metadata": _metadata(job, shipment.digest), "immutable": True}
    if shipment.archive is not None:
        return {**body, "binaryData": {PACKED: _encoded(shipment.archive.read_bytes())}}
    text: dict[str, str] = {}
    binary: dict[str, str] = {}
    for item, name in zip(shipment.parcel.items, keys(shipment.parcel), strict=True):
        content = shipment.parcel.content(item)
        try:
            text[name] = content.decode()
        except UnicodeDecodeError:
            binary[name] = _encoded(content)
    return {**body, "data": text, "binaryData": binary}


def keys(parcel: Parcel) -> list[str]:
    """A key for each file: what of its path a key may have, and a number that makes it the only one."""
    return [
        f"{number:03}-{re.sub(r'[^A-Za-z0-9._-]+', '-', item.path)[-200:]}"
        for number, item in enumerate(parcel.items)
    ]


def claim(shipment: Shipment, job: str, members: int, storage_class: str = "") -> JSON:
    """A claim that holds the archive. Several members are on several nodes, and need one that all can read."""
    wanted = f"{shipment.size * 11 // 10 // MIB + 16}Mi"
    spec: JSON = {
        "accessModes": ["ReadWriteOnce" if members == 1 else "ReadWriteMany"],
        "resources": {"requests": {"storage": wanted}},
    }
    if storage_class:
        spec["storageClassName"] = storage_class
    return {"metadata": _metadata(job, shipment.digest), "spec": spec}


def loader(claim: str, job: str, body: JSON, facts: JobKind) -> JSON:
    """A pod that does nothing but hold the claim for us to write to: of the job's image, and as the job's pods are."""
    spec, container = next(
        (spec, found) for spec in pod_specs(body, facts) if (found := trainer(spec, facts)) is not None
    )
    return {
        "metadata": {"generateName": f"{job}-loader-", "labels": {PARCEL: job}},
        "spec": {
            **{name: spec[name] for name in OF_POD if name in spec},
            "restartPolicy": "Never",
            "activeDeadlineSeconds": LOADER_SECONDS,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [
                {
                    **{name: container[name] for name in OF_CONTAINER if name in container},
                    "name": LOADER,
                    "command": ["sleep", str(LOADER_SECONDS)],
                    "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}},
                    "volumeMounts": [{"name": PARCEL_VOLUME, "mountPath": SOURCE}],
                }
            ],
            "volumes": [{"name": PARCEL_VOLUME, "persistentVolumeClaim": {"claimName": claim}}],
        },
    }


def owner(body: JSON, facts: JobKind, uid: str) -> JSON:
    """The patch by which an object goes when the job does."""
    name = body["metadata"]["name"]
    reference = {"apiVersion": facts.resource.api_version, "kind": facts.kind, "name": name, "uid": uid}
    return {"metadata": {"ownerReferences": [reference]}}


# The job


def wanting(body: JSON, facts: JobKind) -> bool:
    """Whether any member has a place for a folder: one that names its own working directory has not."""
    return any(not container.get("workingDir") for container in trainers(body, facts))


def members(body: JSON, facts: JobKind) -> int:
    """How many pods the job has, as it is written."""
    replicas = (body.get("spec") or {}).get(facts.replicas) or {}
    counts = [(spec or {}).get("replicas") for spec in replicas.values()]
    return sum(1 if count is None else int(count) for count in counts)


def delivered(body: JSON, facts: JobKind, shipment: Shipment, carrier: str) -> JSON:
    """The job with the folder in it: `carrier` is the name of the ConfigMap or claim."""
    source = volume(shipment, carrier)

    def edit(spec: JSON) -> None:
        container = trainer(spec, facts)
        if container is None or container.get("workingDir"):
            return
        unpacker = _unpacker(container, shipment.form)
        container["workingDir"] = WORK
        container["volumeMounts"] = [
            *(container.get("volumeMounts") or ()),
            {"name": WORK_VOLUME, "mountPath": WORK},
        ]
        spec["volumes"] = [*(spec.get("volumes") or ()), source, {"name": WORK_VOLUME, "emptyDir": {}}]
        spec["initContainers"] = [unpacker, *(spec.get("initContainers") or ())]

    return edited(body, facts, edit)


def volume(shipment: Shipment, carrier: str) -> JSON:
    """The volume from which members copy."""
    if shipment.form is Form.CLAIM:
        source: JSON = {"persistentVolumeClaim": {"claimName": carrier, "readOnly": True}}
    elif shipment.form is Form.ARCHIVE:
        source = {"configMap": {"name": carrier}}
    else:
        parcel = shipment.parcel
        # In a folder of their own: beside it the kubelet has things of its own.
        items = [
            {"key": key, "path": f"{INSIDE}/{item.path}", "mode": item.mode}
            for item, key in zip(parcel.items, keys(parcel), strict=True)
        ]
        source = {"configMap": {"name": carrier, "items": items}}
    return {"name": PARCEL_VOLUME, **source}


def unpacking(form: Form) -> list[str]:
    """What makes the copy."""
    if form is Form.FILES:
        # The kubelet gives links to files; what is copied are the files.
        return ["cp", "-RL", f"{SOURCE}/{INSIDE}/.", f"{WORK}/"]
    return ["tar", "-xzf", f"{SOURCE}/{PACKED}", "-C", WORK]


def _unpacker(container: JSON, form: Form) -> JSON:
    """As the member itself is: by the same user, so that the copy is its own; of the same means, so that a quota agrees."""
    resources = {
        kind: kept
        for kind, amounts in (container.get("resources") or {}).items()
        if kind in ("requests", "limits")
        and (kept := {name: amount for name, amount in (amounts or {}).items() if name in SHARED})
    }
    return {
        **{name: container[name] for name in OF_CONTAINER if name in container},
        "name": UNPACKER,
        "command": unpacking(form),
        **({"resources": resources} if resources else {}),
        "volumeMounts": [
            {"name": PARCEL_VOLUME, "mountPath": SOURCE, "readOnly": True},
            {"name": WORK_VOLUME, "mountPath": WORK},
        ],
    }


def _metadata(job: str, digest: str) -> JSON:
    found: JSON = {"generateName": f"{job}-folder-", "labels": {PARCEL: job}}
    return {**found, "annotations": {DIGEST: digest}} if digest else found


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
