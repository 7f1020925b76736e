"""The node's memory on disk: which processes it started, so that a restarted node finds them again.

::

    <state>/pods/<namespace>_<name>_<uid>/<container>/<attempt>.json   written before the start
                                                      <attempt>.lock   held by the shim as long as it lives
                                                      <attempt>.run    pid and time, written by the shim
                                                      <attempt>.exit   how it ended, written by the shim
                                                      <attempt>.note   why the node killed it
                                                      <attempt>.progress   the last line that reports progress
                                                      <attempt>.log    CRI lines; .log.1 and so on when rotated

Namespaces, names and uids have no underscore, so the folder's name can be read back.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from gangline.api.meta import Key
from gangline.base.files import write_private
from gangline.kube.config.access import PlaneAccess

S = TypeVar("S", bound=msgspec.Struct)


class RunRecord(msgspec.Struct, frozen=True):
    """What the node decides before it starts a process."""

    id: str
    attempt: int
    streak: int = 0
    # Extended resources given to it, by name: their numbers.
    devices: dict[str, tuple[int, ...]] = {}
    # Its folder for temporary files, made by the shim and removed by it at the end. Elsewhere, because names of sockets are short.
    scratch: str = ""


class StartRecord(msgspec.Struct, frozen=True):
    """What the shim says once the process runs."""

    shim: int
    pid: int
    at: float


class ExitRecord(msgspec.Struct, frozen=True):
    """What the shim says at the end. A negative code is a signal; `failed` says why it never started."""

    at: float
    code: int = 0
    failed: str = ""
    errno: str = ""
    # The container's runtime says that it had too much memory.
    oom: bool = False

    @property
    def finished_at(self) -> datetime:
        return datetime.fromtimestamp(self.at, UTC)


class KillReason(msgspec.Struct, frozen=True):
    """Why the node itself ended a process."""

    reason: str
    message: str = ""


class RunFiles:
    """The files of one run of a container."""

    def __init__(self, folder: Path, attempt: int) -> None:
        self.folder, self.attempt = folder, attempt

    @property
    def log_file(self) -> Path:
        return self._file("log")

    @property
    def start_file(self) -> Path:
        return self._file("run")

    @property
    def exit_file(self) -> Path:
        return self._file("exit")

    @property
    def progress_file(self) -> Path:
        """Where the shim writes what the process last reported."""
        return self._file("progress")

    @property
    def message_file(self) -> Path:
        """Where the process writes its termination message."""
        return self._file("message")

    def begin(self, record: RunRecord) -> None:
        """Write down that it is about to be started; what an earlier attempt at the same left is removed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for ending in ("run", "exit", "note", "progress"):
            self._file(ending).unlink(missing_ok=True)
        self.message_file.touch()
        self._write("json", record)

    def acquire_lock(self) -> int:
        """A descriptor that holds the lock, to be handed to the shim and closed here."""
        descriptor = os.open(self._file("lock"), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return descriptor

    def is_alive(self) -> bool:
        """Whether the shim lives. Nobody else can hold its lock, so a pid used again does not fool us."""
        try:
            descriptor = os.open(self._file("lock"), os.O_RDWR)
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

    def run_record(self) -> RunRecord | None:
        return _read_record(self._file("json"), RunRecord)

    def start_record(self) -> StartRecord | None:
        return _read_record(self.start_file, StartRecord)

    def exit_record(self) -> ExitRecord | None:
        return _read_record(self.exit_file, ExitRecord)

    def kill_reason(self) -> KillReason | None:
        return _read_record(self._file("note"), KillReason)

    def write_kill_reason(self, note: KillReason) -> None:
        """Write down why it is being killed, before that is done. The first explanation stays."""
        if self.kill_reason() is None:
            self._write("note", note)

    def termination_message(self, limit: int = 4096) -> str:
        with suppress(OSError), self.message_file.open("rb") as file:
            return file.read(limit).decode(errors="replace")
        return ""

    def remove_scratch(self) -> None:
        """Remove the temporary files that a shim left behind because it was killed."""
        record = self.run_record()
        if record is not None and record.scratch:
            shutil.rmtree(record.scratch, ignore_errors=True)

    def remove(self) -> None:
        """Remove everything of this run."""
        self.remove_scratch()
        for file in self.folder.glob(f"{self.attempt}.*"):
            file.unlink(missing_ok=True)

    def _write(self, ending: str, value: msgspec.Struct) -> None:
        new = self._file(f"{ending}.new")
        new.write_bytes(msgspec.json.encode(value))
        new.replace(self._file(ending))

    def _file(self, ending: str) -> Path:
        return self.folder / f"{self.attempt}.{ending}"


class PodFolder:
    """Everything the node keeps of one pod."""

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
        # A container cannot have this name: it has an underscore.
        return self.path / "_volumes"

    def containers(self) -> Iterator[str]:
        for child in sorted(self.path.glob("*")):
            if child.is_dir() and child != self.volumes_folder:
                yield child.name

    def runs(self, container: str) -> list[RunFiles]:
        """Oldest first."""
        attempts = sorted(int(file.stem) for file in (self.path / container).glob("*.json"))
        return [RunFiles(self.path / container, attempt) for attempt in attempts]

    def run_files(self, container: str, attempt: int) -> RunFiles:
        return RunFiles(self.path / container, attempt)

    def remove_volumes(self) -> None:
        shutil.rmtree(self.volumes_folder, ignore_errors=True)

    def write_kubeconfig(self, access: PlaneAccess, namespace: str) -> Path:
        """A file that leads to the plane, for the pod's processes. As JSON, which is YAML too."""
        self.path.mkdir(parents=True, exist_ok=True)
        file = self.path / "_kubeconfig"
        write_private(file, msgspec.json.encode(access.kubeconfig(namespace)))
        return file

    def remove(self) -> None:
        for container in self.containers():
            for files in self.runs(container):
                files.remove_scratch()
        shutil.rmtree(self.path, ignore_errors=True)


class StateFolder:
    """All pods' folders."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._pods = state / "pods"
        self.claims_folder = state / "claims"

    def pod(self, key: Key, uid: str) -> PodFolder:
        return PodFolder(self._pods / f"{key.namespace}_{key.name}_{uid}")

    def write_script(self, name: str, text: str) -> Path:
        """An executable of the node's own. Written once, whole."""
        file = self._state / name
        if not file.exists() or file.read_text() != text:
            self._state.mkdir(parents=True, exist_ok=True)
            write_private(file, text.encode(), 0o700)
        return file.absolute()

    def pods(self) -> list[PodFolder]:
        return [PodFolder(path) for path in sorted(self._pods.glob("*_*_*")) if path.is_dir()]


def _read_record(path: Path, model: type[S]) -> S | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=model)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None
