"""What happens inside the process: watch events taken in, keys leased, the command started."""

import asyncio
import gc
import json
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
from bench.feed import Script, pod_informer, run_until
from bench.measure import Figures, collector_off, median, rate, seconds, show, times

from gangline.api.core import Pod
from gangline.api.meta import Key
from gangline.base.clock import SystemClock
from gangline.runtime.informer import Delta, TransformFunc
from gangline.runtime.interning import ObjectInterner
from gangline.runtime.rate_limits import default_retry_limiter
from gangline.runtime.work_queue import WorkQueue

CHUNK = 64 * 1024
"""In such pieces a busy connection brings a watch."""


def chunks(lines: Iterable[bytes]) -> list[bytes]:
    text = b"".join(lines)
    return [text[start : start + CHUNK] for start in range(0, len(text), CHUNK)]


def watch(pages: list[bytes], stream: list[bytes], total: int, rounds: int) -> Figures:
    """Every pod of a full cache changes once; one subscriber is told."""
    ways: dict[str, Callable[[], float]] = {
        "informer": lambda: asyncio.run(_informed(pages, stream, total, None)),
        "sharing": lambda: asyncio.run(_informed(pages, stream, total, ObjectInterner())),
        "dict_msgspec": lambda: _decoded(stream, msgspec.json.decode),
        "dict_json": lambda: _decoded(stream, json.loads),
        "dict_without_gc": lambda: _uncollected(stream),
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            gc.collect()
            took[name].append(way())
    return {name: total / median(values) for name, values in took.items()}


async def _informed(pages: list[bytes], stream: list[bytes], total: int, trim: TransformFunc[Pod] | None) -> float:
    done = asyncio.Event()
    left = total
    began = 0.0

    def tell(delta: Delta[Pod]) -> None:
        nonlocal left, began
        if delta.before is None:
            began = time.perf_counter()  # the list is being taken in; the last of these counts
            return
        left -= 1
        if not left:
            done.set()

    informer = pod_informer(Script(pages, stream), trim)
    with informer.subscribe(tell):
        await run_until(informer, done)
    return time.perf_counter() - began


def _decoded(stream: list[bytes], decode: Callable[[bytes], Any]) -> float:
    """The same bytes into a dictionary: no version compared, nobody told."""
    cache = {}
    began = time.perf_counter()
    for line in b"".join(stream).splitlines():
        found = decode(line)["object"]
        cache[found["metadata"]["namespace"], found["metadata"]["name"]] = found
    return time.perf_counter() - began


def _uncollected(stream: list[bytes]) -> float:
    with collector_off():
        return _decoded(stream, msgspec.json.decode)


def queue(count: int, rounds: int) -> Figures:
    """One worker, one key after the other; and eight workers on a backlog."""
    single = [asyncio.run(_one_by_one(count)) for _ in range(rounds)]
    backlog = [asyncio.run(_backlog(count)) for _ in range(rounds)]
    return {"one_by_one": count / median(single), "backlog_of_eight_workers": count / median(backlog)}


async def _one_by_one(count: int) -> float:
    clock = SystemClock()
    waiting: WorkQueue[Key] = WorkQueue(default_retry_limiter(clock), clock)
    keys = [Key("bench", f"job-{number}") for number in range(count)]
    began = time.perf_counter()
    for key in keys:
        waiting.add(key)
        async with waiting.lease():
            pass
        waiting.forget(key)
    return time.perf_counter() - began


async def _backlog(count: int) -> float:
    clock = SystemClock()
    waiting: WorkQueue[Key] = WorkQueue(default_retry_limiter(clock), clock)
    keys = [Key("bench", f"job-{number}") for number in range(count)]

    async def work() -> None:
        while len(waiting):
            async with waiting.lease() as key:
                await asyncio.sleep(0)
            waiting.forget(key)

    began = time.perf_counter()
    for key in keys:
        waiting.add(key)
    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(work())
    return time.perf_counter() - began


def start(rounds: int) -> Figures:
    """`gangline --version` beside the interpreter doing nothing, one after the other."""
    command = str(Path(sysconfig.get_path("scripts")) / "gangline")
    bare, ours = [], []
    for _ in range(rounds):
        bare.append(_ran(sys.executable, "-c", "pass"))
        ours.append(_ran(command, "--version"))
    return {"bare": median(bare), "version": median(ours), "ratio": median(ours) / median(bare)}


def _ran(*command: str) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def report(found: Figures) -> None:
    events, cycles, begun = found["watch"], found["queue"], found["start"]
    peer = max(events["dict_msgspec"], events["dict_json"])
    rows = [
        ("watch events, gangline informer", rate(events["informer"]), times(events["informer"] / peer)),
        ("watch events, equal parts shared", rate(events["sharing"]), times(events["sharing"] / peer)),
        ("watch events, dict of msgspec", rate(events["dict_msgspec"]), ""),
        ("watch events, dict of json.loads", rate(events["dict_json"]), ""),
        ("watch events, dict of msgspec, no GC", rate(events["dict_without_gc"]), ""),
        ("queue: add, lease, forget", rate(cycles["one_by_one"]), ""),
        ("queue: the same, 8 workers on a backlog", rate(cycles["backlog_of_eight_workers"]), ""),
        ("start: bare interpreter", seconds(begun["bare"]), ""),
        ("start: gangline --version", seconds(begun["version"]), times(begun["ratio"])),
    ]
    show("In this process, no server", ("", "", "ratio"), rows)
