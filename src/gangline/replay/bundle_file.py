"""A bundle as one file: a zip with a manifest, JSON for each part, logs as text, and the code as it was.

Anybody can look into it with `unzip`. Reading checks what it reads: a bundle may come from somebody else.
"""

import io
import stat
import zipfile
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, TypeVar

import msgspec

from gangline.base.errors import InputError
from gangline.replay.bundle import (
    BUNDLE_VERSION,
    CodeFile,
    JobBundle,
    Manifest,
    RecordedFault,
    RecordedVerdict,
    ReplicaRecord,
)

T = TypeVar("T")

MANIFEST = "manifest.json"
CODE = "code/"
LOGS = "logs/"
MAX_BYTES = 512 * 2**20
"""The most that a bundle may contain, unpacked."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def encode_bundle(bundle: JobBundle) -> bytes:
    """The file. Equal bundles give equal files."""
    parts = {
        MANIFEST: bundle.manifest,
        "job.json": bundle.job,
        "verdict.json": bundle.verdict,
        "why.json": bundle.diagnosis,
        "faults.json": bundle.faults,
        "replicas.json": [msgspec.structs.replace(one, log=()) for one in bundle.replicas],
        "pods.json": bundle.pods,
        "events.json": bundle.events,
        "configmaps.json": bundle.config_maps,
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in parts.items():
            text = msgspec.json.format(msgspec.json.encode(value, order="deterministic"), indent=2)
            _write(archive, name, text + b"\n")
        for replica in bundle.replicas:
            _write(archive, f"{LOGS}{replica.name}.log", "".join(f"{line}\n" for line in replica.log).encode())
        for path, file in sorted(bundle.code.items()):
            _write(archive, f"{CODE}{path}", file.content, file.mode)
    return buffer.getvalue()


def _write(archive: zipfile.ZipFile, name: str, content: bytes, mode: int = 0o644) -> None:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = (stat.S_IFREG | (mode & 0o777)) << 16
    archive.writestr(info, content)


def decode_bundle(data: bytes, file: str) -> JobBundle:
    """The bundle in a file. Raises `InputError` that names the file."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _decode(archive, file)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: is not a whole bundle: {error}; record it again: gangline record JOB") from error


def _decode(archive: zipfile.ZipFile, file: str) -> JobBundle:
    if MANIFEST not in archive.namelist():
        raise InputError(f"{file}: is a zip file without {MANIFEST}; a bundle is made by: gangline record JOB")
    if sum(info.file_size for info in archive.infolist()) > MAX_BYTES:
        raise InputError(f"{file}: contains more than {MAX_BYTES // 2**20} MiB, which no bundle does")

    def part(name: str, form: type[T]) -> T:
        try:
            return msgspec.json.decode(archive.read(name), type=form)
        except KeyError:
            raise InputError(f"{file}: has no {name}; record it again: gangline record JOB") from None
        except msgspec.MsgspecError as error:
            raise InputError(f"{file}: {name}: {error}") from error

    version = part(MANIFEST, dict[str, Any]).get("version")
    if version != BUNDLE_VERSION:
        raise InputError(
            f"{file}: is a bundle of version {version}, and this gangline reads version {BUNDLE_VERSION}; "
            "play it with the gangline that made it"
        )
    return JobBundle(
        manifest=part(MANIFEST, Manifest),
        job=part("job.json", dict[str, Any]),
        verdict=part("verdict.json", RecordedVerdict),
        diagnosis=part("why.json", dict[str, Any] | None),  # type: ignore[arg-type]
        faults=part("faults.json", tuple[RecordedFault, ...]),
        replicas=tuple(_with_log(archive, one) for one in part("replicas.json", tuple[ReplicaRecord, ...])),
        pods=part("pods.json", tuple[dict[str, Any], ...]),
        events=part("events.json", tuple[dict[str, Any], ...]),
        config_maps=part("configmaps.json", tuple[dict[str, Any], ...]),
        code=_code(archive, file),
    )


def _with_log(archive: zipfile.ZipFile, replica: ReplicaRecord) -> ReplicaRecord:
    name = f"{LOGS}{replica.name}.log"
    text = archive.read(name).decode(errors="replace") if name in archive.namelist() else ""
    return msgspec.structs.replace(replica, log=tuple(text.split("\n")[:-1]))


def _code(archive: zipfile.ZipFile, file: str) -> Mapping[str, CodeFile]:
    files: dict[str, CodeFile] = {}
    for info in archive.infolist():
        if not info.filename.startswith(CODE) or info.is_dir():
            continue
        path = info.filename.removeprefix(CODE)
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts or "\\" in path or "\0" in path:
            raise InputError(f"{file}: contains a file outside of its folder: {path!r}; do not use it")
        files[path] = CodeFile(archive.read(info), (info.external_attr >> 16) & 0o777 or 0o644)
    return files
