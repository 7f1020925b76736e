"""Displays a job while a program waits for it: a progress bar in a terminal, HTML in a notebook."""

import sys
from contextlib import AbstractContextManager
from typing import Any, Protocol

from gangline.sdk.job import Job


class ProgressDisplay(AbstractContextManager["ProgressDisplay"], Protocol):
    """Shows every change of a job."""

    def update(self, job: Job) -> None: ...


def progress_display(show: bool | None) -> ProgressDisplay:
    """The display for a notebook or a terminal. False: none; None: none if stderr is no terminal."""
    if show is False:
        return NoDisplay()
    if _in_notebook():
        return NotebookDisplay()
    return TerminalDisplay() if show or sys.stderr.isatty() else NoDisplay()


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


class NoDisplay(AbstractContextManager["NoDisplay"]):
    def __exit__(self, *error: object) -> None: ...

    def update(self, job: Job) -> None: ...


class TerminalDisplay(AbstractContextManager["TerminalDisplay"]):
    """A progress bar on stderr."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[metrics]}"),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._task = self._progress.add_task("", total=None, metrics="")

    def __enter__(self) -> "TerminalDisplay":
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def update(self, job: Job) -> None:
        progress, finished = job.status.progress, job.status.finished
        metrics = progress.metrics.items() if progress is not None else ()
        total = 1.0 if finished else progress.total if progress is not None else None
        completed = 1.0 if finished else progress.step if progress is not None else 0.0
        self._progress.update(
            self._task,
            description=f"{job.kind} {job.metadata.name} {job.state}",
            total=total,
            completed=completed,
            metrics=" ".join(f"{name}={value:.4g}" for name, value in metrics),
        )


class NotebookDisplay(AbstractContextManager["NotebookDisplay"]):
    """The HTML of the job, updated in place."""

    def __init__(self) -> None:
        self._handle: Any = None

    def __exit__(self, *error: object) -> None: ...

    def update(self, job: Job) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(job, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(job)
