"""What all parts need: the machine, memory of this process, medians, and a table."""

import gc
import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Figures = dict[str, Any]
"""What a part measured: goes to the JSON file as it is."""


def machine() -> Figures:
    cpu = _field(Path("/proc/cpuinfo"), "model name") or platform.processor() or platform.machine()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    }


def installed_environment(folder: Path) -> dict[str, str]:
    """This environment, in which programs have their bytecode (in a folder), as installed programs have it."""
    others = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**others, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


def resident(name: str = "VmRSS") -> int:
    """Bytes of this process in memory now, or at most (`VmHWM`)."""
    kilobytes = _field(Path("/proc/self/status"), name).removesuffix(" kB")
    if kilobytes:
        return int(kilobytes) * 1024
    # Without /proc there is only the peak.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@contextmanager
def collector_off() -> Iterator[None]:
    """Without garbage collection, which by default is most of what a growing cache of dictionaries costs."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _field(file: Path, name: str) -> str:
    if not file.exists():
        return ""
    lines = (line.partition(":") for line in file.read_text().splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), "")


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that so many of a hundred do not exceed."""
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]


def seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


def size(value: float) -> str:
    return f"{value / 1000:.1f} kB" if value < 1e6 else f"{value / 1e6:.0f} MB"


def rate(value: float) -> str:
    return f"{value:,.0f}/s"


def times(value: float) -> str:
    return f"{value:.1f}x"


def show(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: the first column to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    print(f"\n{title}")
    for row in (head, *rows):
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  " + "  ".join([row[0].ljust(widths[0]), *cells]).rstrip(), flush=True)


def concluded(found: Figures, began: float, file: Path | None, missed: Iterable[str]) -> int:
    """Say how long all of it took and what was missed, and write the figures down. Gives the exit code."""
    found["seconds"] = time.perf_counter() - began
    print(f"\n{found['seconds']:.0f} s in all")
    if file:
        file.write_text(json.dumps(found, indent=2) + "\n")
    lines = list(missed)
    for line in lines:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if lines else 0
