"""One run of a container as one process: started under a shim, awaited, stopped with all its children."""

import asyncio
import marshal
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import msgspec
import psutil

from gangline.base.clock import Clock
from gangline.base.host_features import has_linux_features, signal_group
from gangline.base.tasks import time_limit
from gangline.node.checkpoint import RunFiles, RunRecord
from gangline.node.runtime import shim, shim_attach
from gangline.node.runtime.runtime import Interaction, ProcessSpec, StartFailed

MARK_VARIABLE = shim.MARK_VARIABLE
"""In the environment of every process of a container: by it even processes that left the session are found."""
KILL_PATIENCE = timedelta(seconds=2)
"""How long the shim may take to kill all processes before the node does it."""
RUN_SHIM = "import marshal, sys; exec(marshal.load(sys.stdin.buffer))"
"""What the interpreter of a shim runs: the code comes before the `ShimSpec` on standard input."""
POLL_INTERVAL = timedelta(milliseconds=100)
"""How often an adopted process is polled: it is not our child, so its end sends no signal."""


def resolve_program(spec: ProcessSpec) -> str:
    """The program of the command, as `execvp` finds it. Raises `StartFailed`."""
    if not spec.command:
        raise StartFailed("no command: the pod names none, and an image's own is not known in process mode")
    name = spec.command[0]
    if "/" in name:
        path = spec.folder / name
        if not path.exists():
            raise StartFailed(f'exec: "{name}": no such file or directory')
        return str(path)
    program = shutil.which(name, path=spec.env.get("PATH", os.defpath))
    if program is None:
        raise StartFailed(f'exec: "{name}": executable file not found in $PATH')
    return program


class SupervisedProcess:
    """A process under its shim. Signals go through the shim, which knows whether the process still exists."""

    def __init__(self, files: RunFiles, clock: Clock, *, pid: int, shim: int, report: int | None) -> None:
        self.files, self.pid, self.shim_pid = files, pid, shim
        self._clock = clock
        # Open as long as a shim lives that we started. For an adopted shim None: its lock tells whether it lives.
        self._shim_pipe = report
        # When the process itself ended; shim and children live on for a moment. None if nobody could see it.
        self.ended_at: datetime | None = None
        self._end_descriptor: int | None = None
        self._watch_end()

    def _watch_end(self) -> None:
        """Note when the process ends. The kernel keeps the order of ends, however late the loop looks at them."""
        if sys.platform == "linux":
            # If it has ended already, and elsewhere, the shim's own record has to do.
            with suppress(OSError):
                self._end_descriptor = os.pidfd_open(self.pid)
                asyncio.get_running_loop().add_reader(self._end_descriptor, self._on_end)

    def _on_end(self) -> None:
        self.ended_at = self._clock.now()
        self._unwatch_end()

    def _unwatch_end(self) -> None:
        if self._end_descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._end_descriptor)
            os.close(self._end_descriptor)
            self._end_descriptor = None

    async def wait(self) -> None:
        """Wait until process, shim and all children have ended. Cancel-safe; for one waiter at a time."""
        if self._shim_pipe is None:
            while self.files.lock.is_held():
                await self._clock.sleep(POLL_INTERVAL)
            return
        while await _read_when_ready(self._shim_pipe):
            pass
        self.abandon()
        _reap(self.shim_pid)

    def terminate(self) -> None:
        """Send TERM to the process group."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process group."""
        self._signal(signal.SIGUSR1)

    async def end(self) -> None:
        """Kill the process group, and wait as `wait` does, whatever the processes of the container do to the shim."""
        self.kill()
        while True:
            try:
                async with time_limit(KILL_PATIENCE, self._clock):
                    await self.wait()
                return
            except TimeoutError:
                await self.kill_all()

    async def kill_all(self) -> None:
        """Kill the processes below the shim without its help: one of them may keep it from working."""
        if self.files.lock.is_held():
            await asyncio.to_thread(_kill_descendants, self.shim_pid)
            self.kill()

    def send_signal(self, number: int) -> None:
        """Send a signal to the process group."""
        if self.files.lock.is_held():
            signal_group(self.pid, signal.Signals(number))

    def abandon(self) -> None:
        """Let the process outlive this node: a later node adopts it."""
        self._unwatch_end()
        if self._shim_pipe is not None:
            os.close(self._shim_pipe)
            self._shim_pipe = None

    def _signal(self, number: signal.Signals) -> None:
        if self.files.lock.is_held():
            with suppress(ProcessLookupError):
                os.kill(self.shim_pid, number)
                # A process of the container may have stopped it.
                os.kill(self.shim_pid, signal.SIGCONT)


async def launch(spec: ProcessSpec, record: RunRecord, files: RunFiles, clock: Clock) -> SupervisedProcess:
    """Record the run, and start its process. Raises `StartFailed`. When cancelled, it leaves no process."""
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
        # This ends a shim that does not handle signals yet; later it ends the process that the shim started.
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
    """The process that an earlier node started; None if its shim is dead or has not started it yet."""
    start = files.start_record()
    if start is None or not files.lock.is_held():
        return None
    return SupervisedProcess(files, clock, pid=start.pid, shim=start.shim, report=None)


async def wait_for_start(files: RunFiles, clock: Clock) -> None:
    """Wait while a shim of an earlier node has not started its process yet."""
    while files.start_record() is None and files.exit_record() is None and files.lock.is_held():
        await clock.sleep(POLL_INTERVAL)


async def end_strays(run_ids: Collection[str], clock: Clock) -> None:
    """Kill every process that has the marks of one of these runs. Returns when none is left."""
    if not run_ids:
        return
    marks = shim.run_marks(list(run_ids))
    processes = shim.all_processes(psutil_folder())
    protected = {os.getpid()}
    while await asyncio.to_thread(shim.kill_marked, marks, processes, protected):
        await clock.sleep(POLL_INTERVAL)


def psutil_folder() -> str:
    """Where a bare interpreter finds psutil; empty where it needs none."""
    return "" if has_linux_features() else str(Path(psutil.__file__).parent.parent)


def mark_process(pid: int, run_id: str) -> None:
    """Mark a command that was executed in a container, and what it starts from now on, as a process of the run."""
    if sys.platform == "linux" and has_linux_features():
        limit = shim.limit_mark(run_id)
        # It has ended, or it runs in a container of a container.
        with suppress(OSError, ValueError):
            resource.prlimit(pid, shim.RLIMIT_RTTIME, (limit, limit))


def _kill_descendants(pid: int) -> None:
    with suppress(psutil.Error):
        for process in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):
                process.kill()


def _reap(shim_pid: int) -> None:
    """Wait for a child that is ending: its pipe is closed already."""
    with suppress(ChildProcessError):
        os.waitpid(shim_pid, 0)


def _spawn_shim(spec: ProcessSpec, program: str, record: RunRecord, files: RunFiles) -> tuple[int, int]:
    lock = files.lock.acquire()
    report, report_end = os.pipe()
    try:
        os.set_inheritable(lock, True)  # noqa: FBT003
        # Not a named file: the environment may hold secrets. Not a pipe: the spec may exceed its buffer.
        with tempfile.TemporaryFile() as stdin:
            stdin.write(_module_code(shim))
            marshal.dump(_shim_spec(spec, program, record, files, lock), stdin)
            stdin.flush()
            stdin.seek(0)
            actions = [
                (os.POSIX_SPAWN_DUP2, stdin.fileno(), 0),
                (os.POSIX_SPAWN_DUP2, report_end, 1),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ]
            command = [sys.executable, "-I", "-S", "-c", RUN_SHIM, "gangline-shim"]
            pid = os.posix_spawn(sys.executable, command, {}, file_actions=actions)
    except BaseException:
        os.close(report)
        raise
    finally:
        os.close(lock)
        os.close(report_end)
    return pid, report


@cache
def _module_code(module: ModuleType) -> bytes:
    """A module of the shim, compiled. As a script it would be compiled at every start, which takes as long as the rest."""
    return marshal.dumps(SourceFileLoader(module.__name__, str(module.__file__)).get_code(module.__name__))


def _shim_spec(spec: ProcessSpec, program: str, record: RunRecord, files: RunFiles, lock: int) -> dict[str, object]:
    return {
        "program": program,
        "command": spec.command,
        "env": {**spec.env, MARK_VARIABLE: record.id},
        "folder": str(spec.folder),
        "mark": f"{MARK_VARIABLE}={record.id}",
        "limit_mark": shim.limit_mark(record.id),
        "cgroup": [str(path) for path in spec.cgroup],
        "log": str(files.log_file),
        "max_bytes": spec.max_log_bytes,
        "max_files": spec.max_log_files,
        "run": str(files.start_file),
        "exit": str(files.exit_file),
        "lock": lock,
        "progress": str(files.progress_file),
        "bar": str(files.bar_file),
        "scratch": record.scratch,
        "psutil_folder": psutil_folder(),
        "isolation": None if spec.isolation is None else msgspec.structs.asdict(spec.isolation),
        "kill": spec.kill or None,
        "inspect": spec.inspect or None,
        "remove": spec.remove or None,
        "attach": _attach_spec(spec.interaction, record),
    }


def attach_socket(record: RunRecord) -> str:
    """Where the shim of a run serves clients that attach. Beside the log it would be too long for a socket."""
    return f"{record.scratch}/.attach"


def _attach_spec(interaction: Interaction | None, record: RunRecord) -> dict[str, object] | None:
    if interaction is None or not record.scratch:
        return None
    return {"code": _module_code(shim_attach), "socket": attach_socket(record), **msgspec.structs.asdict(interaction)}


async def _read_when_ready(descriptor: int) -> bytes:
    """The next data of a descriptor; empty at its end."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def on_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, on_ready)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, 4096)
