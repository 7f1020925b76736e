"""How fast the store is: commits with 1 and 32 in flight, a list of 5,000 objects, fan-out to 50 watchers.

Figures of a shared machine are noise; each durability runs next to the others, so compare those.
"""

import argparse
import asyncio
import copy
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.measure import Figures, machine, rate, seconds, show

from gangline.api.meta import JSON
from gangline.apiserver.store.paths import collection_prefix, object_path
from gangline.apiserver.store.records import StoreWrite
from gangline.apiserver.store.sqlite import Durability, SqliteJournal
from gangline.apiserver.store.store import Store

PODS = collection_prefix("", "pods")
SIZE = 4096
WATCHERS = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--commits", type=int, default=6_000, help="commits per measurement")
    parser.add_argument("--objects", type=int, default=5_000, help="objects in the list")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    asked = parser.parse_args()
    found: Figures = {"machine": machine()}
    print("Machine:", ", ".join(f"{name} {value}" for name, value in found["machine"].items()))
    with tempfile.TemporaryDirectory(prefix="gangline-bench-", dir=".") as folder:
        found |= asyncio.run(measure(Path(folder), asked.commits, asked.objects))
    report(found)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")


async def measure(folder: Path, commits: int, objects: int) -> Figures:
    stores: dict[str, Callable[[str], Store]] = {
        "full": lambda name: Store(SqliteJournal(folder / f"full-{name}", Durability.FULL)),
        "relaxed": lambda name: Store(SqliteJournal(folder / f"relaxed-{name}", Durability.RELAXED)),
        "memory": lambda _: Store(),
    }
    found: Figures = {"commits": {}}
    for kind, make in stores.items():
        for in_flight in (1, 32):
            async with make(f"{in_flight}") as store:
                found["commits"][f"{kind}, {in_flight} in flight"] = await committing(store, commits, in_flight)
    async with Store() as store:
        found["list"] = await listing(store, objects)
    for kind, make in stores.items():
        async with make("fan-out") as store:
            found[f"fan-out, {kind}"] = await fan_out(store, commits // 2)
    async with Store(SqliteJournal(folder / "full-32")) as store:
        pass
    began = time.perf_counter()
    async with Store(SqliteJournal(folder / "full-32")) as store:
        found["open"] = {"objects": store.count(), "seconds": time.perf_counter() - began}
    return found


def pod(number: int) -> JSON:
    """A pod-like object of about four kilobytes with a hundred values or so, made anew as a request makes one."""
    fields = {f"field-{index}": f"value-{index}-of-{number:06d}" for index in range(100)}
    body: JSON = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number}"}, "spec": fields}
    body["padding"] = "x" * max(0, SIZE - len(json.dumps(body)))
    return body


TEMPLATE = pod(0)


def write(number: int) -> StoreWrite:
    body = copy.copy(TEMPLATE)
    body["metadata"] = {"name": f"pod-{number}", "namespace": "bench"}
    return StoreWrite(object_path("", "pods", "bench", f"pod-{number:06d}"), body, 0)


async def committing(store: Store, commits: int, in_flight: int) -> Figures:
    numbers = iter(range(commits))
    took: list[float] = []

    async def client() -> None:
        for number in numbers:
            asked = time.perf_counter()
            await store.commit(write(number))
            took.append(time.perf_counter() - asked)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(client())
    elapsed = time.perf_counter() - began
    took.sort()
    return {"rate": commits / elapsed, "p50": took[commits // 2], "p99": took[commits * 99 // 100]}


async def listing(store: Store, objects: int) -> Figures:
    for number in range(objects):
        await store.commit(write(number))
    middle = store.revision
    for number in range(1_000):
        record = store.get(object_path("", "pods", "bench", f"pod-{number:06d}"))
        assert record is not None
        await store.commit(StoreWrite(record.path, json.loads(record.data), record.revision))
    return {
        "records": best(lambda: store.range(PODS)),
        "joined bytes": best(lambda: b",".join(record.data for record in store.range(PODS).records)),
        "page of 500": best(lambda: store.range(PODS, limit=500)),
        "1,000 changes ago": best(lambda: store.range(PODS, at=middle)),
        "count": best(lambda: store.count(PODS)),
    }


def best(action: Callable[[], object], rounds: int = 20) -> float:
    times: list[float] = []
    for _ in range(rounds):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return min(times)


async def fan_out(store: Store, commits: int) -> Figures:
    """32 writers, 50 watchers; the delay from visible to received, and events received per second."""
    late: list[float] = []
    visible: dict[int, float] = {}

    async def watcher() -> None:
        received = 0
        with store.watch(PODS, after=store.revision) as watch:
            async for events in watch:
                now = time.perf_counter()
                late.extend(now - visible.setdefault(event.record.revision, now) for event in events)
                received += len(events)
                if received == commits:
                    return

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(WATCHERS):
            group.create_task(watcher())
        await asyncio.sleep(0)
        group.create_task(committing(store, commits, 32))
    elapsed = time.perf_counter() - began
    late.sort()
    return {
        "commits": commits / elapsed,
        "events": commits * WATCHERS / elapsed,
        "last watcher p99": late[len(late) * 99 // 100],
    }


def report(found: Figures) -> None:
    show(
        f"Commits of {SIZE} bytes",
        ("", "rate", "p50", "p99"),
        [
            (name, rate(one["rate"]), f"{one['p50'] * 1000:.2f} ms", f"{one['p99'] * 1000:.2f} ms")
            for name, one in found["commits"].items()
        ],
    )
    rows = [(name, f"{value * 1000:.3f} ms") for name, value in found["list"].items()]
    show("List", ("", "best"), rows)
    kinds = [kind for kind in found if kind.startswith("fan-out")]
    show(
        f"Fan-out to {WATCHERS} watchers, 32 writers",
        ("", "commits", "events", "p99 behind the first watcher"),
        [
            (
                kind,
                rate(found[kind]["commits"]),
                rate(found[kind]["events"]),
                f"{found[kind]['last watcher p99'] * 1000:.2f} ms",
            )
            for kind in kinds
        ],
    )
    print(f"\nOpening {found['open']['objects']} objects: {seconds(found['open']['seconds'])}")


if __name__ == "__main__":
    main()
