"""py-spy: where it is, how it is called, and what its output says. Pure but for the search."""

import os
import re
import shutil
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gangline.stacks.model import Frame, ThreadStack

INSTALL_HINT = "pip install 'gangline[stacks]'"
NOT_INSTALLED = "py-spy is not installed"
NOT_INSTALLED_THERE = "py-spy is not in the image"
NOT_ALLOWED = "py-spy may not read it"
MAIN_THREAD = "MainThread"

_PERMISSION = re.compile(r"permission denied|operation not permitted", re.IGNORECASE)
_NOT_PYTHON = re.compile(r"find (?:a )?python version|find libpython|no python processes", re.IGNORECASE)
_GONE = re.compile(r"no such process|no such file|process has exited", re.IGNORECASE)


class _Frame(msgspec.Struct):
    name: str
    filename: str = ""
    module: str | None = None
    line: int = 0


class _Thread(msgspec.Struct):
    """A thread, as py-spy writes it."""

    frames: list[_Frame]
    thread_name: str | None = None
    thread_id: int = 0
    os_thread_id: int | None = None
    active: bool = False
    owns_gil: bool = False


def find_py_spy() -> str:
    """The py-spy of this installation (the extra `stacks`), else the one on PATH; empty if there is none."""
    own = Path(sysconfig.get_path("scripts")) / "py-spy"
    return str(own) if os.access(own, os.X_OK) else shutil.which("py-spy") or ""


def dump_command(program: str, pid: int, *, native: bool = False, pause: bool = False) -> tuple[str, ...]:
    """The command that prints the stacks of one process as JSON.

    Without `pause` the process is not stopped while it is read, so that nothing in it is disturbed; native frames need
    the pause.
    """
    flags = ("--native",) if native else () if pause else ("--nonblocking",)
    return (program, "dump", "--json", *flags, "--pid", str(pid))


def decode_dump(output: bytes, pid: int) -> tuple[ThreadStack, ...]:
    """The threads of a dump, the main thread first. Raises `msgspec.DecodeError` and `msgspec.ValidationError`."""
    threads = msgspec.json.decode(output, type=list[_Thread])
    stacks = [_thread_stack(one) for one in threads]
    return tuple(sorted(stacks, key=lambda one: (one.name != MAIN_THREAD and one.id != pid, one.id)))


def _thread_stack(thread: _Thread) -> ThreadStack:
    frames = tuple(
        Frame(one.name, one.filename, one.line, one.module or "", native=one.module is not None)
        for one in thread.frames
    )
    return ThreadStack(
        frames, thread.thread_name or "", thread.os_thread_id or 0, active=thread.active, holds_gil=thread.owns_gil
    )


def failure_text(errors: str) -> str:
    """Why a process could not be read, in one line."""
    if _PERMISSION.search(errors):
        return NOT_ALLOWED
    if _NOT_PYTHON.search(errors):
        return "py-spy finds no Python in it yet"
    if _GONE.search(errors):
        return "it has ended"
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return f"py-spy: {lines[0].removeprefix('Error: ')[:160]}" if lines else "py-spy gives no answer"


def permission_hint(ptrace_scope: str, platform: str) -> str:
    """What lets py-spy read programs of the same user. `ptrace_scope` is the kernel's setting, empty without Yama."""
    if platform == "darwin":
        return "macOS lets only root read other programs: write sudo before the command"
    if ptrace_scope in ("1", "2"):
        return (
            f"The kernel forbids to read other programs (kernel.yama.ptrace_scope is {ptrace_scope}). "
            "To allow it until the next boot: sudo sysctl kernel.yama.ptrace_scope=0"
        )
    return "Programs of other users can be read by root only: write sudo before the command"


def may_retry(errors: str) -> bool:
    """Whether another try may succeed: a process that is not stopped changes while it is read."""
    return not (_PERMISSION.search(errors) or _GONE.search(errors))


def python_command(words: Sequence[str]) -> str:
    """A command line in short: without the interpreter's folder."""
    return " ".join((Path(words[0]).name, *words[1:])) if words else ""
