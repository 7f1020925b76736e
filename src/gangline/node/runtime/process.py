"""One run of a container as one process: started under a shim, waited for, stopped with all its children."""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import msgspec

from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.node.checkpoint import RunFiles, RunRecord
from gangline.node.network.namespaces import Isolation
from gangline.node.runtime import shim
from gangline.node.runtime.paths import PathMapping

MARK_VARIABLE = "GANGLINE_CONTAINER"
"""Environment of everything a container starts: by it even what left its session is found."""
POLL_INTERVAL = timedelta(milliseconds=100)
"""How often an adopted process is looked at: it is nobody's child, so nothing tells of its end."""


class StartFailed(GanglineError):
    """The command cannot be run. The message says why, in one line."""


class ProcessSpec(msgspec.Struct, frozen=True):
    """What to run."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    folder: Path
    # The `cgroup.procs` files to enter before the command begins.
    cgroup: tuple[Path, ...] = ()
    max_log_bytes: int = 10 * 2**20
    max_log_files: int = 5
    # As command and environment were mapped, for whatever else runs beside it.
    paths: PathMapping = PathMapping({})
    # Namespaces to enter before the command begins.
    isolation: Isolation | None = None
    # For a command that is only the client of a container: what kills the container, what tells (by `true` on its
    # output) whether it ran out of memory, and what removes it.
    kill: tuple[str, ...] = ()
    inspect: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


def resolve_program(spec: ProcessSpec) -> str:
    """The file that the command names, as `execvp` finds it. Raises `StartFailed`."""
    if not spec.command:
        raise StartFailed("no command: the pod names none, and an image's own is not known in process mode")
    name = spec.command[0]
    if "/" in name:
        path = spec.folder / name
        if not path.exists():
            raise StartFailed(f'exec: "{name}": no such file or directory')
        return str(path)
    found = shutil.which(name, path=spec.env.get("PATH", os.defpath))
    if found is None:
        raise StartFailed(f'exec: "{name}": executable file not found in $PATH')
    return found


class SupervisedProcess:
    """A process under its shim. Signals go to the shim, which knows whether the process is still there."""

    def __init__(self, files: RunFiles, clock: Clock, *, pid: int, shim: int, report: int | None) -> None:
        self.files, self.pid = files, pid
        self._clock, self._shim = clock, shim
        # Open as long as the shim lives, if we started it. An adopted one is known by its lock.
        self._shim_pipe = report

    async def wait(self) -> None:
        """Wait until process, shim and all children are gone. Cancel-safe; for one waiter at a time."""
        if self._shim_pipe is None:
            while self.files.is_alive():
                await self._clock.sleep(POLL_INTERVAL)
            return
        while await _read_when_ready(self._shim_pipe):
            pass
        self.abandon()
        _reap(self._shim)

    def terminate(self) -> None:
        """Ask the whole process group to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the whole process group."""
        self._signal(signal.SIGUSR1)

    def freeze(self, *, frozen: bool) -> None:
        """Let the whole process group stand still, or go on."""
        if self.files.is_alive():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGSTOP if frozen else signal.SIGCONT)

    def abandon(self) -> None:
        """Let it run on without us: a later node adopts it."""
        if self._shim_pipe is not None:
            os.close(self._shim_pipe)
            self._shim_pipe = None

    def _signal(self, number: signal.Signals) -> None:
        if self.files.is_alive():
            with suppress(ProcessLookupError):
                os.kill(self._shim, number)


async def launch(spec: ProcessSpec, record: RunRecord, files: RunFiles, clock: Clock) -> SupervisedProcess:
    """Write down what is about to happen, and start it. Raises `StartFailed`; cancelled, it leaves no process."""
    program = resolve_program(spec)
    files.begin(record)
    shim_pid, report = _spawn_shim(spec, program, record, files)
    line = b""
    try:
        while not line.endswith(b"\n"):
            data = await _read_when_ready(report)
            if not data:
                break
            line += data
    except BaseException:
        # Before the shim listens this ends it; afterwards it ends what the shim started.
        os.kill(shim_pid, signal.SIGUSR1)
        os.close(report)
        _reap(shim_pid)
        raise
    word, _, rest = line.decode(errors="replace").strip().partition(" ")
    if word == "started":
        return SupervisedProcess(files, clock, pid=int(rest), shim=shim_pid, report=report)
    os.close(report)
    _reap(shim_pid)
    raise StartFailed(f"exec: {rest}" if rest else "the supervisor ended before the command began")


def adopt(files: RunFiles, clock: Clock) -> SupervisedProcess | None:
    """The process that an earlier node started, if it lives."""
    running = files.start_record()
    if running is None or not files.is_alive():
        return None
    return SupervisedProcess(files, clock, pid=running.pid, shim=running.shim, report=None)


async def wait_for_start(files: RunFiles, clock: Clock) -> None:
    """Wait while a shim has yet to start its process: the node died between the two."""
    while files.start_record() is None and files.exit_record() is None and files.is_alive():
        await clock.sleep(POLL_INTERVAL)


def _reap(shim_pid: int) -> None:
    """Take note of a child that is ending: its pipe is closed already."""
    with suppress(ChildProcessError):
        os.waitpid(shim_pid, 0)


def _spawn_shim(spec: ProcessSpec, program: str, record: RunRecord, files: RunFiles) -> tuple[int, int]:
    lock = files.acquire_lock()
    report, reports = os.pipe()
    try:
        os.set_inheritable(lock, True)  # noqa: FBT003
        # Not a named file: the environment may hold secrets. Not a pipe: it may be longer than one holds.
        with tempfile.TemporaryFile() as given:
            given.write(msgspec.json.encode(_shim_spec(spec, program, record, files, lock)))
            given.seek(0)
            actions = [
                (os.POSIX_SPAWN_DUP2, given.fileno(), 0),
                (os.POSIX_SPAWN_DUP2, reports, 1),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ]
            command = [sys.executable, "-I", "-S", str(Path(shim.__file__))]
            pid = os.posix_spawn(sys.executable, command, {}, file_actions=actions)
    except BaseException:
        os.close(report)
        raise
    finally:
        os.close(lock)
        os.close(reports)
    return pid, report


def _shim_spec(spec: ProcessSpec, program: str, record: RunRecord, files: RunFiles, lock: int) -> dict[str, object]:
    return {
        "program": program,
        "command": spec.command,
        "env": {**spec.env, MARK_VARIABLE: record.id},
        "folder": str(spec.folder),
        "mark": f"{MARK_VARIABLE}={record.id}",
        "cgroup": [str(path) for path in spec.cgroup],
        "log": str(files.log_file),
        "max_bytes": spec.max_log_bytes,
        "max_files": spec.max_log_files,
        "run": str(files.start_file),
        "exit": str(files.exit_file),
        "lock": lock,
        "progress": str(files.progress_file),
        "scratch": record.scratch,
        "isolation": None if spec.isolation is None else msgspec.structs.asdict(spec.isolation),
        "kill": spec.kill or None,
        "inspect": spec.inspect or None,
        "remove": spec.remove or None,
    }


async def _read_when_ready(descriptor: int) -> bytes:
    """What there is to read, as soon as there is something; nothing at the end."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, tell)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, 4096)
