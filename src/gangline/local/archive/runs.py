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
from gangline.node.checkpoint import Exit, PodFolder, RunFiles, StateFolder
from gangline.node.logs import rotated

FORMAT = 1
MOST_RUNS = 20
LOG_BYTES = 2**20
"""Of one run of a container."""
ALL_LOG_BYTES = 32 * 2**20
"""Of all of them together: a large team gets less for each."""
MOST_ATTEMPTS = 2
"""The last run of a container, and the one before: what can be asked for."""
LOCK, FRESH = ".lock", ".new"


class Contents(msgspec.Struct, frozen=True):
    """The file of a record: objects by where a store keeps them."""

    format: int
    objects: dict[str, dict[str, Any]]


class Bygone(msgspec.Struct, frozen=True):
    """An ended run, its objects as they were at the end."""

    folder: Path
    objects: dict[str, JSON]

    def exits(self) -> dict[str, Exit]:
        """How runs of containers ended, by their identity."""
        return exits(self.folder)


def exits(state: Path) -> dict[str, Exit]:
    """How runs of containers ended that a node wrote down in its folder, by their identity."""
    found = ((files.record(), files.ended()) for pod in StateFolder(state).pods() for files in _runs(pod))
    return {record.id: end for record, end in found if record is not None and end is not None}


def over(state: Path) -> set[str]:
    """The uids of pods that a node ran, as its folder says, and of which no process is left."""
    pods = StateFolder(state).pods()
    return {pod.uid for pod in pods if not any(files.alive() for files in _runs(pod))}


def _runs(pod: PodFolder) -> Iterator[RunFiles]:
    for container in pod.containers():
        yield from pod.runs(container)


def keep(
    runs: Path,
    job: ObjectPath,
    objects: Mapping[str, JSON],
    state: Path,
    ended: datetime,
    most: int = MOST_RUNS,
) -> Path:
    """Write a run down, and drop what is too old. Gives its folder.

    Logs come from the node's folder `state`: those of pods among the objects. Safe beside others who do the same; a
    writer that dies leaves nothing that the next one does not remove. Raises OSError.
    """
    runs.mkdir(mode=0o700, parents=True, exist_ok=True)
    stamp = ended.astimezone(UTC).strftime("%Y%m%dT%H%M%S.%f")
    target = runs / "_".join((stamp, job.namespace, job.plural, job.name))
    with _turn(runs):
        fresh = runs / FRESH
        # Of somebody who was killed here.
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        try:
            (fresh / "objects.json").write_bytes(msgspec.json.encode(Contents(FORMAT, dict(objects))))
            _copy_logs(state, fresh, {body["metadata"]["uid"] for body in objects.values()})
            fresh.rename(target)
        except OSError:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        for folder in _superfluous(_folders(runs), most):
            shutil.rmtree(folder, ignore_errors=True)
    return target


def bygone(runs: Path) -> list[Bygone]:
    """The runs there are, oldest first. One that cannot be read (of a later version, or just dropped) is left out."""
    found = []
    for folder in _folders(runs):
        with suppress(OSError, msgspec.DecodeError):
            contents = msgspec.json.decode((folder / "objects.json").read_bytes(), type=Contents)
            if contents.format == FORMAT:
                found.append(Bygone(folder, contents.objects))
    return found


def job_of(folder: Path) -> ObjectPath:
    """Whose record a folder is; as a store has it, but for the group."""
    _, namespace, plural, name = folder.name.split("_")
    return ObjectPath("", plural, namespace, name)


def _folders(runs: Path) -> list[Path]:
    return sorted(folder for folder in runs.glob("*_*_*_*") if folder.is_dir())


def _superfluous(folders: Iterable[Path], most: int) -> list[Path]:
    """What a newer run of the same job replaces, and all but the newest few."""
    newest = {job_of(folder): folder for folder in folders}
    kept = sorted(newest.values())[-most:]
    return [folder for folder in folders if folder not in kept]


@contextmanager
def _turn(runs: Path) -> Iterator[None]:
    lock = os.open(runs / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


# Logs


def _copy_logs(state: Path, target: Path, uids: set[str]) -> None:
    pods = [pod for pod in StateFolder(state).pods() if pod.uid in uids]
    wanted = [files for pod in pods for files in _attempts(pod)]
    limit = min(LOG_BYTES, ALL_LOG_BYTES // max(1, len(wanted)))
    for files in wanted:
        folder = target / files.folder.relative_to(state)
        folder.mkdir(parents=True, exist_ok=True)
        copy = RunFiles(folder, files.attempt)
        copy.log.write_bytes(tail(files.log, limit))
        for file in (files.log.with_suffix(".json"), files.exit):
            with suppress(FileNotFoundError):
                shutil.copyfile(file, folder / file.name)


def _attempts(pod: PodFolder) -> Iterator[RunFiles]:
    for container in pod.containers():
        yield from pod.runs(container)[-MOST_ATTEMPTS:]


def tail(log: Path, limit: int) -> bytes:
    """The end of a log with its rotated files: whole lines, at most so many bytes."""
    parts: list[bytes] = []
    left, cut = limit, False
    for path in reversed(rotated(log)):
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
