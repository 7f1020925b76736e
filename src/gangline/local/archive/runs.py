"""The archive of ended runs: one folder for each, with its objects and the ends of its logs.

::

    <runs>/<time>_<namespace>_<plural>_<name>/objects.json
                                              pods/<namespace>_<name>_<uid>/<container>/<attempt>.json, .exit, .log

Folders of pods are those of the node, so that the node's own reader serves their logs. An archived run appears at once,
by a rename; a lock serializes writers. Each job has one archived run, its newest; only the newest jobs are kept.
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
from gangline.base.files import private_folder, write_private
from gangline.node.checkpoint import ExitRecord, PodFolder, RunFiles, StateFolder
from gangline.node.logs import log_files

FORMAT_VERSION = 1
MAX_RUNS = 20
MAX_LOG_BYTES = 2**20
"""Log bytes of one run of a container."""
MAX_TOTAL_LOG_BYTES = 32 * 2**20
"""Log bytes of all containers together: a large gang keeps less of each."""
MAX_ATTEMPTS = 2
"""The last run of a container and the one before (`--previous`)."""
LOCK_FILE, STAGING_FOLDER = ".lock", ".new"


class ArchiveContents(msgspec.Struct, frozen=True):
    """The file `objects.json`: objects by their store path."""

    format: int
    objects: dict[str, dict[str, Any]]


class ArchivedRun(msgspec.Struct, frozen=True):
    """An ended run, with its objects as they were at the end."""

    folder: Path
    objects: dict[str, JSON]

    def exit_records(self) -> dict[str, ExitRecord]:
        """How the runs of containers ended, by run id."""
        return exit_records(self.folder)


def exit_records(state: Path) -> dict[str, ExitRecord]:
    """How the runs of containers in a node's state folder ended, by run id."""
    runs = (files for pod in StateFolder(state).pods() for files in pod.all_runs())
    records = ((files.run_record(), files.exit_record()) for files in runs)
    return {run.id: exit_ for run, exit_ in records if run is not None and exit_ is not None}


def ended_pod_uids(state: Path) -> set[str]:
    """The uids of pods in a node's state folder that have no process any more."""
    pods = StateFolder(state).pods()
    return {pod.uid for pod in pods if not any(files.lock.is_held() for files in pod.all_runs())}


def archive_run(
    runs: Path, job: ObjectPath, objects: Mapping[str, JSON], state: Path, ended: datetime, most: int = MAX_RUNS
) -> Path:
    """Archive a run, and remove archived runs that are too old. Returns the new folder.

    The logs of the pods among the objects are copied from the node's folder `state`. Safe with concurrent writers; the
    next writer removes what a killed one left. Raises OSError.
    """
    runs.mkdir(mode=0o700, parents=True, exist_ok=True)
    stamp = ended.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%f")
    target = runs / "_".join((stamp, job.namespace, job.plural, job.name))
    with _archive_lock(runs):
        fresh = runs / STAGING_FOLDER
        # Left by a writer that was killed.
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        try:
            contents = msgspec.json.encode(ArchiveContents(FORMAT_VERSION, dict(objects)))
            write_private(fresh / "objects.json", contents)
            _copy_logs(state, fresh, {body["metadata"]["uid"] for body in objects.values()})
            fresh.rename(target)
        except OSError:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        for folder in _outdated_folders(archive_folders(runs), most):
            shutil.rmtree(folder, ignore_errors=True)
    return target


def archived_runs(runs: Path) -> list[ArchivedRun]:
    """The archived runs, oldest first. One that cannot be read (of a later version, or just removed) is left out."""
    archived = []
    for folder in archive_folders(runs):
        with suppress(OSError, msgspec.DecodeError):
            contents = msgspec.json.decode((folder / "objects.json").read_bytes(), type=ArchiveContents)
            if contents.format == FORMAT_VERSION:
                archived.append(ArchivedRun(folder, contents.objects))
    return archived


def archived_job(folder: Path) -> ObjectPath:
    """The store path of a folder's job, without its group."""
    _, namespace, plural, name = folder.name.split("_")
    return ObjectPath("", plural, namespace, name)


def archive_folders(runs: Path) -> list[Path]:
    """The folders of the archived runs, oldest first."""
    return sorted(folder for folder in runs.glob("*_*_*_*") if folder.is_dir())


def _outdated_folders(folders: Iterable[Path], most: int) -> list[Path]:
    """The folders that a newer run of the same job replaces, and all but the newest `most`."""
    newest = {archived_job(folder): folder for folder in folders}
    current = sorted(newest.values())[-most:]
    return [folder for folder in folders if folder not in current]


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
    runs = [files for pod in pods for files in _latest_run_files(pod)]
    limit = min(MAX_LOG_BYTES, MAX_TOTAL_LOG_BYTES // max(1, len(runs)))
    for files in runs:
        folder = target / files.folder.relative_to(state)
        private_folder(folder)
        copy = RunFiles(folder, files.attempt)
        write_private(copy.log_file, log_tail(files.log_file, limit))
        for file in (files.log_file.with_suffix(".json"), files.exit_file):
            with suppress(FileNotFoundError):
                write_private(folder / file.name, file.read_bytes())


def _latest_run_files(pod: PodFolder) -> Iterator[RunFiles]:
    for container in pod.containers():
        yield from pod.runs(container)[-MAX_ATTEMPTS:]


def log_tail(log: Path, limit: int) -> bytes:
    """The end of a log with its rotated files: complete lines, at most `limit` bytes."""
    parts: list[bytes] = []
    remaining, truncated = limit, False
    for path in reversed(log_files(log)):
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            truncated = size > remaining
            file.seek(max(0, size - remaining))
            parts.append(file.read(remaining))
        remaining -= len(parts[-1])
        if truncated:
            break
    data = b"".join(reversed(parts))
    return data[data.find(b"\n") + 1 :] if truncated else data
