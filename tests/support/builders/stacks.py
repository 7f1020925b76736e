"""Stacks for tests, as they look in real programs."""

from gangline.stacks.model import Frame, ProcessStack, RankStack, Source, ThreadStack

SITE = "/venv/lib/python3.11/site-packages"
LIB = "/usr/lib/python3.11"


def frame(function: str, file: str = "/code/train.py", line: int = 1, code: str = "") -> Frame:
    return Frame(function, file, line, code=code)


def own_stack(line: int = 88, file: str = "/code/train.py", code: str = "") -> tuple[Frame, ...]:
    """The user's own frames: a step, called by the main program."""
    return (frame("step", file, line, code), frame("<module>", "/code/train.py", 120))


def all_reduce(line: int = 88) -> tuple[Frame, ...]:
    return (
        frame("all_reduce", f"{SITE}/torch/distributed/distributed_c10d.py", 2800),
        frame("wrapper", f"{SITE}/torch/distributed/c10d_logger.py", 81),
        *own_stack(line),
    )


def reading(line: int = 31) -> tuple[Frame, ...]:
    """A dataset of the user that does not return."""
    return (
        frame("__getitem__", "/code/data.py", line),
        frame("<listcomp>", f"{SITE}/torch/utils/data/_utils/fetch.py", 52),
        frame("fetch", f"{SITE}/torch/utils/data/_utils/fetch.py", 52),
        frame("_next_data", f"{SITE}/torch/utils/data/dataloader.py", 757),
        frame("__next__", f"{SITE}/torch/utils/data/dataloader.py", 708),
        *own_stack(70),
    )


def process(
    frames: tuple[Frame, ...] = (),
    pid: int = 100,
    *,
    parent: int = 1,
    command: str = "python train.py",
    source: Source = "py-spy",
    state: str = "S",
    rank: int | None = None,
    active: bool = False,
    channel: str = "",
    threads: tuple[ThreadStack, ...] = (),
) -> ProcessStack:
    main = ThreadStack(frames, "MainThread" if frames else "", pid, active=active, wait_channel=channel)
    return ProcessStack(pid, command, (main, *threads), source, state, parent, rank)


def rank(number: int, *processes: ProcessStack, frames: tuple[Frame, ...] = (), kind: str = "worker") -> RankStack:
    """Replica `worker-N` with rank N, with one process that stands in `frames` unless processes are given."""
    return RankStack(f"{kind}-{number}", number, f"job-{kind}-{number}", processes or (process(frames),))
