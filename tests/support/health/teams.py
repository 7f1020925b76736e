"""Teams in simulated time: what each rank does in each second, and what a watch makes of it."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from gangline.health.evidence import TeamSample
from gangline.health.settings import WatchSettings
from gangline.health.signs import ObservedTime, ReplicaSigns, TeamSigns
from gangline.health.stall import Look, WatchState, next_state
from gangline.stacks.model import Frame, ProcessStack, RankStack, ThreadStack
from support.builders.stacks import LIB, SITE, frame

TURN = 1
"""Seconds between two turns of the simulated watcher."""


class Doing(NamedTuple):
    """What a rank does for a while."""

    frames: tuple[Frame, ...]
    # CPU cores, bytes that are counted, and wake-ups, all per second.
    cores: float = 0.0
    bytes: int = 0
    wakeups: int = 0
    # Its innermost line is another one in every second.
    moves: bool = False
    is_stopped: bool = False
    # It waits for the CPU, which others use.
    wants_cpu: bool = False
    # A command that it has started, which uses the CPU in its stead.
    command: str = ""


def own(function: str, line: int = 10, code: str = "") -> tuple[Frame, ...]:
    """Code of the user, called by the main program."""
    return (frame(function, "/code/train.py", line, code), frame("<module>", "/code/train.py", 120))


def library(path: str, function: str, line: int = 20, caller: str = "step") -> tuple[Frame, ...]:
    """A library that the user's code calls."""
    root = LIB if path.count("/") == 0 else SITE
    return (frame(function, f"{root}/{path}", line), *own(caller))


TRAINS = Doing(own("step"), cores=1.0, moves=True)
ALL_REDUCE = library("torch/distributed/distributed_c10d.py", "all_reduce")
WAITS = Doing(ALL_REDUCE)
SPINS = Doing(ALL_REDUCE, cores=1.0)
ONE_LONG_CALL = Doing(own("step"), cores=1.0)
COMPILES = Doing(library("jax/_src/compiler.py", "backend_compile"), cores=1.6)
SERVES = Doing(library("tensorflow/python/training/server_lib.py", "join"))
SLEEPS = Doing(own("step", code="time.sleep(300)"))
LISTENS = Doing(library("asyncio/base_events.py", "run_forever", caller="main"))
LOCKED = Doing(library("threading.py", "acquire", caller="flush"))
FILE_LOCK = Doing(library("filelock/_api.py", "acquire"))
READS = Doing(library("torch/utils/data/dataloader.py", "_next_data"))
STOPPED = Doing(own("step"), is_stopped=True)
SAVES = Doing(library("torch/serialization.py", "save"), cores=0.02)
SAVES_BY_NAME = Doing(own("save_checkpoint", code="time.sleep(240)"))
EVALUATES = Doing(own("evaluate"), cores=1.0, moves=True)
RECEIVES = Doing(library("socket.py", "readinto", caller="get_data"), cores=0.001, wakeups=10)
RECEIVES_NOTHING = Doing(own("read_exactly", code="part = peer.recv(wanted)"))
STANDS_IN_SOCKET = Doing(library("socket.py", "readinto", caller="get_data"))
IN_TENSORFLOW = Doing(library("tensorflow/python/eager/execute.py", "quick_execute"))
COMPILES_IN_A_COMMAND = Doing(
    library("subprocess.py", "wait", caller="build"), cores=1.0, command="cc1plus kernels.cpp"
)
DOWNLOADS = Doing(library("urllib/request.py", "urlopen", caller="get_data"), cores=0.05, bytes=5_000_000)


Life = Callable[[float], Doing]
"""What a rank does at a time of its program."""


def always(doing: Doing) -> Life:
    return lambda t: doing


def then(*phases: tuple[Doing, float], last: Doing) -> Life:
    """One thing after the other: each for so many seconds, the last one for ever."""

    def at(t: float) -> Doing:
        for doing, seconds in phases:
            if t < seconds:
                return doing
            t -= seconds
        return last

    return at


def in_turn(*phases: tuple[Doing, float]) -> Life:
    """The same phases again and again."""
    period = sum(seconds for _, seconds in phases)
    return lambda t: then(*phases, last=phases[0][0])(t % period)


class Team(NamedTuple):
    """Ranks, and when the team gives signs of life: the times of its steps and of its log lines."""

    lives: Mapping[str, Life]
    steps: Iterable[float] = ()
    lines: Iterable[float] = ()
    # Seconds of the real time in which the whole machine stands still.
    suspended: tuple[range, ...] = ()
    last_line: str = ""


def every(seconds: float, until: float = 1e9, start: float = 0.0) -> list[float]:
    """Times at regular intervals, up to half a day."""
    count = int(min(until - start, 50_000) / seconds)
    return [start + seconds * number for number in range(1, count + 1)]


class Played(NamedTuple):
    """What the watch made of a team."""

    # When it was found to have stalled, in the time of the program, with the reason and message; empty if never.
    stalls: list[tuple[float, str, str, tuple[str, ...]]]
    recoveries: list[tuple[float, str]]
    # How often each kind of look was made.
    looks: dict[Look, int]
    state: WatchState


def play(
    team: Team,
    seconds: int,
    settings: WatchSettings = WatchSettings(),  # noqa: B008 - frozen
    *,
    has_stacks: bool = True,
    has_usage: bool = True,
    has_logs: bool = True,
) -> Played:
    """Let a team live for so many seconds under a watch."""
    time, program, state = ObservedTime(0.0, 5.0), 0.0, WatchState.begin(0.0)
    used = dict.fromkeys(team.lives, 0.0)
    moved = dict.fromkeys(team.lives, 0.0)
    read_at, read_used = 0.0, dict(used)
    steps, lines = sorted(team.steps), sorted(team.lines)
    played = Played([], [], dict.fromkeys(Look, 0), state)
    for real in range(1, seconds + 1, TURN):
        if any(real in span for span in team.suspended):
            continue
        program += TURN
        for name, life in team.lives.items():
            doing = life(program)
            used[name] += doing.cores * TURN
            moved[name] += doing.bytes * TURN
        now = time.advance(float(real))
        if now < state.next_at:
            continue
        played.looks[state.look] += 1
        mark = str(bisect_right(lines, program)) if has_logs else None
        progress = bisect_right(steps, program)
        replicas = tuple(
            ReplicaSigns(
                name,
                mark if mark != "0" else None,
                team.last_line,
                (used[name] - read_used[name]) / max(program - read_at, 1.0) if has_usage else None,
                int(moved[name]) if has_usage else None,
                life(program).is_stopped,
            )
            for name, life in team.lives.items()
        )
        read_at, read_used = program, dict(used)
        signs = TeamSigns(str(progress) if progress else "", replicas if state.look is not Look.PROGRESS else None)
        sample = None
        if state.look is Look.STACKS and has_stacks:
            sample = TeamSample(now, _stacks(team, program, used))
        before, state = state, next_state(state, signs, sample, now, settings)
        if state.stall is not None and before.stall is None:
            played.stalls.append((program, state.stall.reason, state.stall.message, state.stall.replicas))
        if state.recovery:
            played.recoveries.append((program, state.recovery))
    return played._replace(state=state)


def _stacks(team: Team, program: float, used: Mapping[str, float]) -> tuple[RankStack, ...]:
    lives = enumerate(team.lives.items())
    return tuple(_rank_stack(number, name, life(program), program, used[name]) for number, (name, life) in lives)


def _rank_stack(number: int, name: str, doing: Doing, program: float, used: float) -> RankStack:
    frames, computes = doing.frames, doing.cores > 0.5
    if doing.moves:
        first = frames[0]
        frames = (Frame(first.function, first.file, first.line + int(program * 7) % 13, code=first.code), *frames[1:])
    thread = ThreadStack(
        frames,
        "MainThread",
        100 + number,
        active=computes and not doing.command,
        wakeups=int(doing.wakeups * program),
    )
    # A thread that measures something every few seconds is in most programs.
    monitor = ThreadStack(own("heartbeat", 40 + int(program) % 3), "Thread-1", 500 + number)
    state = "T" if doing.is_stopped else "R" if computes or doing.wants_cpu else "S"
    main = ProcessStack(
        100 + number, "python train.py", (thread, monitor), "py-spy", state, rank=number, cpu_seconds=used
    )
    if not doing.command:
        return RankStack(name, number, f"job-{name}", (main,))
    child = ProcessStack(
        900 + number, doing.command, (ThreadStack(active=True),), "proc", "R", main.pid, cpu_seconds=used
    )
    waiting = msgspec.structs.replace(main, state="S", cpu_seconds=0.0)
    return RankStack(name, number, f"job-{name}", (waiting, child))
