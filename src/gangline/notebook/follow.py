"""Follows a started team to its end, and stops it when the user interrupts the cell."""

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from gangline.api.core import Pod, PodPhase
from gangline.api.kubeflow.training import REPLICA_INDEX, REPLICA_TYPE
from gangline.base.clock import Clock
from gangline.notebook.team_display import TeamDisplay
from gangline.notebook.team_view import STOPPED, TeamView
from gangline.sdk.client import TrainingClient
from gangline.sdk.errors import JobFailed, TrainingError
from gangline.sdk.job import Job
from gangline.sdk.logs import JobLogLine
from gangline.sdk.outcome.rank_failures import first_rank_failure
from gangline.sdk.train import Run

REDRAW_SECONDS = 0.2
LAST_LINES_SECONDS = 10.0
"""How long the logs of ranks are followed that go on after their job has succeeded."""
LAST_STATES_SECONDS = 5.0
"""How long the states of ranks are awaited whose logs have ended."""
STOP_SECONDS = 40.0
"""How long an interrupted team may take to end: its grace period and a bit."""


class TeamStopped(KeyboardInterrupt):
    """The user interrupted the cell, and the team was stopped."""

    def _render_traceback_(self) -> list[str]:
        return [f"KeyboardInterrupt: {self}"]


class SourceEnd(NamedTuple):
    """A source of events has ended, maybe by an error."""

    source: str
    error: Exception | None = None


class TeamFollower:
    """Follows one team."""

    def __init__(self, client: TrainingClient, run: Run, job: Job, display: TeamDisplay, clock: Clock) -> None:
        self._client, self._run, self._display, self._clock = client, run, display, clock
        self._view = TeamView(job)
        self._job_arguments: dict[str, Any] = {"namespace": job.metadata.namespace, "job_kind": job.kind}
        self._events: queue.SimpleQueue[Job | JobLogLine | SourceEnd] = queue.SimpleQueue()
        self._open_sources: set[str] = set()
        self._started = clock.monotonic()
        self._drawn = 0.0

    def follow(self) -> Job:
        """Show the team until its end. Raises `JobFailed`, and `TeamStopped` if the user interrupts."""
        self._start("job", lambda: self._client.watch_job(self._run.name, **self._job_arguments))
        self._start("logs", lambda: self._client.follow_logs(self._run.name, **self._job_arguments))
        try:
            self._wait(lambda: self._view.job.status.finished or not self._open_sources, None)
            if self._view.job.state == "Failed":
                self._stop_survivors()
            self._wait(lambda: "logs" not in self._open_sources, LAST_LINES_SECONDS)
            if "logs" not in self._open_sources:
                self._wait(self._pods_have_ended, LAST_STATES_SECONDS)
        except KeyboardInterrupt:
            self._stop()
        job = self._view.job
        self._update_pods()
        if not job.status.finished:
            self._draw(state="Deleted", outcome="the job was deleted", last=True)
            raise TrainingError(f"job {self._run.name} was deleted")
        failure = first_rank_failure(job.facts, self._pods(), self._view.lines)
        if job.state == "Failed" or failure is not None:
            error = JobFailed(job, job.status.first_failure or failure)
            self._draw(state="Failed", outcome=str(error).partition("\n")[0], last=True)
            raise error
        self._draw(last=True)
        return job

    def _stop_survivors(self) -> None:
        """End the ranks that wait for the one that failed. The job stays, to be asked about."""
        for pod in self._pods():
            if pod.status.phase == PodPhase.RUNNING:
                labels = pod.metadata.labels
                self._client.restart_job(
                    self._run.name,
                    **self._job_arguments,
                    replica_type=labels.get(REPLICA_TYPE),
                    replica_index=int(labels.get(REPLICA_INDEX, 0)),
                )

    def _stop(self) -> None:
        self._draw(state="Stopping")
        self._run.cancel()
        try:
            self._wait(lambda: not self._open_sources, STOP_SECONDS)
        finally:
            self._draw(state=STOPPED, outcome="interrupted: the team was stopped", last=True)
        raise TeamStopped("the team was stopped")

    def _start(self, name: str, source: Callable[[], Iterable[Job | JobLogLine]]) -> None:
        def pump() -> None:
            try:
                for event in source():
                    self._events.put(event)
                    if isinstance(event, Job) and event.status.finished:
                        break
                self._events.put(SourceEnd(name))
            except Exception as error:  # noqa: BLE001 - raised by the reader
                self._events.put(SourceEnd(name, error))

        self._open_sources.add(name)
        threading.Thread(target=pump, name=f"gangline-{name}", daemon=True).start()

    def _wait(self, is_done: Callable[[], bool], seconds: float | None) -> None:
        """Take in events until the condition holds, or for so many seconds."""
        end = None if seconds is None else self._clock.monotonic() + seconds
        while not is_done() and (end is None or self._clock.monotonic() < end):
            try:
                self._take(self._events.get(timeout=REDRAW_SECONDS))
            except queue.Empty:
                self._draw()
            if self._clock.monotonic() - self._drawn >= REDRAW_SECONDS:
                self._draw()

    def _take(self, event: Job | JobLogLine | SourceEnd) -> None:
        match event:
            case Job():
                self._view.job = event
                self._update_pods()
            case JobLogLine():
                text = self._view.add_line(event.pod, event.text)
                if text is not None:
                    self._display.show_line(text)
            case SourceEnd():
                self._open_sources.discard(event.source)
                if event.error is not None:
                    raise event.error

    def _pods_have_ended(self) -> bool:
        """Whether no rank runs any more: a container's log ends a moment before its pod does."""
        return all(pod.status.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED) for pod in self._pods())

    def _update_pods(self) -> None:
        self._view.update_pods(self._pods(), self._clock.now().timestamp())

    def _pods(self) -> list[Pod]:
        return self._client.get_job_pods(self._run.name, **self._job_arguments)

    def _draw(self, *, state: str = "", outcome: str = "", last: bool = False) -> None:
        self._drawn = self._clock.monotonic()
        now = self._clock.now().timestamp()
        frame = self._view.frame(self._drawn - self._started, now, state=state, outcome=outcome)
        self._display.show(frame, last=last)
