"""Stacks that a program writes itself, by `faulthandler`, when it gets a signal that it has asked for.

Only programs that called `gangline.progress.stacks.offer_stacks` get the signal: each has a file in memory that proves
it, and catches the signal. A program that did not expect SIGURG would ignore it.
"""

import os
import re
import signal
from datetime import timedelta
from pathlib import Path

from gangline.base.clock import Clock
from gangline.progress.stacks import FILE_NAME
from gangline.stacks.model import Frame, ThreadStack

POLL_INTERVAL = timedelta(milliseconds=10)
DUMP_TIMEOUT = timedelta(seconds=1)
MAX_DUMP_BYTES = 2**20
_LINK = re.compile(rf"/memfd:{FILE_NAME}-(\d+)\b")
_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+(?: \[(.*)\])? \(most recent call first\):")
_FRAME = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$')


async def own_dump(pid: int, clock: Clock) -> tuple[ThreadStack, ...]:
    """The threads of a program, as it writes them itself; none if it does not offer that, or does not answer."""
    file = _dump_file(pid)
    if file is None or not _catches(pid, signal.SIGURG):
        return ()
    try:
        descriptor = os.open(file, os.O_RDWR)
    except OSError:
        return ()
    try:
        os.ftruncate(descriptor, 0)
        os.kill(pid, signal.SIGURG)
        size = -1
        for _ in range(DUMP_TIMEOUT // POLL_INTERVAL):
            await clock.sleep(POLL_INTERVAL)
            # Complete, as soon as nothing more comes.
            size, before = os.fstat(descriptor).st_size, size
            if size > 0 and size == before:
                break
        return parse_dump(os.pread(descriptor, min(max(size, 0), MAX_DUMP_BYTES), 0).decode(errors="replace"), pid)
    except OSError:
        return ()
    finally:
        os.close(descriptor)


def _dump_file(pid: int) -> Path | None:
    """The file in memory of this very process: a child has inherited that of its parent."""
    own = _innermost_pid(pid)
    try:
        entries = list((Path("/proc") / str(pid) / "fd").iterdir())
    except OSError:
        return None
    for entry in entries:
        try:
            match = _LINK.match(str(entry.readlink()))
        except OSError:
            continue
        if match is not None and int(match[1]) == own:
            return entry
    return None


def _innermost_pid(pid: int) -> int:
    """The pid that a process has for itself, which differs in a container."""
    return int(_status(pid, "NSpid").split()[-1:][0]) if _status(pid, "NSpid") else pid


def _catches(pid: int, number: int) -> bool:
    mask = _status(pid, "SigCgt")
    return bool(mask) and bool(int(mask, 16) >> (number - 1) & 1)


def _status(pid: int, field: str) -> str:
    try:
        lines = (Path("/proc") / str(pid) / "status").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(f"{field}:")), "")


def parse_dump(text: str, pid: int) -> tuple[ThreadStack, ...]:
    """The threads in a dump of `faulthandler`, the main one first: it is the oldest, and comes last."""
    threads: list[tuple[str, list[Frame]]] = []
    for line in text.splitlines():
        if (head := _THREAD.match(line)) is not None:
            threads.append((head[2] or "", []))
        elif threads and (frame := _FRAME.match(line)) is not None:
            number = int(frame[2]) if frame[2].isdigit() else 0
            threads[-1][1].append(Frame(frame[3], frame[1], number))
    if not threads:
        return ()
    *others, (_, main) = threads
    return (
        ThreadStack(tuple(main), "MainThread", pid),
        *(ThreadStack(tuple(frames), name, 0) for name, frames in reversed(others)),
    )
