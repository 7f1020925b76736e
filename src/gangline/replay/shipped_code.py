"""The code of a job that gangline shipped, read back from the ConfigMap that carries it. Pure, except for memory."""

import base64
import io
import tarfile
from collections.abc import Mapping
from pathlib import PurePosixPath

from gangline.api.meta import JSON
from gangline.replay.bundle import CodeFile
from gangline.sdk.ship.manifests import (
    ARCHIVE_NAME,
    FOLDER_NAME,
    SOURCE_VOLUME,
    UNPACK_CONTAINER,
    WORK_DIR,
    WORK_VOLUME,
)

MAX_CODE_BYTES = 256 * 2**20


def carrier_name(pod_spec: JSON) -> str:
    """The ConfigMap that carries the folder of a pod; empty if it has none, or a claim carries it."""
    volume = _source_volume(pod_spec)
    return str(((volume or {}).get("configMap") or {}).get("name", ""))


def carrier_claim(pod_spec: JSON) -> str:
    """The claim that carries the folder of a pod; empty if there is none."""
    volume = _source_volume(pod_spec)
    return str(((volume or {}).get("persistentVolumeClaim") or {}).get("claimName", ""))


def _source_volume(pod_spec: JSON) -> JSON | None:
    volumes: list[JSON] = pod_spec.get("volumes") or []
    return next((one for one in volumes if one.get("name") == SOURCE_VOLUME), None)


def shipped_files(config_map: JSON, pod_spec: JSON) -> Mapping[str, CodeFile]:
    """The files of the folder, by their paths. Raises `tarfile.TarError`, `OSError` and `ValueError` for a broken one."""
    binary = config_map.get("binaryData") or {}
    if ARCHIVE_NAME in binary:
        return _archived_files(base64.b64decode(binary[ARCHIVE_NAME]))
    text: JSON = config_map.get("data") or {}
    files: dict[str, CodeFile] = {}
    for item in ((_source_volume(pod_spec) or {}).get("configMap") or {}).get("items") or ():
        path = str(PurePosixPath(item["path"]).relative_to(FOLDER_NAME))
        key = item["key"]
        content = text[key].encode() if key in text else base64.b64decode(binary.get(key, ""))
        files[path] = CodeFile(content, item.get("mode") or 0o644)
    return files


def _archived_files(data: bytes) -> Mapping[str, CodeFile]:
    files: dict[str, CodeFile] = {}
    total = 0
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        for member in archive:
            path = PurePosixPath(member.name)
            if not member.isfile() or path.is_absolute() or ".." in path.parts:
                continue
            total += member.size
            if total > MAX_CODE_BYTES:
                raise ValueError(f"the folder has more than {MAX_CODE_BYTES // 2**20} MiB")
            file = archive.extractfile(member)
            files[str(path)] = CodeFile(file.read() if file is not None else b"", member.mode & 0o777)
    return files


def without_shipment(spec: JSON) -> None:
    """Take out of a pod spec what unpacks the shipped folder: the processes start in the folder itself."""
    containers: list[JSON] = spec.get("initContainers") or []
    if not any(one.get("name") == UNPACK_CONTAINER for one in containers):
        return
    names = (SOURCE_VOLUME, WORK_VOLUME)
    spec["initContainers"] = [one for one in containers if one.get("name") != UNPACK_CONTAINER]
    spec["volumes"] = [one for one in spec.get("volumes") or () if one.get("name") not in names]
    for container in spec.get("containers") or ():
        mounts = container.get("volumeMounts") or ()
        container["volumeMounts"] = [one for one in mounts if one.get("name") not in names]
        if container.get("workingDir") == WORK_DIR:
            del container["workingDir"]
