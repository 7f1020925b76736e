"""What ended runs left on disk: one folder for each, with its objects and the ends of its logs.

::

    <runs>/<time>_<namespace>_<plural>_<name>/objects.json
                                              pods/<namespace>_<name>_<uid>/<container>/<attempt>.json, .exit, .log

Pods are laid out as the node lays them out, so that the node's own reader serves their logs. A record appears whole,
by a rename; writers take turns. There is one for each job, the newest, and of all jobs the newest few.
"""

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.store.paths import ObjectPath
from gangline.node.checkpoint import ExitRecord, PodFolder, RunFiles, StateFolder
from gangline.node.logs import log_files

FORMAT_VERSION = 1
MAX_RUNS = 20
MAX_LOG_BYTES = 2**20
"""Of one run of a container."""
MAX_TOTAL_LOG_BYTES = 32 * 2**20
"""Of all of them together: a large team gets less for each."""
MAX_ATTEMPTS = 2
"""The last run of a container, and the one before: what can be asked for."""
LOCK_FILE, STAGING_FOLDER = ".lock", ".new"


class ArchiveContents(msgspec.Struct, frozen=True):
    """The file of a record: objects by where a store keeps them."""

    format: int
    objects: dict[str, dict[str, Any]]


class ArchivedRun(msgspec.Struct, frozen=True):
    """An ended run, its objects as they were at the end."""

    folder: Path
    objects: dict[str, JSON]

    def exit_records(self) -> dict[str, ExitRecord]:
        """How runs of containers ended, by their identity."""
        return exit_records(self.folder)


def exit_records(state: Path) -> dict[str, ExitRecord]:
    """How runs of containers ended that a node wrote down in its folder, by their identity."""
    found = (
        (files.run_record(), files.exit_record()) for pod in StateFolder(state).pods() for files in _run_files(pod)
    )
    return {record.id: end for record, end in found if record is not None and end is not None}


def ended_pod_uids(state: Path) -> set[str]:
    """The uids of pods that a node ran, as its folder says, and of which no process is left."""
    pods = StateFolder(state).pods()
    return {pod.uid for pod in pods if not any(files.is_alive() for files in _run_files(pod))}


def _run_files(pod: PodFolder) -> Iterator[RunFiles]:
    for container in pod.containers():
        yield from pod.runs(container)


def archive_run(
    runs: Path,
    job: ObjectPath,
    objects: Mapping[str, JSON],
    state: Path,
    ended: datetime,
    most: int = MAX_RUNS,
) -> Path:
    """Write a run down, and drop what is too old. Gives its folder.

    Logs come from the node's folder `state`: those of pods among the objects. Safe beside others who do the same; a
    writer that dies leaves nothing that the next one does not remove. Raises OSError.
    """
    runs.mkdir(mode=0o700, parents=True, exist_ok=True)
    stamp = ended.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%f")
    target = runs / "_".join((stamp, job.namespace, job.plural, job.name))
    with _archive_lock(runs):
        fresh = runs / STAGING_FOLDER
        # Of somebody who was killed here.
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        try:
            (fresh / "objects.json").write_bytes(msgspec.json.encode(ArchiveContents(FORMAT_VERSION, dict(objects))))
            _copy_logs(state, fresh, {body["metadata"]["uid"] for body in objects.values()})
            fresh.rename(target)
        except OSError:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        for folder in _outdated_folders(_archive_folders(runs), most):
            shutil.rmtree(folder, ignore_errors=True)
    return target


def archived_runs(runs: Path) -> list[ArchivedRun]:
    """The runs there are, oldest first. One that cannot be read (of a later version, or just dropped) is left out."""
    found = []
    for folder in _archive_folders(runs):
        with suppress(OSError, msgspec.DecodeError):
            contents = msgspec.json.decode((folder / "objects.json").read_bytes(), type=ArchiveContents)
            if contents.format == FORMAT_VERSION:
                found.append(ArchivedRun(folder, contents.objects))
    return found


def archived_job(folder: Path) -> ObjectPath:
    """Whose record a folder is; as a store has it, but for the group."""
    _, namespace, plural, name = folder.name.split("_")
    return ObjectPath("", plural, namespace, name)


def _archive_folders(runs: Path) -> list[Path]:
    return sorted(folder for folder in runs.glob("*_*_*_*") if folder.is_dir())


def _outdated_folders(folders: Iterable[Path], most: int) -> list[Path]:
    """What a newer run of the same job replaces, and all but the newest few."""
    newest = {archived_job(folder): folder for folder in folders}
    kept = sorted(newest.values())[-most:]
    return [folder for folder in folders if folder not in kept]


@contextmanager
def _archive_lock(runs: Path) -> Iterator[None]:
    lock = os.open(runs / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


# Logs


def _copy_logs(state: Path, target: Path, uids: set[str]) -> None:
    pods = [pod for pod in StateFolder(state).pods() if pod.uid in uids]
    wanted = [files for pod in pods for files in _latest_run_files(pod)]
    limit = min(MAX_LOG_BYTES, MAX_TOTAL_LOG_BYTES // max(1, len(wanted)))
    for files in wanted:
        folder = target / files.folder.relative_to(state)
        folder.mkdir(parents=True, exist_ok=True)
        copy = RunFiles(folder, files.attempt)
        copy.log_file.write_bytes(log_tail(files.log_file, limit))
        for file in (files.log_file.with_suffix(".json"), files.exit_file):
            with suppress(FileNotFoundError):
                shutil.copyfile(file, folder / file.name)


def _latest_run_files(pod: PodFolder) -> Iterator[RunFiles]:
    for container in pod.containers():
        yield from pod.runs(container)[-MAX_ATTEMPTS:]


def log_tail(log: Path, limit: int) -> bytes:
    """The end of a log with its rotated files: whole lines, at most so many bytes."""
    parts: list[bytes] = []
    left, cut = limit, False
    for path in reversed(log_files(log)):
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            cut = size > left
            file.seek(max(0, size - left))
            parts.append(file.read(left))
        left -= len(parts[-1])
        if cut:
            break
    data = b"".join(reversed(parts))
    return data[data.find(b"\n") + 1 :] if cut else data
