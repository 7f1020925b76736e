"""How fast and how small the runtime is, side by side with its peers. Run it as `make bench-runtime`.

Figures of a shared machine are noise; ratios of what ran side by side are not. Exits with 1 when a promised ratio
is missed: five times less memory and three times less time than a cache of dictionaries, and `gangline --version`
within two and a half bare interpreters.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import caches, handling, pods
from bench.measure import Figures, concluded, machine

PARTS = ("cache", "process", "server")
LESS_MEMORY, LESS_TIME, LONGEST_START = 5.0, 3.0, 2.5
FULL = 10_000


def main() -> int:
    asked = _arguments()
    began = time.perf_counter()
    found: Figures = {"machine": machine(), "pods": asked.pods}
    print("Machine:", ", ".join(f"{name} {value}" for name, value in found["machine"].items()))
    with tempfile.TemporaryDirectory(prefix="gangline-bench-") as folder:
        if "cache" in asked.parts:
            _write_pages(Path(folder), asked.pods)
            found["cache"] = caches.measure(Path(folder), asked.pods, asked.rounds)
            caches.report(found["cache"])
    if "process" in asked.parts:
        found |= _process(asked.pods, asked.rounds)
        handling.report(found)
    if "server" in asked.parts:
        found |= _server(asked.pods, asked.rounds)
    return concluded(found, began, asked.json, broken_promises(found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--pods", type=int, help="how many pods (10,000; with --quick 2,000)")
    parser.add_argument("--rounds", type=int, help="how often what is timed is repeated (5; with --quick 3)")
    parser.add_argument("--quick", action="store_true", help="a smaller run")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure (all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    asked = parser.parse_args()
    asked.pods = asked.pods or (2_000 if asked.quick else FULL)
    asked.rounds = asked.rounds or (3 if asked.quick else 5)
    return asked


def _write_pages(folder: Path, total: int) -> None:
    for number, page in enumerate(pods.pages(total)):
        (folder / f"{number:05d}.json").write_bytes(page)


def _process(total: int, rounds: int) -> Figures:
    pages = list(pods.pages(total))
    stream = handling.chunks(pods.changes(total))
    return {
        "watch": handling.watch(pages, stream, total, rounds),
        "queue": handling.queue(50_000, rounds),
        "start": handling.start(rounds * 4),
    }


def _server(total: int, rounds: int) -> Figures:
    # Here: it needs what only a developer's environment has.
    from bench import live

    absent = live.missing()
    if absent:
        print(f"\n{absent}")
        return {}
    found = live.measure(total, rounds, requests=1000)
    live.report(found)
    return {"server": found}


def broken_promises(found: Figures) -> list[str]:
    """One line for each ratio that is worse than promised."""
    checks: list[tuple[str, float, float]] = []
    if "cache" in found:
        cache, ours = found["cache"], caches.OURS
        checks.append(("times faster than dictionaries", cache["faster"][ours], LESS_TIME))
        checks.append(("times less memory than dictionaries, traced", cache["smaller"][ours], LESS_MEMORY))
        if cache["pods"] >= FULL:  # fewer do not outweigh what a process takes anyway
            checks.append(("times less memory than dictionaries, RSS", cache["smaller_rss"][ours], LESS_MEMORY))
    missed = [f"{value:.1f} {what}, promised {least}" for what, value, least in checks if value < least]
    if "start" in found and found["start"]["ratio"] > LONGEST_START:
        missed.append(
            f"gangline --version takes {found['start']['ratio']:.1f} bare interpreters, promised {LONGEST_START}"
        )
    return missed


if __name__ == "__main__":
    sys.exit(main())
