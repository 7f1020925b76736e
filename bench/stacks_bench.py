"""Stacks of 64 local ranks: `python bench/stacks_bench.py [--ranks 64] [--rounds 5]`, as `make bench-stacks` does.

Starts as many Python programs, each behind a shell and with four threads, and samples them all: the time of a sample,
and of the whole command's work with groups and sentence. Exits with 1 if the median takes 2 seconds or more.
"""

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gangline.stacks.groups import odd_ranks, stack_groups
from gangline.stacks.sampling import SampleTarget, sample_processes
from gangline.stacks.sentence import stacks_sentence

LIMIT_SECONDS = 2.0
PROGRAM = """\
import os
import threading
import time

def worker():
    threading.Event().wait()

def load():
    time.sleep(3600)

def all_reduce():
    threading.Lock().__enter__()
    os.read(os.pipe()[0], 1)

for _ in range(3):
    threading.Thread(target=worker, daemon=True).start()
print("ready", flush=True)
load() if os.environ["RANK"] == "1" else all_reduce()
"""


def start_rank(file: Path, rank: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        ["sh", "-c", f"{sys.executable} -S {file}; true"],
        env={**os.environ, "RANK": str(rank)},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


async def measure(targets: list[SampleTarget], rounds: int) -> list[float]:
    times = []
    for number in range(rounds + 1):
        begin = time.monotonic()
        groups = stack_groups(await sample_processes(targets))
        sentence, odd = stacks_sentence(groups), odd_ranks(groups)
        # The first round reads everything from disk.
        if number:
            times.append(time.monotonic() - begin)
        else:
            print(sentence, file=sys.stderr)
            assert odd == ("worker-1 (rank 1)",), sentence
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.py"
        file.write_text(PROGRAM)
        processes = [start_rank(file, rank) for rank in range(options.ranks)]
        try:
            for process in processes:
                assert process.stdout is not None
                process.stdout.readline()
            targets = [SampleTarget(f"worker-{n}", n, f"job-worker-{n}", p.pid) for n, p in enumerate(processes)]
            times = asyncio.run(measure(targets, options.rounds))
        finally:
            for process in processes:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
    median = statistics.median(times)
    print(f"{options.ranks} ranks: median {median:.2f} s, worst {max(times):.2f} s of {len(times)}")
    return int(median >= LIMIT_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
