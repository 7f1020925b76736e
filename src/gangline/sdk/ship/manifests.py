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
from gangline.sdk.build.pod_templates import (
    pod_specs,
    training_container,
    training_containers,
    with_edited_pods,
)
from gangline.sdk.ship.archive import MIB, FileList, write_archive

MAX_CONFIG_MAP_BYTES = 900 * 1024
"""What a ConfigMap is asked to hold. It may hold a MiB, keys and all."""
MAX_CONFIG_MAP_FILES = 100
"""More files than this would make every pod long to read, and slow to send."""
WORK_DIR = "/gangline/work"
"""The working directory of a member: its own copy of the folder."""
SOURCE_DIR = "/gangline/parcel"
FOLDER_NAME, ARCHIVE_NAME = "folder", "folder.tar.gz"
SHIPMENT_LABEL = "training.gangline.dev/parcel"
"""Label of what carries a folder: the name of the job it is for."""
DIGEST_ANNOTATION = "training.gangline.dev/sha256"
"""Annotation of what carries a folder: the SHA-256 of its archive."""
UNPACK_CONTAINER, LOADER_CONTAINER = "gangline-unpack", "gangline-loader"
SOURCE_VOLUME, WORK_VOLUME = "gangline-parcel", "gangline-work"
LOADER_SECONDS = 3600
"""For so long a folder may be on its way."""
COPIED_POD_FIELDS = (
    "imagePullSecrets",
    "serviceAccountName",
    "securityContext",
    "nodeName",
    "nodeSelector",
    "tolerations",
)
COPIED_CONTAINER_FIELDS = ("image", "imagePullPolicy", "securityContext")
COPIED_RESOURCES = ("cpu", "memory", "ephemeral-storage")


class ShipmentForm(StrEnum):
    FILES = "files"
    ARCHIVE = "archive"
    CLAIM = "claim"


class Shipment(msgspec.Struct, frozen=True):
    """A folder, ready to go."""

    files: FileList
    form: ShipmentForm
    # Of the archive; nothing where files go one by one.
    digest: str = ""
    size: int = 0
    # Where the archive is until it is sent.
    archive: Path | None = None


def plan_shipment(parcel: FileList, scratch: Path) -> Shipment:
    """Decide how it travels; pack it into a file in `scratch` where that is needed. Raises `InputError`."""
    if parcel.size <= MAX_CONFIG_MAP_BYTES and len(parcel.files) <= MAX_CONFIG_MAP_FILES:
        return Shipment(parcel, ShipmentForm.FILES, size=parcel.size)
    archive = scratch / ARCHIVE_NAME
    with archive.open("wb") as file:
        digest = write_archive(parcel, file)
    size = archive.stat().st_size
    return Shipment(
        parcel,
        ShipmentForm.ARCHIVE if size <= MAX_CONFIG_MAP_BYTES else ShipmentForm.CLAIM,
        digest,
        size,
        archive,
    )


# Objects


def config_map(shipment: Shipment, job: str) -> JSON:
    """The ConfigMap of a shipment that fits into one. What is text can be read in it."""
    body: JSON = {"metadata": _metadata(job, shipment.digest), "immutable": True}
    if shipment.archive is not None:
        return {**body, "binaryData": {ARCHIVE_NAME: _base64_text(shipment.archive.read_bytes())}}
    text: dict[str, str] = {}
    binary: dict[str, str] = {}
    for item, name in zip(shipment.files.files, config_map_keys(shipment.files), strict=True):
        content = shipment.files.content(item)
        try:
            text[name] = content.decode()
        except UnicodeDecodeError:
            binary[name] = _base64_text(content)
    return {**body, "data": text, "binaryData": binary}


def config_map_keys(parcel: FileList) -> list[str]:
    """A key for each file: what of its path a key may have, and a number that makes it the only one."""
    return [
        f"{number:03}-{re.sub(r'[^A-Za-z0-9._-]+', '-', item.path)[-200:]}" for number, item in enumerate(parcel.files)
    ]


def volume_claim(shipment: Shipment, job: str, members: int, storage_class: str = "") -> JSON:
    """A claim that holds the archive. Several members are on several nodes, and need one that all can read."""
    wanted = f"{shipment.size * 11 // 10 // MIB + 16}Mi"
    spec: JSON = {
        "accessModes": ["ReadWriteOnce" if members == 1 else "ReadWriteMany"],
        "resources": {"requests": {"storage": wanted}},
    }
    if storage_class:
        spec["storageClassName"] = storage_class
    return {"metadata": _metadata(job, shipment.digest), "spec": spec}


def loader_pod(claim: str, job: str, body: JSON, facts: JobKind) -> JSON:
    """A pod that does nothing but hold the claim for us to write to: of the job's image, and as the job's pods are."""
    spec, container = next(
        (spec, found) for spec in pod_specs(body, facts) if (found := training_container(spec, facts)) is not None
    )
    return {
        "metadata": {"generateName": f"{job}-loader-", "labels": {SHIPMENT_LABEL: job}},
        "spec": {
            **{name: spec[name] for name in COPIED_POD_FIELDS if name in spec},
            "restartPolicy": "Never",
            "activeDeadlineSeconds": LOADER_SECONDS,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [
                {
                    **{name: container[name] for name in COPIED_CONTAINER_FIELDS if name in container},
                    "name": LOADER_CONTAINER,
                    "command": ["sleep", str(LOADER_SECONDS)],
                    "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}},
                    "volumeMounts": [{"name": SOURCE_VOLUME, "mountPath": SOURCE_DIR}],
                }
            ],
            "volumes": [{"name": SOURCE_VOLUME, "persistentVolumeClaim": {"claimName": claim}}],
        },
    }


def owner_patch(body: JSON, facts: JobKind, uid: str) -> JSON:
    """The patch by which an object goes when the job does."""
    name = body["metadata"]["name"]
    reference = {"apiVersion": facts.resource.api_version, "kind": facts.kind, "name": name, "uid": uid}
    return {"metadata": {"ownerReferences": [reference]}}


# The job


def wants_folder(body: JSON, facts: JobKind) -> bool:
    """Whether any member has a place for a folder: one that names its own working directory has not."""
    return any(not container.get("workingDir") for container in training_containers(body, facts))


def replica_total(body: JSON, facts: JobKind) -> int:
    """How many pods the job has, as it is written."""
    replicas = (body.get("spec") or {}).get(facts.replicas) or {}
    counts = [(spec or {}).get("replicas") for spec in replicas.values()]
    return sum(1 if count is None else int(count) for count in counts)


def job_with_folder(body: JSON, facts: JobKind, shipment: Shipment, carrier: str) -> JSON:
    """The job with the folder in it: `carrier` is the name of the ConfigMap or claim."""
    source = source_volume(shipment, carrier)

    def edit(spec: JSON) -> None:
        container = training_container(spec, facts)
        if container is None or container.get("workingDir"):
            return
        unpacker = _unpack_container(container, shipment.form)
        container["workingDir"] = WORK_DIR
        container["volumeMounts"] = [
            *(container.get("volumeMounts") or ()),
            {"name": WORK_VOLUME, "mountPath": WORK_DIR},
        ]
        spec["volumes"] = [*(spec.get("volumes") or ()), source, {"name": WORK_VOLUME, "emptyDir": {}}]
        spec["initContainers"] = [unpacker, *(spec.get("initContainers") or ())]

    return with_edited_pods(body, facts, edit)


def source_volume(shipment: Shipment, carrier: str) -> JSON:
    """The volume from which members copy."""
    if shipment.form is ShipmentForm.CLAIM:
        source: JSON = {"persistentVolumeClaim": {"claimName": carrier, "readOnly": True}}
    elif shipment.form is ShipmentForm.ARCHIVE:
        source = {"configMap": {"name": carrier}}
    else:
        parcel = shipment.files
        # In a folder of their own: beside it the kubelet has things of its own.
        items = [
            {"key": key, "path": f"{FOLDER_NAME}/{item.path}", "mode": item.mode}
            for item, key in zip(parcel.files, config_map_keys(parcel), strict=True)
        ]
        source = {"configMap": {"name": carrier, "items": items}}
    return {"name": SOURCE_VOLUME, **source}


def unpack_command(form: ShipmentForm) -> list[str]:
    """What makes the copy."""
    if form is ShipmentForm.FILES:
        # The kubelet gives links to files; what is copied are the files.
        return ["cp", "-RL", f"{SOURCE_DIR}/{FOLDER_NAME}/.", f"{WORK_DIR}/"]
    return ["tar", "-xzf", f"{SOURCE_DIR}/{ARCHIVE_NAME}", "-C", WORK_DIR]


def _unpack_container(container: JSON, form: ShipmentForm) -> JSON:
    """As the member itself is: by the same user, so that the copy is its own; of the same means, so that a quota agrees."""
    resources = {
        kind: kept
        for kind, amounts in (container.get("resources") or {}).items()
        if kind in ("requests", "limits")
        and (kept := {name: amount for name, amount in (amounts or {}).items() if name in COPIED_RESOURCES})
    }
    return {
        **{name: container[name] for name in COPIED_CONTAINER_FIELDS if name in container},
        "name": UNPACK_CONTAINER,
        "command": unpack_command(form),
        **({"resources": resources} if resources else {}),
        "volumeMounts": [
            {"name": SOURCE_VOLUME, "mountPath": SOURCE_DIR, "readOnly": True},
            {"name": WORK_VOLUME, "mountPath": WORK_DIR},
        ],
    }


def _metadata(job: str, digest: str) -> JSON:
    found: JSON = {"generateName": f"{job}-folder-", "labels": {SHIPMENT_LABEL: job}}
    return {**found, "annotations": {DIGEST_ANNOTATION: digest}} if digest else found


def _base64_text(content: bytes) -> str:
    return base64.b64encode(content).decode()
