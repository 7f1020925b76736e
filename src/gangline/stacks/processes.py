"""The processes of this machine, as the kernel shows them: parents, states, environments, what each thread waits for."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from gangline.base.host_features import has_linux_features
from gangline.stacks.model import ThreadStack

PROC = Path("/proc")
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "RANK")
"""The variables by which launchers tell a process its rank. Those of MPI come first: they are set closest to it."""
MAX_THREADS = 64
MAX_COMMAND = 200
_PYTHON_PROGRAM = re.compile(r"^(?:python|pypy)[\d.]*t?$")
_WAKEUPS = re.compile(r"^voluntary_ctxt_switches:\s*(\d+)", re.MULTILINE)
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_PSUTIL_STATES = {
    psutil.STATUS_RUNNING: "R",
    psutil.STATUS_SLEEPING: "S",
    psutil.STATUS_DISK_SLEEP: "D",
    psutil.STATUS_STOPPED: "T",
    psutil.STATUS_TRACING_STOP: "t",
    psutil.STATUS_ZOMBIE: "Z",
}


class ProcessFacts(msgspec.Struct, frozen=True):
    """One process, without its frames."""

    pid: int
    parent: int
    state: str = ""
    cpu_seconds: float = 0.0
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    is_python: bool = False
    threads: tuple[ThreadStack, ...] = ()

    @property
    def rank(self) -> int | None:
        """The rank that the environment names."""
        return rank_in(self.environment)


def rank_in(environment: Mapping[str, str]) -> int | None:
    """The rank that an environment names; None if it names none."""
    values = (environment.get(name, "") for name in RANK_VARIABLES)
    return next((int(value) for value in values if value.isascii() and value.isdigit()), None)


def stat_cpu_seconds(fields: Sequence[str]) -> float:
    """The CPU time in /proc/PID/stat, given its fields from the state on."""
    return (int(fields[11]) + int(fields[12])) / _CLOCK_TICKS


def wakeups_in(status: str) -> int | None:
    """How often a thread was woken up, by its file `status`."""
    match = _WAKEUPS.search(status)
    return int(match[1]) if match is not None else None


class ProcessTable:
    """All processes at one moment. Details are read only of those that are asked for."""

    def __init__(self) -> None:
        self._linux = has_linux_features()
        self._parents = self._read_parents()
        self._children: dict[int, list[int]] = {}
        for pid, parent in self._parents.items():
            self._children.setdefault(parent, []).append(pid)

    def _read_parents(self) -> dict[int, int]:
        if not self._linux:
            return {one.pid: one.info["ppid"] or 0 for one in psutil.process_iter(["ppid"])}
        stats = ((int(name), _stat(int(name))) for name in _entries(PROC) if name.isdigit())
        return {pid: int(stat[1]) for pid, stat in stats if stat}

    def tree(self, root: int) -> list[int]:
        """A process and its descendants, parents first; none if it has ended."""
        pids = [root] if root in self._parents else []
        for pid in pids:
            pids.extend(sorted(self._children.get(pid, ())))
        return pids

    def marked(self, marks: Iterable[str]) -> dict[str, list[int]]:
        """By mark, the processes that have it in their environment: `NAME=value`. For commands that others started."""
        texts = {mark.encode(): mark for mark in marks}
        pids: dict[str, list[int]] = {mark: [] for mark in texts.values()}
        for pid in sorted(self._parents) if self._linux and texts else ():
            for text in texts.keys() & _environment(pid):
                pids[texts[text]].append(pid)
        return pids

    def facts(self, pid: int) -> ProcessFacts | None:
        """What the kernel says of a process; None if it has ended."""
        if not self._linux:
            return _psutil_facts(pid)
        stat = _stat(pid)
        if not stat:
            return None
        folder = PROC / str(pid)
        words = tuple(part.decode(errors="replace") for part in _read(folder / "cmdline").rstrip(b"\0").split(b"\0"))
        pairs = (part.decode(errors="replace").partition("=") for part in _read(folder / "environ").split(b"\0"))
        return ProcessFacts(
            pid,
            int(stat[1]),
            stat[0],
            stat_cpu_seconds(stat),
            words,
            {name: value for name, _, value in pairs if name in RANK_VARIABLES},
            _is_python(folder),
            tuple(_kernel_threads(folder)),
        )


def ptrace_scope() -> str:
    """Who may read a process, as the kernel's Yama has it: 0 its user, 1 its ancestors; empty without Yama."""
    return _read(PROC / "sys" / "kernel" / "yama" / "ptrace_scope").decode().strip()


def environment_value(pid: int, name: str) -> str:
    """A variable in the environment that a process was started with; empty if it is not there or cannot be read."""
    start = f"{name}=".encode()
    values = (line.removeprefix(start) for line in _environment(pid) if line.startswith(start))
    return next((value.decode(errors="replace") for value in values), "")


def _environment(pid: int) -> set[bytes]:
    return set(_read(PROC / str(pid) / "environ").split(b"\0"))


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command's name: the state is the first. None for a process that ended."""
    return _read(PROC / str(pid) / "stat").rpartition(b")")[2].decode(errors="replace").split()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _is_python(folder: Path) -> bool:
    try:
        program = (folder / "exe").readlink().name
    except OSError:
        return False
    return bool(_PYTHON_PROGRAM.match(program.removesuffix(" (deleted)"))) or b"libpython" in _read(folder / "maps")


def _kernel_threads(folder: Path) -> Iterable[ThreadStack]:
    """The threads as the kernel shows them: whether they run, and in which of its functions they wait."""
    try:
        ids = sorted(map(int, _entries(folder / "task")))[:MAX_THREADS]
    except OSError:
        return
    for number in ids:
        task = folder / "task" / str(number)
        state = _read(task / "stat").rpartition(b")")[2].split()[:1]
        channel = _read(task / "wchan").decode(errors="replace").strip("\0\n ")
        name = _read(task / "comm").decode(errors="replace").strip()
        yield ThreadStack(
            (),
            name,
            number,
            active=state == [b"R"],
            wait_channel="" if channel in ("0", "") else channel,
            wakeups=wakeups_in(_read(task / "status").decode(errors="replace")),
        )


def _psutil_facts(pid: int) -> ProcessFacts | None:
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            words, times = tuple(process.cmdline()), process.cpu_times()
            environment = {}
            with suppress(psutil.Error, OSError):
                environment = {name: value for name, value in process.environ().items() if name in RANK_VARIABLES}
            program = Path(words[0]).name if words else process.name()
            state = _PSUTIL_STATES.get(process.status(), "S")
            return ProcessFacts(
                pid,
                process.ppid(),
                state,
                times.user + times.system,
                words,
                environment,
                bool(_PYTHON_PROGRAM.match(program.lower())),
                (ThreadStack((), "", pid, active=state == "R"),),
            )
    except psutil.Error:
        return None


def _entries(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]
