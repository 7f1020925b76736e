"""The Kubernetes objects that carry a folder to the pods of a job, and the edits of the job's templates.

Every replica gets its own writable copy in an emptyDir, because a program may write beside its script, as on the machine
it comes from. A ConfigMap volume is read-only.

========  =========================  =======================================  =======================
form      when                       carried by                               an image needs
========  =========================  =======================================  =======================
FILES     up to 900 KiB, 100 files   a ConfigMap, a key for each file         `cp`
ARCHIVE   up to 900 KiB packed       a ConfigMap with a tar.gz                `tar`, `gzip`
CLAIM     beyond that                a claim, filled by a pod of the image    the same, `dd`, `sleep`
========  =========================  =======================================  =======================

No shell is used, and no input of a user is part of a command. Pure, except for reading files.
"""

import base64
import re
from enum import StrEnum
from pathlib import Path

import msgspec

from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.sdk.build.bodies import volume_claim_spec
from gangline.sdk.build.pod_templates import (
    pod_specs,
    training_container,
    training_containers,
    with_edited_pods,
)
from gangline.sdk.ship.archive import MIB, FileList, write_archive

MAX_CONFIG_MAP_BYTES = 900 * 1024
"""The most data in a ConfigMap. Its limit is 1 MiB with keys and metadata."""
MAX_CONFIG_MAP_FILES = 100
"""The most files that are keys of a ConfigMap: each is an item in the volumes of all pods."""
WORK_DIR = "/gangline/work"
"""The working directory of a replica: its copy of the folder."""
SOURCE_DIR = "/gangline/parcel"
FOLDER_NAME, ARCHIVE_NAME = "folder", "folder.tar.gz"
SHIPMENT_LABEL = "training.gangline.dev/parcel"
"""Label of the objects that carry a folder: the name of the job."""
DIGEST_ANNOTATION = "training.gangline.dev/sha256"
"""Annotation of the objects that carry a folder: the SHA-256 of the archive."""
UNPACK_CONTAINER, LOADER_CONTAINER = "gangline-unpack", "gangline-loader"
SOURCE_VOLUME, WORK_VOLUME = "gangline-parcel", "gangline-work"
LOADER_SECONDS = 3600
"""How long the loader pod may run."""
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
    """A folder to ship, and how."""

    files: FileList
    form: ShipmentForm
    # SHA-256 of the archive; empty for FILES.
    digest: str = ""
    size: int = 0
    # The archive on this machine; None for FILES.
    archive: Path | None = None


def plan_shipment(files: FileList, scratch: Path) -> Shipment:
    """Choose the form, and write the archive into `scratch` if it needs one. Raises `InputError`."""
    if files.size <= MAX_CONFIG_MAP_BYTES and len(files.files) <= MAX_CONFIG_MAP_FILES:
        return Shipment(files, ShipmentForm.FILES, size=files.size)
    archive = scratch / ARCHIVE_NAME
    with archive.open("wb") as file:
        digest = write_archive(files, file)
    size = archive.stat().st_size
    return Shipment(
        files,
        ShipmentForm.ARCHIVE if size <= MAX_CONFIG_MAP_BYTES else ShipmentForm.CLAIM,
        digest,
        size,
        archive,
    )


# Objects


def config_map(shipment: Shipment, job: str) -> JSON:
    """The ConfigMap of a FILES or ARCHIVE shipment. Text files are readable in it."""
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


def config_map_keys(files: FileList) -> list[str]:
    """A unique key for each file: a number, and its path with the characters that keys allow."""
    return [
        f"{number:03}-{re.sub(r'[^A-Za-z0-9._-]+', '-', item.path)[-200:]}" for number, item in enumerate(files.files)
    ]


def volume_claim(shipment: Shipment, job: str, members: int, storage_class: str = "") -> JSON:
    """The claim for the archive. Several replicas run on several nodes, so all of these must be able to mount it."""
    size = f"{shipment.size * 11 // 10 // MIB + 16}Mi"
    spec = volume_claim_spec(["ReadWriteOnce" if members == 1 else "ReadWriteMany"], size, storage_class)
    return {"metadata": _metadata(job, shipment.digest), "spec": spec}


def loader_pod(claim: str, job: str, body: JSON, kind: JobKind) -> JSON:
    """A pod that mounts the claim, to write the archive into it: with the image and the pod settings of the job."""
    spec, container = next(
        (spec, match) for spec in pod_specs(body, kind) if (match := training_container(spec, kind)) is not None
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


def owner_patch(body: JSON, kind: JobKind, uid: str) -> JSON:
    """The patch that makes the job the owner of an object, so that it is deleted with the job."""
    name = body["metadata"]["name"]
    reference = {"apiVersion": kind.resource.api_version, "kind": kind.kind, "name": name, "uid": uid}
    return {"metadata": {"ownerReferences": [reference]}}


# The job


def wants_folder(body: JSON, kind: JobKind) -> bool:
    """Whether any training container uses the folder: one with its own workingDir does not."""
    return any(not container.get("workingDir") for container in training_containers(body, kind))


def replica_total(body: JSON, kind: JobKind) -> int:
    """The number of replicas in the manifest of a job."""
    replicas = (body.get("spec") or {}).get(kind.replicas) or {}
    counts = [(spec or {}).get("replicas") for spec in replicas.values()]
    return sum(1 if count is None else int(count) for count in counts)


def job_with_folder(body: JSON, kind: JobKind, shipment: Shipment, carrier: str) -> JSON:
    """A copy of the job that unpacks and uses the folder. `carrier` is the name of the ConfigMap or claim."""
    source = source_volume(shipment, carrier)

    def edit(spec: JSON) -> None:
        container = training_container(spec, kind)
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

    return with_edited_pods(body, kind, edit)


def source_volume(shipment: Shipment, carrier: str) -> JSON:
    """The volume with the shipped files or archive."""
    if shipment.form is ShipmentForm.CLAIM:
        source: JSON = {"persistentVolumeClaim": {"claimName": carrier, "readOnly": True}}
    elif shipment.form is ShipmentForm.ARCHIVE:
        source = {"configMap": {"name": carrier}}
    else:
        files = shipment.files
        # In a subfolder, because the kubelet has files of its own in the volume.
        items = [
            {"key": key, "path": f"{FOLDER_NAME}/{item.path}", "mode": item.mode}
            for item, key in zip(files.files, config_map_keys(files), strict=True)
        ]
        source = {"configMap": {"name": carrier, "items": items}}
    return {"name": SOURCE_VOLUME, **source}


def unpack_command(form: ShipmentForm) -> list[str]:
    """The command that copies or unpacks the folder."""
    if form is ShipmentForm.FILES:
        # The kubelet mounts links; -L copies the files.
        return ["cp", "-RL", f"{SOURCE_DIR}/{FOLDER_NAME}/.", f"{WORK_DIR}/"]
    return ["tar", "-xzf", f"{SOURCE_DIR}/{ARCHIVE_NAME}", "-C", WORK_DIR]


def _unpack_container(container: JSON, form: ShipmentForm) -> JSON:
    """The init container: with the same user, so that it owns the copy, and the same resources, so that a quota allows it."""
    resources = {
        section: copied
        for section, amounts in (container.get("resources") or {}).items()
        if section in ("requests", "limits")
        and (copied := {name: amount for name, amount in (amounts or {}).items() if name in COPIED_RESOURCES})
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
    metadata: JSON = {"generateName": f"{job}-folder-", "labels": {SHIPMENT_LABEL: job}}
    return {**metadata, "annotations": {DIGEST_ANNOTATION: digest}} if digest else metadata


def _base64_text(content: bytes) -> str:
    return base64.b64encode(content).decode()
