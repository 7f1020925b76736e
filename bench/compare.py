"""Two checkouts by turns: does a change cost anything? The old one runs twice per round, so its own noise is known.

    git worktree add ../old REVISION
    python bench/compare.py ../old scheduler_bench --sides gangline --loads 10x100 --nodes 500 --rounds 1 --small
    python bench/compare.py ../old operator_bench --operators gangline --workloads 100x2 --rounds 1
    python bench/compare.py ../old start

All that follows the name of a benchmark is passed on to it. Printed for every figure: the medians of old, old again and new,
new over old, and old over old. The new one costs nothing as long as the first ratio lies within what the second differs from 1.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = (("--version",), ("--help",), ("get", "jobs", "--kubeconfig", "/nowhere"), ("run", "--help"))
Figures = dict[str, dict[str, list[float]]]


def environment(checkout: Path) -> dict[str, str]:
    """The environment in which the interpreter that runs this uses the source of a checkout."""
    return {**os.environ, "PYTHONPATH": str(checkout / "src")}


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number in JSON, by its path. Single runs are left out: their medians are there too."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name != "runs":
                yield from leaves(item, f"{path}.{name}" if path else name)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, float(value)


def benchmark(checkout: Path, name: str, arguments: list[str]) -> dict[str, float]:
    """The figures of one run of a benchmark of a checkout."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        command = [sys.executable, f"bench/{name}.py", *arguments, "--json", str(file)]
        subprocess.run(command, cwd=checkout, env=environment(checkout), stdout=subprocess.DEVNULL, check=False)
        return dict(leaves(json.loads(file.read_text())))


def start(checkout: Path) -> dict[str, float]:
    """CPU seconds of short command lines."""
    seconds = {}
    for words in COMMANDS:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "gangline", *words]
        subprocess.run(command, env=environment(checkout), capture_output=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds[" ".join(words)] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds


def main() -> int:
    """Measure by turns and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="a checkout of the earlier revision")
    parser.add_argument("name", help="scheduler_bench, operator_bench, local_bench, ... or start")
    parser.add_argument("--turns", type=int, default=7, help="rounds (7)")
    asked, arguments = parser.parse_known_args()
    old = asked.old.resolve()
    sides = {"old": old, "old again": old, "new": ROOT}
    figures: Figures = defaultdict(lambda: defaultdict(list))
    for turn in range(asked.turns):
        for side in sides if turn % 2 == 0 else reversed(sides):
            checkout = sides[side]
            found = start(checkout) if asked.name == "start" else benchmark(checkout, asked.name, arguments)
            for figure, value in found.items():
                figures[figure][side].append(value)
            print(f"{turn + 1}/{asked.turns} {side}", file=sys.stderr)
    for figure, values in figures.items():
        if all(values[side] for side in sides) and median(values["old"]) > 0:
            one, two, new = (median(values[side]) for side in sides)
            ratios = f"new/old {2 * new / (one + two):.3f}  old/old {two / one:.3f}"
            print(f"{figure:50} {one:10.4g} {two:10.4g} {new:10.4g}  {ratios}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
