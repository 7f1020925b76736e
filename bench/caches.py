"""Decoding and caching a list of pods: gangline's informer beside dictionaries of decoded JSON.

As a program, one way of doing it in a fresh process: `caches.py VARIANT FOLDER_OF_PAGES traced|resident`.
"""

import gc
import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Sized
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import msgspec
from bench.feed import filled
from bench.measure import Figures, collector_off, median, resident, seconds, show, size, times

from gangline.runtime.interning import ObjectInterner

Pages = Iterable[bytes]


def informer(pages: Pages) -> Sized:
    return filled(pages).cache


def sharing(pages: Pages) -> Sized:
    # With the informer, for it keeps the parts.
    return _Kept(filled(pages, ObjectInterner()))


def dict_msgspec(pages: Pages) -> Sized:
    return _dictionary(pages, msgspec.json.decode)


def dict_json(pages: Pages) -> Sized:
    return _dictionary(pages, json.loads)


def dict_trimmed(pages: Pages) -> Sized:
    """As careful people do it: what takes half of the memory and is never looked at is dropped."""

    def decode(page: bytes) -> Any:
        found = json.loads(page)
        for item in found["items"]:
            del item["metadata"]["managedFields"]
        return found

    return _dictionary(pages, decode)


class _Kept:
    def __init__(self, informer: Any) -> None:
        self.informer = informer

    def __len__(self) -> int:
        return len(self.informer.cache)


def _dictionary(pages: Pages, decode: Callable[[bytes], Any]) -> Sized:
    cache: dict[tuple[str, str], Any] = {}
    for page in pages:
        for item in decode(page)["items"]:
            metadata = item["metadata"]
            cache[metadata["namespace"], metadata["name"]] = item
    return cache


OURS, SHARED, MSGSPEC, JSON, TRIMMED = "informer", "sharing", "dict_msgspec", "dict_json", "dict_trimmed"
VARIANTS: dict[str, Callable[[Pages], Sized]] = {
    OURS: informer,
    SHARED: sharing,
    MSGSPEC: dict_msgspec,
    JSON: dict_json,
    TRIMMED: dict_trimmed,
}
TITLES = {
    OURS: "gangline informer",
    SHARED: "gangline informer, equal parts shared",
    MSGSPEC: "dict of msgspec.json.decode",
    JSON: "dict of json.loads",
    TRIMMED: "dict of json.loads, no managedFields",
}
DICTS = (MSGSPEC, JSON)
"""The peers that count: the smallest and the fastest of them, each where it is best."""


def measure(folder: Path, total: int, rounds: int) -> Figures:
    """Times of alternating rounds in this process; memory of a fresh process for each."""
    pages = [file.read_bytes() for file in sorted(folder.iterdir())]
    took: dict[str, list[float]] = {name: [] for name in VARIANTS}
    uncollected: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for turn in range(rounds):
        for name, fill in VARIANTS.items():
            # Once is enough for the one that is there for its size.
            if turn == 0 or name != TRIMMED:
                took[name].append(_timed(fill, pages, total))
                with collector_off():
                    uncollected[name].append(_timed(fill, pages, total))
    found = {
        name: {
            "seconds": median(took[name]),
            "rounds": took[name],
            "seconds_without_gc": median(uncollected[name]),
            "traced": _in_a_fresh_process(name, folder, "traced")["bytes"] / total,
            **{key: value / total for key, value in _in_a_fresh_process(name, folder, "resident").items()},
        }
        for name in VARIANTS
    }
    return {
        "pods": total,
        "json_bytes_per_pod": sum(map(len, pages)) / total,
        "variants": found,
        "faster": {name: _against(found, name, "seconds") for name in (OURS, SHARED)},
        "faster_without_gc": {name: _against(found, name, "seconds_without_gc") for name in (OURS, SHARED)},
        "smaller": {name: _against(found, name, "traced") for name in (OURS, SHARED)},
        "smaller_rss": {name: _against(found, name, "bytes") for name in (OURS, SHARED)},
    }


def _timed(fill: Callable[[Pages], Sized], pages: list[bytes], total: int) -> float:
    gc.collect()
    began = time.perf_counter()
    cache = fill(pages)
    took = time.perf_counter() - began
    assert len(cache) == total
    return took


def _against(found: dict[str, Figures], name: str, figure: str) -> float:
    best: float = min(found[peer][figure] for peer in DICTS)
    return best / float(found[name][figure])


def _in_a_fresh_process(name: str, folder: Path, how: str) -> dict[str, int]:
    done = subprocess.run([sys.executable, __file__, name, str(folder), how], check=True, stdout=subprocess.PIPE)
    answer: dict[str, int] = json.loads(done.stdout)
    return answer


def report(found: Figures) -> None:
    def row(name: str) -> tuple[str, ...]:
        one = found["variants"][name]
        ratios = [
            times(found[figure][name]) if name in found[figure] else ""
            for figure in ("faster", "faster_without_gc", "smaller_rss", "smaller")
        ]
        return (
            TITLES[name],
            seconds(one["seconds"]),
            seconds(one["seconds_without_gc"]),
            size(one["bytes"]),
            size(one["traced"]),
            size(one["peak"]),
            *ratios,
        )

    show(
        f"Decode and cache {found['pods']:,} pods of {size(found['json_bytes_per_pod'])} JSON, pages of 500",
        (
            "",
            "time",
            "no GC",
            "RSS/pod",
            "traced/pod",
            "peak/pod",
            "faster",
            "no GC",
            "less RSS",
            "less traced",
        ),
        [row(name) for name in VARIANTS],
    )


def _child(name: str, folder: Path, how: str) -> None:
    files = sorted(folder.iterdir())
    fill = VARIANTS[name]
    fill([b'{"metadata":{},"items":[]}'])  # imports and decoders
    gc.collect()
    if how == "traced":
        tracemalloc.start()
    before = resident()
    cache = fill(file.read_bytes() for file in files)
    gc.collect()
    if how == "traced":
        print(json.dumps({"bytes": tracemalloc.get_traced_memory()[0]}))
    else:
        print(json.dumps({"bytes": resident() - before, "peak": resident("VmHWM") - before}))
    assert len(cache)


if __name__ == "__main__":
    _child(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
