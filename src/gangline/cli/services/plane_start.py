"""Waiting for a plane that starts in the background, as long as it makes progress."""

import subprocess
import time
from contextlib import suppress

import click
import psutil

from gangline.base.errors import InputError
from gangline.base.files import last_lines
from gangline.local.home import PlaneHome

IDLE_SECONDS = 60.0
"""How long a plane that starts may use no CPU: on a busy machine it uses little, and on an idle one it is ready in two."""
LIMIT_SECONDS = 600.0
SLOW_SECONDS = 10.0
"""After so long it is said what is waited for."""
NO_LINES = "its log is empty (is the disk full?)"
NO_LINES_YET = "it has written nothing yet, and used {cpu:.1f} s of CPU; is the machine busy? try again"


class StartWatch:
    """What is known of a plane that starts. Times are monotonic seconds."""

    def __init__(self, now: float) -> None:
        self._begun = self._progress_at = now
        self.cpu = 0.0

    def waited(self, now: float) -> float:
        """Seconds since the start."""
        return now - self._begun

    def gives_up(self, now: float, cpu: float) -> bool:
        """Whether to wait no longer for a plane that has used so much CPU by now."""
        if cpu > self.cpu:
            self.cpu, self._progress_at = cpu, now
        return now - self._progress_at >= IDLE_SECONDS or self.waited(now) >= LIMIT_SECONDS


def wait_until_ready(home: PlaneHome, process: "subprocess.Popen[bytes]", log_start: int) -> None:
    """Wait for a plane. Raises `InputError` if it ends, or if it does not go on with its start; then it is ended."""
    watch, has_spoken = StartWatch(time.monotonic()), False
    while home.lock.running_pid() != process.pid:
        now = time.monotonic()
        has_ended = process.poll() is not None
        if has_ended or watch.gives_up(now, _cpu_seconds(process.pid)):
            process.kill()
            process.wait()
            raise InputError(_failure(home, log_start, watch, None if has_ended else watch.waited(now)))
        if watch.waited(now) >= SLOW_SECONDS and not has_spoken:
            has_spoken = True
            what = f"waiting for process {process.pid}, which is starting the plane; the machine is busy"
            click.echo(f"{what} (its log: {home.log_file})", err=True)
        time.sleep(0.05)


def _cpu_seconds(pid: int) -> float:
    with suppress(psutil.Error):
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)
    return 0.0


def _failure(home: PlaneHome, log_start: int, watch: StartWatch, waited: float | None) -> str:
    """Why the plane is not ready: the last lines that it wrote, and where all of them are. `waited`: if it still ran."""
    what = "did not start" if waited is None else f"was not ready after {waited:.0f} s"
    empty = NO_LINES if waited is None else NO_LINES_YET.format(cpu=watch.cpu)
    lines = last_lines(home.log_file, start=log_start) or [empty]
    text = f": {lines[0]}" if len(lines) == 1 else ":" + "".join(f"\n  {line}" for line in lines)
    return f"{home.folder}: the plane {what}{text}\nits whole log: {home.log_file}"
