"""Samples the stacks of processes of this machine, all at once: with py-spy, and from the kernel where it cannot."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from gangline.base.clock import Clock, SystemClock
from gangline.base.files import open_regular
from gangline.base.host_features import usable_cpus
from gangline.base.tasks import run_all, time_limit
from gangline.stacks.frames import own_frames, with_source
from gangline.stacks.model import ProcessStack, RankStack, Source, ThreadStack
from gangline.stacks.own_dumps import own_dump
from gangline.stacks.processes import MAX_COMMAND, ProcessFacts, ProcessTable
from gangline.stacks.pyspy import (
    NOT_INSTALLED,
    decode_dump,
    dump_command,
    failure_text,
    find_py_spy,
    may_retry,
    python_command,
)

T = TypeVar("T")

SAMPLE_TIMEOUT = timedelta(seconds=5)
"""How long one process may take. Its file system may hang, which is what one wants to see."""
KERNEL_TIMEOUT = timedelta(seconds=3)
"""How long the kernel may take to say what there is: it waits for a process that holds its own memory lock."""
SOURCE_TIMEOUT = timedelta(seconds=0.5)
MAX_SOURCE_BYTES = 2**20
MAX_PROCESSES = 24
"""The most processes of one replica that are read."""


class SampleTarget(NamedTuple):
    """A replica of this machine: its first process, and a variable by which all of its processes are marked."""

    replica: str
    rank: int | None
    pod: str
    pid: int
    # `NAME=value` in the environment of all its processes, also of those that the first one did not start.
    mark: str = ""


async def sample_processes(
    targets: Sequence[SampleTarget],
    *,
    native: bool = False,
    timeout: timedelta = SAMPLE_TIMEOUT,
    program: str | None = None,
    clock: Clock | None = None,
) -> tuple[RankStack, ...]:
    """The stacks of the targets' processes and of what they have started, in the order of the targets.

    `program` is py-spy; found if it is None, and not used if it is empty. Nothing is changed in the processes, and
    without `native` they are not stopped either.
    """
    program = find_py_spy() if program is None else program
    clock = clock or SystemClock()
    try:
        processes = await _in_thread(lambda: _process_facts(targets), KERNEL_TIMEOUT, clock)
    except TimeoutError:
        error = f"the kernel gave no answer for {KERNEL_TIMEOUT.seconds} s"
        return tuple(RankStack(one.replica, one.rank, one.pod, error=error) for one in targets)
    stacks: dict[int, ProcessStack] = {}

    async def sample(facts: ProcessFacts) -> None:
        stacks[facts.pid] = await _sample(facts, program, timeout, clock, native=native)

    together = max(4, 2 * usable_cpus())
    await run_all((sample(facts) for one in processes for facts in one), at_once=together)
    source = await _source_lines(stacks.values(), clock)
    return tuple(
        RankStack(
            target.replica,
            target.rank,
            target.pod,
            tuple(with_source(stacks[one.pid], source) for one in facts),
            "" if facts else "it has no process on this machine any more",
        )
        for target, facts in zip(targets, processes, strict=True)
    )


def _process_facts(targets: Sequence[SampleTarget]) -> list[list[ProcessFacts]]:
    """The processes of each target: its tree, and marked processes with theirs."""
    table = ProcessTable()
    marked = table.marked({one.mark for one in targets if one.mark})
    return [
        [
            facts
            for pid in _pids(table, target.pid, marked.get(target.mark, ()))[:MAX_PROCESSES]
            if (facts := table.facts(pid)) is not None
        ]
        for target in targets
    ]


def _pids(table: ProcessTable, first: int, marked: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(pid for root in (first, *marked) for pid in table.tree(root)))


async def _sample(facts: ProcessFacts, program: str, timeout: timedelta, clock: Clock, *, native: bool) -> ProcessStack:
    stack = ProcessStack(
        facts.pid,
        python_command(facts.command)[:MAX_COMMAND],
        facts.threads,
        state=facts.state,
        parent=facts.parent,
        rank=facts.rank,
        cpu_seconds=facts.cpu_seconds,
    )
    if not facts.is_python or facts.state[:1] in ("Z", "X"):
        return stack
    threads, error = await _py_spy_in_time(program, facts.pid, timeout, clock, native=native)
    source: Source = "py-spy"
    if error:
        threads, source = await own_dump(facts.pid, clock), "faulthandler"
    if not threads:
        return msgspec.structs.replace(stack, error=error)
    return msgspec.structs.replace(stack, threads=_with_channels(threads, facts.threads), source=source)


async def _py_spy_in_time(
    program: str, pid: int, timeout: timedelta, clock: Clock, *, native: bool
) -> tuple[tuple[ThreadStack, ...], str]:
    if not program:
        return (), NOT_INSTALLED
    try:
        async with time_limit(timeout, clock):
            return await _py_spy(program, pid, native=native)
    except TimeoutError:
        return (), f"py-spy gave no answer for {timeout.total_seconds():g} s"


async def _py_spy(program: str, pid: int, *, native: bool) -> tuple[tuple[ThreadStack, ...], str]:
    """The threads, or why they cannot be read. A process that runs is read again when it changed meanwhile."""
    errors = ""
    for pause in (False, False, True):
        output, errors = await _run(dump_command(program, pid, native=native, pause=pause))
        try:
            return decode_dump(output, pid), ""
        except msgspec.MsgspecError:
            if not may_retry(errors):
                break
    return (), failure_text(errors)


async def _run(command: Sequence[str]) -> tuple[bytes, str]:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        return b"", f"{command[0]}: {error.strerror}"
    try:
        output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return output if process.returncode == 0 else b"", errors.decode(errors="replace")


def _with_channels(threads: Iterable[ThreadStack], kernel: Iterable[ThreadStack]) -> tuple[ThreadStack, ...]:
    """The threads with what the kernel says of them: whether they run, and what they wait for."""
    states = {one.id: one for one in kernel}
    return tuple(
        msgspec.structs.replace(
            one, wait_channel=state.wait_channel, wakeups=state.wakeups, active=one.active or state.active
        )
        if (state := states.get(one.id)) is not None
        else one
        for one in threads
    )


# Source lines


async def _source_lines(stacks: Iterable[ProcessStack], clock: Clock) -> dict[tuple[str, int], str]:
    """The source lines of the user's own frames, by file and line; without those that cannot be read at once."""
    wanted: dict[tuple[str, int], Path] = {}
    for stack in stacks:
        for thread in stack.threads:
            for frame in own_frames(thread.frames):
                wanted.setdefault((frame.file, frame.line), _source_path(stack.pid, frame.file))
    lines: dict[tuple[str, int], str] = {}
    with suppress(TimeoutError):
        await _in_thread(lambda: _read_lines(wanted, lines), SOURCE_TIMEOUT, clock)
    return dict(lines)


def _source_path(pid: int, file: str) -> Path:
    """Where a file is that a process names: it may have its own root and folder."""
    folder = Path("/proc") / str(pid)
    if not folder.is_dir():
        return Path(file)
    return folder / "root" / file.lstrip("/") if file.startswith("/") else folder / "cwd" / file


def _read_lines(wanted: dict[tuple[str, int], Path], lines: dict[tuple[str, int], str]) -> None:
    texts: dict[Path, list[str]] = {}
    for (file, number), path in wanted.items():
        if path not in texts:
            try:
                with open_regular(path) as source:
                    texts[path] = source.read(MAX_SOURCE_BYTES).decode(errors="replace").splitlines()
            except OSError:
                texts[path] = []
        if 0 < number <= len(texts[path]):
            lines[file, number] = texts[path][number - 1].strip()


async def _in_thread(work: Callable[[], T], patience: timedelta, clock: Clock) -> T:
    """Run work that may hang for ever in a thread that nobody waits for at exit. Raises `TimeoutError`."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001 - raised where it is awaited
            error = raised
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, daemon=True).start()
    async with time_limit(patience, clock):
        return await future
