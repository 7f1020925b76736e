"""Runs a simulation, and writes its event log and its progress."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import msgspec

from gangline.api.durations import human_duration
from gangline.base.errors import InputError
from gangline.cli.output.tables import is_ansi_terminal
from gangline.cli.simulate.request import SimulateRequest
from gangline.scheduler.simulation.engine import Simulation, SimulationEvent
from gangline.scheduler.simulation.report import SimulationReport, simulation_report

PROGRESS_INTERVAL = 1.0
"""Seconds between two updates of the progress line on a terminal."""


class SimulateResult(msgspec.Struct, frozen=True):
    """A finished simulation. `cycle_seconds` is the measured computing time of each cycle, in ascending order."""

    request: SimulateRequest
    report: SimulationReport
    cycle_seconds: list[float]


def run_simulation(request: SimulateRequest, log: Path | None) -> SimulateResult:
    """Run the simulation. Writes events to `log` as they happen, and on a terminal shows the progress on stderr."""
    with _event_log(log) as write, _progress_line(len(request.jobs)) as update:

        def on_event(event: SimulationEvent) -> None:
            write(event)
            update(event)

        # There are millions of events: they are not even built if nothing reads them.
        note = on_event if log is not None or is_ansi_terminal(sys.stderr) else None
        simulation = Simulation(
            request.node_pools, request.jobs, request.rules, on_event=note, stopwatch=time.perf_counter
        )
        outcome = simulation.run()
    return SimulateResult(request, simulation_report(outcome), sorted(outcome.cycle_seconds))


@contextmanager
def _event_log(path: Path | None) -> Iterator[Callable[[SimulationEvent], None]]:
    if path is None:
        yield lambda _: None
        return
    encoder = msgspec.json.Encoder()
    try:
        with path.open("wb") as file:

            def write(event: SimulationEvent) -> None:
                file.write(encoder.encode(event) + b"\n")

            yield write
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


@contextmanager
def _progress_line(jobs: int) -> Iterator[Callable[[SimulationEvent], None]]:
    if not is_ansi_terminal(sys.stderr):
        yield lambda _: None
        return
    finished, updated_at = 0, time.monotonic()

    def update(event: SimulationEvent) -> None:
        nonlocal finished, updated_at
        finished += event.event == "end"
        if time.monotonic() - updated_at >= PROGRESS_INTERVAL:
            updated_at = time.monotonic()
            simulated = human_duration(timedelta(seconds=event.at))
            sys.stderr.write(f"\r\x1b[K{simulated} simulated, {finished:,} of {jobs:,} jobs ended")
            sys.stderr.flush()

    try:
        yield update
    finally:
        sys.stderr.write("\r\x1b[K")
