"""The node's records on disk of the processes it started, by which a restarted node finds them again.

::

    <state>/pods/<namespace>_<name>_<uid>/<container>/<attempt>.json   written before the start
                                                      <attempt>.lock   held by the shim as long as it lives
                                                      <attempt>.run    pid and time, written by the shim
                                                      <attempt>.exit   how the process ended, written by the shim
                                                      <attempt>.note   why the node killed the process
                                                      <attempt>.progress   the last line that reports progress
                                                      <attempt>.log    CRI lines; .log.1 and so on when rotated

Namespaces, names and uids contain no underscore, so the folder's name can be parsed.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from gangline.api.meta import Key
from gangline.base.files import open_regular, private_folder, write_private
from gangline.kube.config.access import PlaneAccess

S = TypeVar("S", bound=msgspec.Struct)

KEPT_RUNS = 2
"""How many runs of a container keep their files, as in the kubelet: the newest and the one before."""


class RunRecord(msgspec.Struct, frozen=True):
    """What the node decides before it starts a process."""

    id: str
    attempt: int
    streak: int = 0
    # Ids of the extended resources that the run has, by resource name. Earlier versions wrote numbers.
    devices: Mapping[str, tuple[str | int, ...]] = {}
    # The run's folder for temporary files, created and removed by the shim. Outside the pod's folder, because paths of
    # sockets must be short.
    scratch: str = ""
    # The container engine that runs it, `podman` or `docker`; empty for a process of this machine.
    engine: str = ""


class StartRecord(msgspec.Struct, frozen=True):
    """What the shim writes when the process runs."""

    shim: int
    pid: int
    at: float


class ExitRecord(msgspec.Struct, frozen=True):
    """What the shim writes at the end. A negative code is a signal; `failed` says why the process never started."""

    at: float
    code: int = 0
    failed: str = ""
    # The container engine reports that the container ran out of memory.
    oom: bool = False

    @property
    def finished_at(self) -> datetime:
        return datetime.fromtimestamp(self.at, UTC)


class KillReason(msgspec.Struct, frozen=True):
    """Why the node itself killed a process."""

    reason: str
    message: str = ""
    # The exit code to report instead of that of the process, for drills.
    exit_code: int | None = None


class ShimLock:
    """A lock file that a shim holds while it lives. No other process can hold it, so a reused pid does no harm."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def acquire(self) -> int:
        """A descriptor that holds the lock, to be inherited by the shim and then closed by the caller."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor

    def is_held(self) -> bool:
        """Whether the shim lives."""
        try:
            descriptor = os.open(self._path, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            return False
        finally:
            os.close(descriptor)


class RunFiles:
    """The files of one run of a container."""

    def __init__(self, folder: Path, attempt: int) -> None:
        self.folder, self.attempt = folder, attempt
        self.log_file = self._file("log")
        self.start_file, self.exit_file = self._file("run"), self._file("exit")
        # Where the shim writes the process's last progress report.
        self.progress_file = self._file("progress")
        # Where the shim writes the progress bar that the process draws in one line, as long as it does.
        self.bar_file = self._file("bar")
        # Where the process writes its termination message.
        self.message_file = self._file("message")
        self.lock = ShimLock(self._file("lock"))

    def begin(self, record: RunRecord) -> None:
        """Record that the run is about to start, and remove what an earlier try of the same attempt left."""
        private_folder(self.folder)
        for ending in ("run", "exit", "note", "progress", "bar"):
            self._file(ending).unlink(missing_ok=True)
        self.message_file.touch(mode=0o600)
        self._write("json", record)

    def run_record(self) -> RunRecord | None:
        return _read_record(self._file("json"), RunRecord)

    def start_record(self) -> StartRecord | None:
        return _read_record(self.start_file, StartRecord)

    def exit_record(self) -> ExitRecord | None:
        return _read_record(self.exit_file, ExitRecord)

    def kill_reason(self) -> KillReason | None:
        return _read_record(self._file("note"), KillReason)

    def write_kill_reason(self, reason: KillReason) -> None:
        """Record why the node kills the process, before it does. The first reason stays."""
        if self.kill_reason() is None:
            self._write("note", reason)

    def termination_message(self, limit: int = 4096) -> str:
        """The end of what the process wrote, as the kubelet reads it."""
        with suppress(OSError), open_regular(self.message_file) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
            return file.read(limit).decode(errors="replace")
        return ""

    def remove_scratch(self) -> None:
        """Remove the temporary files that a killed shim left behind."""
        record = self.run_record()
        if record is not None and record.scratch:
            shutil.rmtree(record.scratch, ignore_errors=True)

    def remove(self) -> None:
        """Remove all files of this run."""
        self.remove_scratch()
        for file in self.folder.glob(f"{self.attempt}.*"):
            file.unlink(missing_ok=True)

    def _write(self, ending: str, value: msgspec.Struct) -> None:
        write_private(self._file(ending), msgspec.json.encode(value))

    def _file(self, ending: str) -> Path:
        return self.folder / f"{self.attempt}.{ending}"


class PodFolder:
    """Everything that the node keeps of one pod."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def uid(self) -> str:
        return self.path.name.rpartition("_")[2]

    @property
    def key(self) -> Key:
        namespace, _, rest = self.path.name.partition("_")
        return Key(namespace, rest.rpartition("_")[0])

    @property
    def volumes_folder(self) -> Path:
        # The underscore keeps it apart from containers, whose names have none.
        return self.path / "_volumes"

    def containers(self) -> Iterator[str]:
        for child in sorted(self.path.glob("*")):
            if child.is_dir() and child != self.volumes_folder:
                yield child.name

    def runs(self, container: str) -> list[RunFiles]:
        """The runs of a container, oldest first."""
        attempts = sorted(int(file.stem) for file in (self.path / container).glob("*.json"))
        return [RunFiles(self.path / container, attempt) for attempt in attempts]

    def remove_old_runs(self, container: str) -> None:
        """Remove the runs of a container but the newest, whose logs and exits are read: those of a crash loop add up."""
        for files in self.runs(container)[:-KEPT_RUNS]:
            if not files.lock.is_held():
                files.remove()

    def all_runs(self) -> Iterator[RunFiles]:
        """The runs of every container."""
        for container in self.containers():
            yield from self.runs(container)

    def run_files(self, container: str, attempt: int) -> RunFiles:
        return RunFiles(self.path / container, attempt)

    def remove_volumes(self) -> None:
        shutil.rmtree(self.volumes_folder, ignore_errors=True)

    def write_kubeconfig(self, container: str, access: PlaneAccess, token_file: Path | None) -> Path:
        """Write the kubeconfig of a container's processes: they are its service account. As JSON, which is YAML too.

        Without a token file it has no credentials.
        """
        private_folder(self.path)
        # Earlier versions wrote the administrator's token there.
        (self.path / "_kubeconfig").unlink(missing_ok=True)
        file = self.path / f"_{container}.kubeconfig"
        user = {"tokenFile": str(token_file)} if token_file is not None else {}
        write_private(file, msgspec.json.encode(access.kubeconfig(self.key.namespace, user)))
        return file

    def remove(self) -> None:
        for files in self.all_runs():
            files.remove_scratch()
        shutil.rmtree(self.path, ignore_errors=True)


class StateFolder:
    """The folders of all pods of a node."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._pods = state / "pods"

    def pod(self, key: Key, uid: str) -> PodFolder:
        return PodFolder(self._pods / f"{key.namespace}_{key.name}_{uid}")

    def claim_folder(self, claim: Key) -> Path:
        """The storage of a PersistentVolumeClaim."""
        return self._state / "claims" / f"{claim.namespace}_{claim.name}"

    def write_script(self, name: str, text: str) -> Path:
        """Write an executable of the node's own, atomically, unless it is there already. Returns its path."""
        file = self._state / name
        if not file.exists() or file.read_text() != text:
            private_folder(self._state)
            write_private(file, text.encode(), 0o700)
        return file.absolute()

    def pods(self) -> list[PodFolder]:
        return [PodFolder(path) for path in sorted(self._pods.glob("*_*_*")) if path.is_dir()]


def _read_record(path: Path, model: type[S]) -> S | None:
    try:
        with open_regular(path) as file:
            return msgspec.json.decode(file.read(), type=model)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None
