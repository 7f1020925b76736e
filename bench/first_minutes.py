"""The first minutes beside torchrun and Ray: set-up and a hello world, the start of `run`, and `get` beside `kubectl get`.

Set-up: an empty virtual environment each time, filled from pip's cache (a first round, which fills it, does not count),
then a hello world of two processes. gangline as `make install` does it (with pip, and with uv if it is on PATH) and
`make demo` as a whole; torch as hack/frameworks.sh brings it (without the CUDA libraries); Ray by `pip install ray`.

Start: from typing `gangline run --nproc 1 -- python hello.py` to the first line of hello.py, beside `python hello.py` alone;
also with an empty state folder, as the first run of a user has it.

All by turns. Exits with 1 when a goal is missed.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.cli_bench import measured
from bench.measure import Figures, concluded, installed_environment, machine, median, seconds, show, times

from support.readme import fresh_clone

ROOT = Path(__file__).resolve().parents[1]
GREETING = "hello from a process"
HELLO = f"import os\nprint('{GREETING}', os.environ.get('RANK', '0'), flush=True)\n"
RAY_HELLO = f"""
import ray
ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
@ray.remote
def hello(rank):
    return f"{GREETING} {{rank}}"
for text in ray.get([hello.remote(rank) for rank in range(2)]):
    print(text, flush=True)
"""
PARTS = ("setup", "start", "get")
FIRST_RUN = "gangline run, first"
"""With an empty state folder, so that certificates must be issued."""
MOST_SETUP_SECONDS, MOST_START_SECONDS, MOST_GET_RATIO = 30.0, 0.7, 1.2
_SETUP_LINE = re.compile(r"set-up: (\d+) packages in ([\d.]+) s")

PEERS = ("torchrun", "ray")


class CommandFailed(Exception):
    """A command of a side ended with an error."""


Side = Callable[[Path], Figures]
"""Sets up in an empty folder and says hello; returns the seconds of both, and more."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="all by default")
    parser.add_argument("--sides", default="", help="of set-up: some of gangline,gangline-uv,demo,torchrun,ray (all)")
    parser.add_argument("--rounds", type=int, default=3, help="of set-up (3)")
    parser.add_argument("--starts", type=int, default=20, help="rounds of start and get (20)")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    parts = options.parts
    began = time.perf_counter()
    print("Machine:", ", ".join(f"{name} {value}" for name, value in machine().items()), flush=True)
    found: Figures = {"machine": machine()}
    missed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="gangline-bench-") as name:
        folder = Path(name)
        (folder / "hello.py").write_text(HELLO)
        (folder / "ray_hello.py").write_text(RAY_HELLO)
        if "setup" in parts:
            found["setup"] = setup_part(folder, options.sides, options.rounds)
            missed += show_setup(found["setup"])
        if "start" in parts:
            found["start"] = start_part(folder, options.starts)
            missed += show_start(found["start"])
        if "get" in parts:
            found["get"] = get_part(folder, options.starts)
            missed += show_get(found["get"])
    return concluded(found, began, options.json, missed)


# Set-up


def setup_part(folder: Path, names: str, rounds: int) -> Figures:
    sides = all_sides(folder)
    chosen = {name: sides[name] for name in names.split(",")} if names else sides
    runs: dict[str, list[Figures]] = {name: [] for name in chosen}
    for number in range(rounds + 1):
        for name in chosen if number % 2 == 0 else reversed(chosen):
            place = folder / f"{name}-{number}"
            place.mkdir()
            label = f"round {number}" if number else "warm-up"
            try:
                figures = chosen[name](place)
            except CommandFailed as error:
                # A peer may give up on a busy machine (Ray does): its round does not count. We may not.
                if name not in PEERS:
                    raise SystemExit(str(error)) from None
                print(f"  {label}: {name} failed: {error}", file=sys.stderr, flush=True)
                continue
            finally:
                shutil.rmtree(place, ignore_errors=True)
            print(f"  {label}: {name} {seconds(figures['total'])}", file=sys.stderr, flush=True)
            if number:
                runs[name].append(figures)
    return {name: {**medians(these), "runs": these} for name, these in runs.items() if these}


def all_sides(folder: Path) -> dict[str, Side]:
    """The sides that this machine can play."""

    def ours(place: Path, uv: str) -> Figures:
        clone = fresh_clone(ROOT, place / "clone")
        setup, output = timed(["make", "install", f"UV={uv}"], cwd=clone)
        hello, _ = timed(
            [".venv/bin/gangline", "run", "--nproc", "2", "--", "python", str(folder / "hello.py")], cwd=clone
        )
        found = _SETUP_LINE.search(output)
        assert found is not None, output
        return {"setup": setup, "hello": hello, "total": setup + hello, "packages": int(found[1])}

    def demo(place: Path) -> Figures:
        clone = fresh_clone(ROOT, place / "clone")
        total, output = timed(["make", "demo"], cwd=clone)
        found = _SETUP_LINE.search(output)
        assert found is not None, output
        setup = float(found[2])
        return {"setup": setup, "hello": total - setup, "total": total, "packages": int(found[1])}

    def torchrun(place: Path) -> Figures:
        environment = {**os.environ, "GANGLINE_CACHE": str(place)}
        setup, output = timed([str(ROOT / "hack" / "frameworks.sh"), "torch"], env=environment)
        binaries = Path(output.strip().splitlines()[-1].split(" ", 1)[1]) / "bin"
        hello, _ = timed([str(binaries / "torchrun"), "--nproc-per-node", "2", str(folder / "hello.py")])
        return {"setup": setup, "hello": hello, "total": setup + hello, "packages": packages(binaries)}

    def ray(place: Path) -> Figures:
        venv = place / "venv"
        first, _ = timed([sys.executable, "-m", "venv", str(venv)])
        second, _ = timed([str(venv / "bin" / "pip"), "install", "--quiet", "ray"])
        hello, _ = timed([str(venv / "bin" / "python"), str(folder / "ray_hello.py")])
        setup = first + second
        return {"setup": setup, "hello": hello, "total": setup + hello, "packages": packages(venv / "bin")}

    sides: dict[str, Side] = {"gangline": lambda place: ours(place, ""), "demo": demo, "torchrun": torchrun, "ray": ray}
    if shutil.which("uv"):
        sides["gangline-uv"] = lambda place: ours(place, "uv")
    return sides


def packages(binaries: Path) -> int:
    """The packages of an environment, without pip and setuptools, which every one has."""
    listed = subprocess.run(
        [str(binaries / "python"), "-m", "pip", "list", "--format", "freeze"],
        check=True,
        capture_output=True,
        text=True,
    )
    names = {line.partition("==")[0] for line in listed.stdout.splitlines()}
    return len(names - {"pip", "setuptools"})


def timed(command: Sequence[str], **options: Any) -> tuple[float, str]:
    """The seconds of a command, and what it printed. Says what it printed if it fails."""
    began = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    took = time.perf_counter() - began
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout[-2000:]}")
    return took, done.stdout


def medians(runs: Sequence[Figures]) -> Figures:
    return {name: median(run[name] for run in runs) for name in runs[0]}


def show_setup(found: Figures) -> list[str]:
    """Print the table, and return what was missed."""
    ours = found.get("gangline")
    rows = [
        [
            name,
            f"{figures['packages']:.0f}",
            seconds(figures["setup"]),
            seconds(figures["hello"]),
            seconds(figures["total"]),
            times(figures["total"] / ours["total"]) if ours else "",
        ]
        for name, figures in found.items()
    ]
    show("From nothing to a hello world", ["side", "packages", "set-up", "hello", "together", "times ours"], rows)
    missed = [
        f"{name}: set-up took {figures['setup']:.1f} s, at most {MOST_SETUP_SECONDS:.0f} s"
        for name, figures in found.items()
        if name.startswith(("gangline", "demo")) and figures["setup"] > MOST_SETUP_SECONDS
    ]
    peers = [name for name in PEERS if ours and name in found and found[name]["total"] < ours["total"]]
    return missed + [f"set-up and hello of {name} were faster" for name in peers]


# The start of `gangline run`


def start_part(folder: Path, rounds: int) -> Figures:
    """Seconds to the first line of the user's program, by turns; the first round does not count."""
    python, script = sys.executable, str(folder / "hello.py")
    ours = str(Path(python).with_name("gangline"))
    run = [ours, "run", "--nproc", "1", "--", python, script]
    commands = {"python": [python, script], "gangline run": run, FIRST_RUN: run}
    runs: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name in commands if number % 2 == 0 else reversed(commands):
            state = folder / (f"state-{number}" if name == FIRST_RUN else "state")
            runs[name].append(first_line_after(commands[name], folder, state))
    return {
        name: {"seconds": median(these[1:]), "least": min(these[1:]), "runs": these[1:]} for name, these in runs.items()
    }


def first_line_after(command: Sequence[str], folder: Path, state: Path) -> float:
    """Seconds from the start of a command to the greeting of the program in it."""
    environment = {**installed_environment(folder), "XDG_STATE_HOME": str(state)}
    began = time.perf_counter()
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as it:
        assert it.stdout is not None
        for line in it.stdout:
            if GREETING.encode() in line:
                took = time.perf_counter() - began
                it.stdout.read()
                return took
    raise SystemExit(f"{' '.join(command)}: never said hello (exit code {it.returncode})")


def show_start(found: Figures) -> list[str]:
    over = found["gangline run"]["seconds"] - found["python"]["seconds"]
    rows = [[name, seconds(figures["seconds"]), seconds(figures["least"])] for name, figures in found.items()]
    rows.append(["gangline over python", seconds(over), ""])
    show("To the first line of hello.py", ["command", "median", "least"], rows)
    return [f"{over:.2f} s over python, at most {MOST_START_SECONDS} s"] if over > MOST_START_SECONDS else []


# `gangline get` beside `kubectl get`


def get_part(folder: Path, rounds: int) -> Figures:
    kubectl, ours = shutil.which("kubectl"), str(Path(sys.executable).with_name("gangline"))
    if kubectl is None:
        raise SystemExit("kubectl is not on PATH; install it, or leave out the part: --parts setup start")
    with plane(folder / "plane", ours) as environment:
        commands = {"kubectl get": [kubectl, "get", "pods", "-A"], "gangline get": [ours, "get", "pods", "-A"]}
        taken = measured(commands, environment, rounds)
    return {name: {"seconds": took.wall, "cpu": took.cpu} for name, took in taken.items()}


@contextmanager
def plane(folder: Path, ours: str) -> Iterator[Mapping[str, str]]:
    """A plane of this machine, as `gangline up` starts it; the environment in which both commands find it."""
    folder.mkdir()
    environment = {**installed_environment(folder), "KUBECONFIG": str(folder / "kubeconfig")}
    subprocess.run([ours, "up", "--detach", "--dir", str(folder)], check=True, capture_output=True, env=environment)
    try:
        yield environment
    finally:
        subprocess.run([ours, "down", "--dir", str(folder)], check=True, capture_output=True, env=environment)


def show_get(found: Figures) -> list[str]:
    ratio = found["gangline get"]["seconds"] / found["kubectl get"]["seconds"]
    rows = [[name, seconds(took["seconds"]), seconds(took["cpu"])] for name, took in found.items()]
    show("Pods of the same plane", ["command", "seconds", "processor"], [*rows, ["ratio", times(ratio), ""]])
    return (
        [f"get took {ratio:.2f} times as long as kubectl, at most {MOST_GET_RATIO}"] if ratio > MOST_GET_RATIO else []
    )


if __name__ == "__main__":
    sys.exit(main())
