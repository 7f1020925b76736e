"""How a job is shown while somebody waits for it: a bar in a terminal, a picture in a notebook, nothing elsewhere."""

import sys
from contextlib import AbstractContextManager
from typing import Any, Protocol

from gangline.sdk.job import Job


class ProgressDisplay(AbstractContextManager["ProgressDisplay"], Protocol):
    """Is told of every change."""

    def update(self, job: Job) -> None: ...


def progress_display(asked: bool | None) -> ProgressDisplay:
    """What suits the place; True wants something, False nothing."""
    if asked is False:
        return NoDisplay()
    if _in_notebook():
        return NotebookDisplay()
    return TerminalDisplay() if asked or sys.stderr.isatty() else NoDisplay()


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


class NoDisplay(AbstractContextManager["NoDisplay"]):
    def __exit__(self, *error: object) -> None: ...

    def update(self, job: Job) -> None: ...


class TerminalDisplay(AbstractContextManager["TerminalDisplay"]):
    """One line that is drawn anew, on stderr."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._task = self._progress.add_task("", total=None, told="")

    def __enter__(self) -> "TerminalDisplay":
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def update(self, job: Job) -> None:
        found = job.status.progress
        ended = job.status.finished
        numbers = "" if found is None else " ".join(f"{name}={value:.4g}" for name, value in found.metrics.items())
        total = 1.0 if ended else found.total if found is not None else None
        done = 1.0 if ended else found.step if found is not None else 0.0
        self._progress.update(
            self._task,
            description=f"{job.kind} {job.metadata.name} {job.state}",
            total=total,
            completed=done,
            told=numbers,
        )


class NotebookDisplay(AbstractContextManager["NotebookDisplay"]):
    """The picture of the job, in place."""

    def __init__(self) -> None:
        self._handle: Any = None

    def __exit__(self, *error: object) -> None: ...

    def update(self, job: Job) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(job, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(job)
