"""The small process between the node and a container's process, as containerd's shim. It outlives the node.

`process.launch` starts it, one per run of a container, with a bare interpreter: it imports only the standard library,
and little of that. It reads a `ShimSpec` from standard input, runs the command in its own session,
writes the command's output into a log file as CRI lines, waits for its end, kills every process that is left of it,
and records the exit. The newest line that reports progress is also written to a separate file, so that a reader of the
progress need not read the log. On standard output the shim sends the node one line, `started PID` or `failed TEXT`, and
keeps the pipe open until it ends. A lock that it inherits tells the same to a restarted node.

SIGTERM is forwarded to the process group; SIGUSR1 kills the group. A container with an input or a terminal can be
attached to: `shim_attach.py`.

How processes are found that left the group is decision 27. In short: on Linux the shim is the subreaper of all that the
command starts, so the kernel makes their orphans its children. All of them have two marks by which others find them
when the shim was killed: a variable in the environment, and a resource limit that no program reaches.

`shim.py end PSUTIL_FOLDER RUN_ID...` kills all processes that have the marks of these runs.
"""

# pathlib, contextlib, json and signal are slow to import, and a bare interpreter has no Clock.
# ruff: noqa: PTH102, PTH105, PTH106, PTH108, PTH110, PTH123, PTH208, SIM105, TID251

import _signal as signal  # type: ignore[import-not-found]
import marshal
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gangline.node.runtime.shim_attach import AttachServer

CHUNK_BYTES = 65536
MAX_LINE_BYTES = 16384
MAX_BAR_BYTES = 400
DRAIN_SECONDS = 1.0
POLL_SECONDS = 0.002
# The mark of a progress report, and the shortest time between two writes of the newest report.
PROGRESS_MARK = b'"progress"'
PROGRESS_WRITE_SECONDS = 0.5
# Linux, from sched.h and mount.h.
CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWUTS, CLONE_NEWNS = 0x10000000, 0x40000000, 0x04000000, 0x00020000
MS_BIND, MS_REC, MS_SLAVE = 4096, 16384, 1 << 19
# Linux, from prctl.h and resource.h.
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
RLIMIT_RTTIME = 15
RTTIME_LINE = b"Max realtime timeout"
MARK_VARIABLE = "GANGLINE_CONTAINER"


def private_opener(path: str, flags: int) -> int:
    """As in `base.files`, which a bare interpreter does not import."""
    return os.open(path, flags, 0o600)


class ShimSpec:
    """The run, as `process.launch` encodes it."""

    def __init__(
        self,
        *,
        program: str,
        command: list[str],
        env: dict[str, str],
        folder: str,
        mark: str,
        limit_mark: int,
        cgroup: list[str],
        log: str,
        max_bytes: int,
        max_files: int,
        run: str,
        exit: str,  # noqa: A002
        lock: int,
        progress: str = "",
        bar: str = "",
        scratch: str = "",
        psutil_folder: str = "",
        isolation: "dict[str, str] | None" = None,
        kill: "list[str] | None" = None,
        inspect: "list[str] | None" = None,
        remove: "list[str] | None" = None,
        attach: "dict[str, object] | None" = None,
    ) -> None:
        self.program, self.command, self.env, self.folder = program, command, env, folder
        self.mark, self.limit_mark, self.cgroup, self.lock = mark, limit_mark, cgroup, lock
        self.log, self.max_bytes, self.max_files = log, max_bytes, max_files
        self.run, self.exit, self.progress, self.bar = run, exit, progress, bar
        self.scratch, self.isolation, self.psutil_folder = scratch, isolation, psutil_folder
        self.kill, self.inspect, self.remove = kill, inspect, remove
        # For a container with an input or a terminal: the code that serves it, its socket, stdin, tty and once.
        self.attach = attach

    @property
    def is_subreaper(self) -> bool:
        """Whether the shim is the parent of all orphans. Those of an engine's client belong to the engine."""
        return not self.psutil_folder and not self.remove


class CriLogFile:
    """A file of CRI lines, rotated by size. A full disk loses lines, but never ends the process."""

    def __init__(self, path: str, max_bytes: int, max_files: int) -> None:
        self.path, self.max_bytes, self.max_files = path, max_bytes, max_files
        self.open()

    def open(self) -> None:
        # The process of the container may put a link or a pipe in the way: neither is followed or waited for.
        self.fd = os.open(
            self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o640
        )
        self.size = os.fstat(self.fd).st_size

    def write(self, lines: list[bytes]) -> None:
        if self.fd < 0:
            # The last rotation did not succeed, on a full disk for example.
            try:
                self.open()
            except OSError:
                return
        # However much is written at once, a file exceeds its size by one line at most.
        batch: list[bytes] = []
        size = self.size
        for line in lines:
            if size and size + len(line) > self.max_bytes:
                self.append(b"".join(batch))
                try:
                    self.rotate()
                except OSError:
                    pass
                batch, size = [], self.size
            batch.append(line)
            size += len(line)
        self.append(b"".join(batch))

    def append(self, data: bytes) -> None:
        try:
            while data:
                written = os.write(self.fd, data)
                self.size += written
                data = data[written:]
        except OSError:
            pass

    def rotate(self) -> None:
        os.close(self.fd)
        self.fd, self.size = -1, 0
        for number in range(self.max_files - 1, 0, -1):
            older = self.path if number == 1 else f"{self.path}.{number - 1}"
            if os.path.exists(older):
                os.replace(older, f"{self.path}.{number}")
        if self.max_files < 2:
            os.unlink(self.path)
        self.open()


class LatestFile:
    """A file of the newest of many lines; written at a limited rate."""

    def __init__(self, path: str) -> None:
        self.path, self.latest, self.write_at = path, b"", 0.0

    def write_delay(self) -> "float | None":
        """Seconds until the newest line may be written; None if there is none."""
        return max(0.0, self.write_at - time.monotonic()) if self.latest else None

    def write(self, *, final: bool = False) -> None:
        if not self.latest or not self.path or (not final and self.write_delay()):
            return
        try:
            with open(self.path + ".new", "wb", opener=private_opener) as file:
                file.write(self.latest)
            os.replace(self.path + ".new", self.path)
        except OSError:
            pass  # a full disk loses reports, but never ends the process
        self.latest, self.write_at = b"", time.monotonic() + PROGRESS_WRITE_SECONDS


class ProgressFile(LatestFile):
    """The file of the newest line that looks like a progress report."""

    def scan(self, lines: list[bytes]) -> None:
        """Take the last line that looks like a report. The reader of the file parses it."""
        for line in reversed(lines):
            if (
                PROGRESS_MARK in line
                and len(line) <= MAX_LINE_BYTES
                and b"".join(line.split())[:13] == b"{%b:{" % PROGRESS_MARK
            ):
                self.latest = line
                return


class BarFile(LatestFile):
    """The file of an unfinished line that the program overwrites, as progress bars do."""

    def show(self, line: bytes) -> None:
        """Take the last state of the line, from its last carriage return on."""
        self.latest = line.rstrip(b"\r").rpartition(b"\r")[2][:MAX_BAR_BYTES] if self.path else b""

    def remove(self) -> None:
        self.latest = b""
        try:
            os.unlink(self.path)
        except OSError:
            pass  # never written


class OutputPipe:
    """One output of the process, split into lines."""

    def __init__(self, fd: int, name: str, log: CriLogFile, progress: ProgressFile, bar: BarFile) -> None:
        os.set_blocking(fd, False)
        self.fd, self.log, self.partial, self.progress = fd, log, b"", progress
        self.bar, self.shows_bar = bar, False
        self.stream = name.encode()
        # Gets all output as it comes, for clients that are attached.
        self.tee: Callable[[bytes], None] | None = None

    def read(self) -> bool:
        """Copy the available output to the log. False at its end."""
        try:
            data = os.read(self.fd, CHUNK_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if self.tee is not None:
            self.tee(data)
        lines = (self.partial + data).split(b"\n")
        self.partial = lines.pop()
        if PROGRESS_MARK in data or PROGRESS_MARK in b"".join(lines[:1]):
            self.progress.scan(lines)
        head = timestamp() + b" " + self.stream
        entries = [part for line in lines for part in cri_lines(head, line)]
        while len(self.partial) >= MAX_LINE_BYTES or (self.partial and not data):
            piece, self.partial = self.partial[:MAX_LINE_BYTES], self.partial[MAX_LINE_BYTES:]
            entries.append(head + b" P " + piece + b"\n")
        if entries:
            self.log.write(entries)
        self.show_bar(completed=bool(lines))
        return bool(data)

    def show_bar(self, *, completed: bool) -> None:
        """Write the unfinished line to a file of its own if the program overwrites it, until it is complete."""
        if b"\r" in self.partial:
            self.bar.show(self.partial)
            self.shows_bar = True
        elif completed and self.shows_bar:
            self.bar.remove()
            self.shows_bar = False


def cri_lines(head: bytes, line: bytes) -> list[bytes]:
    """A line as CRI lines; a long line has several, all but the last marked partial."""
    parts = [line[at : at + MAX_LINE_BYTES] for at in range(0, len(line), MAX_LINE_BYTES)] or [b""]
    marks = [b"P"] * (len(parts) - 1) + [b"F"]
    return [head + b" " + mark + b" " + part + b"\n" for part, mark in zip(parts, marks, strict=True)]


def timestamp() -> bytes:
    now = time.time_ns()
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 10**9))
    return f"{seconds}.{now % 10**9:09d}Z".encode()


def write_record(path: str, **fields: "int | float | bool | str") -> None:
    """Write the fields as a JSON object, atomically."""
    with open(path + ".new", "w", opener=private_opener) as file:
        file.write("{" + ", ".join(f'"{name}": {json_text(value)}' for name, value in fields.items()) + "}")
    os.replace(path + ".new", path)


def json_text(value: "int | float | bool | str") -> str:
    if isinstance(value, str):
        import json

        return json.dumps(value)
    return repr(value).lower()


def notify_node(line: str) -> None:
    try:
        os.write(1, line.encode() + b"\n")
    except OSError:
        pass  # the node has ended


class ContainerPipes:
    """Input and outputs of a container's first process: our ends, and its own, which we close when it has them."""

    def __init__(self, attach: "dict[str, object] | None") -> None:
        self.input, self.tty = -1, attach is not None and bool(attach["tty"])
        if self.tty:
            self.out, end = os.openpty()
            self.err, self.ends = -1, (end, end, end)
            self.input = os.dup(self.out)
            return
        (self.out, out_end), (self.err, err_end) = os.pipe(), os.pipe()
        if attach is not None and attach["stdin"]:
            end, self.input = os.pipe()
        else:
            end = os.open(os.devnull, os.O_RDONLY)
        self.ends = (end, out_end, err_end)

    def close_ends(self) -> None:
        for end in set(self.ends):
            os.close(end)


def spawn_command(spec: ShimSpec, pipes: ContainerPipes) -> int:
    """Fork and exec the command. Returns its pid. Raises OSError, with the failed step as filename."""
    error_pipe, error_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        exec_child(spec, pipes, error_end)
    os.close(error_end)
    data = os.read(error_pipe, 100)
    os.close(error_pipe)
    if data:
        os.waitpid(pid, 0)
        number, _, step = data.decode().partition(" ")
        raise OSError(int(number), os.strerror(int(number)), step)
    return pid


def exec_child(spec: ShimSpec, pipes: ContainerPipes, error_end: int) -> None:
    """Set up the child process, and execute the command. Does not return; a failed step is written to `error_end`."""
    step = "exec"
    try:
        os.setsid()
        if spec.is_subreaper:
            mark_child(spec.limit_mark)
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        for file in spec.cgroup:
            step = "cgroup"
            with open(file, "w") as procs:
                procs.write("0")
        if spec.isolation is not None:
            step = "namespaces"
            enter_namespaces(spec.isolation)
        step = "chdir"
        os.chdir(spec.folder)
        for number, end in enumerate(pipes.ends):
            os.dup2(end, number)
        if pipes.tty:
            step = "terminal"
            set_controlling_terminal()
        step = "exec"
        os.execve(spec.program, spec.command, spec.env)  # noqa: S606 - the purpose of the shim
    except OSError as error:
        os.write(error_end, f"{error.errno or 0} {step}".encode())
    finally:
        os._exit(127)


def set_controlling_terminal() -> None:
    """Make standard input the terminal of the session."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def enter_namespaces(isolation: "dict[str, str]") -> None:
    """Enter the pod's namespaces, and set host name and hosts file of the process. Raises OSError."""
    import ctypes  # slow to import, and not needed without namespaces

    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int) -> None:
        if result:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))

    kinds = (("user", CLONE_NEWUSER), ("net", CLONE_NEWNET))
    # All are opened before the first is entered: afterwards /proc may be unreadable.
    descriptors = [(os.open(isolation[name], os.O_RDONLY), kind) for name, kind in kinds if isolation[name]]
    for descriptor, kind in descriptors:
        check(libc.setns(descriptor, kind))
        os.close(descriptor)
    check(libc.unshare(CLONE_NEWUTS | CLONE_NEWNS))
    name = isolation["hostname"].encode()[:64]
    check(libc.sethostname(name, len(name)))
    check(libc.mount(None, b"/", None, MS_REC | MS_SLAVE, None))
    if isolation["hosts"]:
        check(libc.mount(isolation["hosts"].encode(), b"/etc/hosts", None, MS_BIND, None))


def command_output(command: "list[str]", spec: ShimSpec) -> str:
    """The output of a short command of the container engine; empty if it cannot be run."""
    output, output_end = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, output_end, 1), (os.POSIX_SPAWN_DUP2, null, 2)]
    try:
        pid = os.posix_spawnp(command[0], command, spec.env, file_actions=actions)
    except OSError:
        os.close(output)
        return ""
    finally:
        os.close(output_end)
        os.close(null)
    text = b""
    while data := os.read(output, CHUNK_BYTES):
        text += data
    os.close(output)
    os.waitpid(pid, 0)
    return text.decode(errors="replace").strip()


def remove_tree(folder: str) -> None:
    """Remove a folder and its contents, without following links. Files that cannot be removed stay."""
    try:
        with os.scandir(folder) as entries:
            for entry in list(entries):
                if entry.is_dir(follow_symlinks=False):
                    remove_tree(entry.path)
                else:
                    os.unlink(entry.path)
        os.rmdir(folder)
    except OSError:
        pass


def signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


class LibC:
    """Functions of the C library that the standard library lacks. `ctypes` is slow to import, what it is made of is not."""

    def __init__(self) -> None:
        import _ctypes

        self.ctypes = _ctypes
        self.handle = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]

    def call(self, name: str, *arguments: "int | bytes") -> int:
        """Call a function, and return what it returns."""
        return int(self.ctypes.call_function(self.ctypes.dlsym(self.handle, name), arguments))


def become_subreaper() -> None:
    """Have the kernel make all orphaned descendants children of this process, and forbid them to trace it."""
    libc = LibC()
    libc.call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)


def mark_child(number: int) -> None:
    """Mark this process and all its future descendants, and have it killed when the shim is.

    The mark is a limit on real-time scheduling, of thousands of years. A process can lower it, but not raise it again.
    So in a container of a container this fails, and the outer mark stays.
    """
    libc = LibC()
    libc.call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    limit = number.to_bytes(8, sys.byteorder)
    libc.call("setrlimit", RLIMIT_RTTIME, limit + limit)


def limit_mark(run_id: str) -> int:
    """The limit that marks the processes of a run. Far from what a program uses or sets."""
    import hashlib

    return 2**60 + int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:6], "big")


def run_marks(run_ids: "list[str]") -> "dict[int, str]":
    """The marks of these runs: variables by limit."""
    return {limit_mark(run_id): f"{MARK_VARIABLE}={run_id}" for run_id in run_ids}


def read_proc_file(path: str) -> bytes:
    """The content of a file; with a file object it takes twice as long. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = data = os.read(descriptor, CHUNK_BYTES)
        while len(data) == CHUNK_BYTES:
            data = os.read(descriptor, CHUNK_BYTES)
            content += data
        return content
    finally:
        os.close(descriptor)


class ProcFolder:
    """The processes of this machine, as Linux shows them in /proc."""

    def all(self) -> "list[int]":
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]

    def is_alive_in_group(self, pid: int, group: int) -> bool:
        """Whether a process is in the group and is no zombie."""
        state, _, process_group = self.stat(pid)
        return process_group == group and state not in ("Z", "X")

    def stat(self, pid: int) -> "tuple[str, int, int]":
        """State, parent and process group; a process that is gone is dead."""
        try:
            # The name, in parentheses, may contain anything: parse after its end.
            state, parent, group = read_proc_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()[:3]
        except OSError:
            return "X", 0, 0
        return state.decode(), int(parent), int(group)

    def has_mark(self, pid: int, mark: str, limit_mark: int) -> bool:
        """Whether a process has the variable in its environment, or the limit."""
        try:
            _, _, line = read_proc_file(f"/proc/{pid}/limits").partition(RTTIME_LINE)
            if line.split(maxsplit=2)[1:2] == [b"%d" % limit_mark]:
                return self.stat(pid)[0] not in ("Z", "X")
            return b"\0%b\0" % mark.encode() in b"\0%b\0" % read_proc_file(f"/proc/{pid}/environ")
        except OSError:
            return False

    def descendants(self, pid: int) -> "list[int]":
        """Processes below a process, parents first. Some may be missing if the tree changes meanwhile."""
        pids = self.children(pid)
        for each in pids:
            pids += self.children(each)
        return pids

    def children(self, pid: int) -> "list[int]":
        children: list[int] = []
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                children += map(int, read_proc_file(f"/proc/{pid}/task/{thread}/children").split())
        except OSError:
            if os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children"):
                return children  # the process is gone
            return [each for each in self.all() if self.stat(each)[1] == pid]  # a kernel without such files
        return children


class PsutilProcesses:
    """The processes of this machine, on every system that psutil knows."""

    def __init__(self, folder: str) -> None:
        # The shim's interpreter has no packages of its own.
        sys.path.append(folder)
        import psutil

        self.psutil = psutil

    def all(self) -> "list[int]":
        return self.psutil.pids()

    def is_alive_in_group(self, pid: int, group: int) -> bool:
        try:
            return os.getpgid(pid) == group and self.psutil.Process(pid).status() != self.psutil.STATUS_ZOMBIE
        except (OSError, self.psutil.Error):
            return False

    def has_mark(self, pid: int, mark: str, limit_mark: int) -> bool:
        """Whether a process has the variable in its environment. Limits of other processes are not known."""
        name, _, value = mark.partition("=")
        try:
            return bool(self.psutil.Process(pid).environ().get(name) == value)
        except (OSError, self.psutil.Error):
            return False


def all_processes(psutil_folder: str) -> "ProcFolder | PsutilProcesses":
    """The processes of this machine, by psutil in its folder where there is no /proc."""
    return PsutilProcesses(psutil_folder) if psutil_folder else ProcFolder()


def wait_for_group(pid: int, processes: "ProcFolder | PsutilProcesses") -> None:
    """Wait until the group is empty: when the exit is recorded, no process of the container is left.

    That takes a moment after a kill, and longer only for a process that the kernel cannot end.
    """
    while True:
        try:
            os.killpg(pid, 0)
        except OSError:
            return
        if not any(processes.is_alive_in_group(each, pid) for each in processes.all()):
            return  # only zombies are left, which init will reap
        time.sleep(POLL_SECONDS)


def kill_descendants(processes: ProcFolder) -> None:
    """Kill all descendants of this process, which is their subreaper, until none is left.

    A process without children has no descendants either, so the end is certain. Processes that we may not kill, because
    they run as another user, are left alone.
    """
    before: list[int] = []
    protected: set[int] = set()
    while reap_children():
        pids = processes.descendants(os.getpid())
        for pid in pids:
            if not kill_process(pid):
                protected.add(pid)
        if pids and protected.issuperset(pids):
            return
        if pids == before:
            # They are dying, which takes a moment. Others than before may be forking: for those every moment counts.
            time.sleep(POLL_SECONDS)
        before = pids


def reap_children() -> bool:
    """Reap all children that have ended. Returns whether there are others."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def kill_process(pid: int) -> bool:
    """Kill a process. Returns whether we may."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    except OSError:
        return False
    return True


def kill_strays(marks: "dict[int, str]", processes: "ProcFolder | PsutilProcesses") -> None:
    """Kill all processes that have one of the marks (variables by limit), until none is left.

    Processes that we may not kill are left alone.
    """
    protected = {os.getpid()}
    while kill_marked(marks, processes, protected):
        time.sleep(POLL_SECONDS)


def kill_marked(marks: "dict[int, str]", processes: "ProcFolder | PsutilProcesses", protected: "set[int]") -> bool:
    """Kill all processes that have one of the marks. Returns whether there were any. Extends the protected ones."""
    pids = [
        pid
        for pid in processes.all()
        if pid not in protected and any(processes.has_mark(pid, mark, limit) for limit, mark in marks.items())
    ]
    protected.update(pid for pid in pids if not kill_process(pid))
    return bool(pids)


def kill_cgroups(files: "list[str]") -> None:
    """Kill all processes in the cgroups of these `cgroup.procs` files, where the kernel can do that at once."""
    for file in files:
        try:
            with open(file.removesuffix("cgroup.procs") + "cgroup.kill", "w") as switch:
                switch.write("1")
        except OSError:
            pass  # version 1, or a kernel before 5.14


def end_container(spec: ShimSpec, pid: int) -> None:
    """Kill what is left of a container whose first process has ended. Returns when nothing is."""
    signal_group(pid, signal.SIGKILL)
    kill_cgroups(spec.cgroup)
    processes = all_processes(spec.psutil_folder)
    if isinstance(processes, ProcFolder) and spec.is_subreaper:
        kill_descendants(processes)
    # Commands that were executed in the container are no descendants.
    kill_strays({spec.limit_mark: spec.mark}, processes)
    wait_for_group(pid, processes)


def open_attach(spec: ShimSpec, pipes: ContainerPipes) -> "AttachServer | None":
    """Serve clients that attach to the container, if it has an input or a terminal."""
    if spec.attach is None:
        return None
    names: dict[str, Any] = {"__name__": "shim_attach"}
    exec(marshal.loads(spec.attach["code"]), names)  # type: ignore[arg-type]  # noqa: S102, S302 - from the node
    server: AttachServer = names["AttachServer"](
        spec.attach["socket"], pipes.input, tty=pipes.tty, once=spec.attach["once"]
    )
    return server


def tee_to(attach: "AttachServer", number: int) -> "Callable[[bytes], None]":
    return lambda data: attach.send(number, data)


def supervise(
    spec: ShimSpec,
    pid: int,
    pipes: list[OutputPipe],
    signals: int,
    files: list[LatestFile],
    attach: "AttachServer | None" = None,
) -> int:
    """Copy output, and forward signals (read from the descriptor `signals`), until the process ends.

    Returns its wait status.
    """
    while True:
        for file in files:
            file.write()
        delays = [delay for file in files if (delay := file.write_delay()) is not None]
        outputs = [pipe.fd for pipe in pipes] if attach is None or not attach.is_full else []
        readers: list[Any] = [signals, *outputs]
        writers: list[Any] = []
        if attach is not None:
            readers += attach.readers()
            writers += attach.writers()
        ready, writable, _ = select.select(readers, writers, (), min(delays, default=None))
        if attach is not None:
            attach.handle(ready, writable)
        for pipe in list(pipes):
            if pipe.fd in ready and not pipe.read():
                pipes.remove(pipe)
        if signals not in ready:
            continue
        numbers = os.read(signals, 100)
        # A kill comes before a TERM, in whichever order both arrive.
        if signal.SIGUSR1 in numbers and spec.kill:
            # The client, which is our child, ends with the container.
            command_output(spec.kill, spec)
        elif signal.SIGUSR1 in numbers:
            signal_group(pid, signal.SIGKILL)
        elif signal.SIGTERM in numbers:
            signal_group(pid, signal.SIGTERM)
        status = reap_until(pid)
        if status is not None:
            return status


def reap_until(pid: int) -> "int | None":
    """Reap children that have ended, orphans of the container among them. Returns the wait status of `pid`, if it has."""
    try:
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended in (0, pid):
                return status if ended else None
    except ChildProcessError:
        return None


def drain(pipes: list[OutputPipe]) -> None:
    """Copy the remaining output. A process that still holds a pipe open is ignored after a moment."""
    deadline = time.monotonic() + DRAIN_SECONDS
    while pipes:
        remaining = deadline - time.monotonic()
        ready = select.select([pipe.fd for pipe in pipes], (), (), max(remaining, 0))[0]
        if not ready:
            return
        for pipe in list(pipes):
            if pipe.fd in ready and not pipe.read():
                pipes.remove(pipe)


def close_descriptors(*, except_for: int) -> None:
    """Close all descriptors but the standard ones and one more."""
    for name in os.listdir("/dev/fd"):
        if int(name) > 2 and int(name) != except_for:
            try:
                os.close(int(name))
            except OSError:
                pass  # that of the list itself


def main() -> None:
    if sys.argv[1:2] == ["end"]:
        kill_strays(run_marks(sys.argv[3:]), all_processes(sys.argv[2]))
        return
    spec = ShimSpec(**marshal.load(sys.stdin.buffer))  # noqa: S302 - from the node, which runs the same interpreter
    # Whoever started the node may have left files open for all its descendants.
    close_descriptors(except_for=spec.lock)
    os.setsid()
    if spec.is_subreaper:
        become_subreaper()
    os.set_inheritable(spec.lock, False)  # noqa: FBT003
    signals, signals_end = os.pipe()
    os.set_blocking(signals_end, False)
    os.set_blocking(signals, False)
    signal.set_wakeup_fd(signals_end, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    log = CriLogFile(spec.log, spec.max_bytes, spec.max_files)
    container = ContainerPipes(spec.attach)
    try:
        if spec.scratch:
            os.mkdir(spec.scratch, 0o700)
        attach = open_attach(spec, container)
        pid = spawn_command(spec, container)
    except OSError as error:
        subjects = {"chdir": spec.folder, "namespaces": "the pod's namespaces", spec.scratch: spec.scratch}
        subject = subjects.get(error.filename, spec.command[0])
        write_record(spec.exit, failed=f"{subject}: {error.strerror}", at=time.time())
        notify_node(f"failed {subject}: {error.strerror}")
        if spec.scratch:
            remove_tree(spec.scratch)
        return
    container.close_ends()
    write_record(spec.run, shim=os.getpid(), pid=pid, at=time.time())
    notify_node(f"started {pid}")
    progress, bar = ProgressFile(spec.progress), BarFile(spec.bar)
    outputs = [(1, container.out, "stdout")] + ([] if container.tty else [(2, container.err, "stderr")])
    pipes = []
    for number, descriptor, name in outputs:
        pipe = OutputPipe(descriptor, name, log, progress, bar)
        if attach is not None:
            pipe.tee = tee_to(attach, number)
        pipes.append(pipe)
    status = supervise(spec, pid, pipes, signals, [progress, bar], attach)
    ended_at = time.time()
    end_container(spec, pid)
    drain(pipes)
    if attach is not None:
        attach.close()
    progress.write(final=True)
    bar.remove()
    oom = spec.inspect is not None and command_output(spec.inspect, spec) == "true"
    if spec.remove:
        command_output(spec.remove, spec)
    if spec.scratch:
        remove_tree(spec.scratch)
    write_record(spec.exit, code=os.waitstatus_to_exitcode(status), at=ended_at, oom=oom)


if __name__ == "__main__":
    main()
