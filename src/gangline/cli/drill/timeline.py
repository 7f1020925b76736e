"""Follows the replicas of a job after a fault: changes in, progress lines and an outcome out. Pure; time is an argument."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gangline.api.meta import JSON
from gangline.cli.exit_codes import CANCELLED, FAILED, SUCCEEDED
from gangline.progress.line import parse_progress
from gangline.summary.job_rows import PROGRESS_ANNOTATION
from gangline.summary.job_state import job_state
from gangline.summary.objects import ServerJob
from gangline.summary.replicas import container_name, replica_name

LASTING_FAULTS = ("slow", "hang", "slow-network")
"""Faults that end no process."""


class ContainerAttempt(NamedTuple):
    """One process of a replica: the pod it ran in, and the restarts of the container before it."""

    uid: str
    restarts: int


class InjectedFault(NamedTuple):
    """The fault, the replicas it hits, and when it started."""

    fault: str
    victims: tuple[str, ...]
    started_at: float
    # For a fault that lasts; else 0.
    duration: float = 0.0
    # The job has survived once all replicas are healthy for so long.
    hold_seconds: float = 5.0


class DrillOutcome(NamedTuple):
    """The result of a drill. Mappings are by replica name; times are seconds since the fault."""

    job: str
    fault: InjectedFault
    exit_code: int
    # Of the job.
    state: str
    deleted: bool
    seconds: float
    # How processes of each replica ended, in order.
    ends: Mapping[str, list[str]]
    restarted_after: Mapping[str, float]
    # Where the first victim resumed its training; empty if it did not report.
    resumed: str
    # The `firstFailure` of the job's status.
    first_failure: JSON | None


class DrillTimeline:
    """The replicas of a job since the fault. Job and pod updates may arrive in any order."""

    def __init__(self, job: ServerJob, pods: Sequence[JSON], fault: InjectedFault) -> None:
        self._job, self._fault = job, fault
        self._body: JSON | None = job.body
        self._pods: dict[str, JSON] = {pod["metadata"]["name"]: pod for pod in pods}
        self._attempts_before = {name: container_attempt(pod) for name, pod in self._pods.items()}
        # The attempt that runs now, or ended last; and the attempts whose end is reported.
        self._current_attempts, self._reported_ends = dict(self._attempts_before), set[ContainerAttempt]()
        self._progress_before = {name: last_report(pod) for name, pod in self._pods.items()}
        self._replica_names = {name: replica_name(job, pod) for name, pod in self._pods.items()}
        self._end_texts: dict[str, list[str]] = {}
        self._restarted_at: dict[str, float] = {}
        self._healthy_since: float | None = None
        self._state = job_state(job.body)
        self._pending_lines: list[str] = []

    # Updates

    def update_job(self, body: JSON, at: float, *, deleted: bool = False) -> None:
        self._body = None if deleted else body
        state = "deleted" if deleted else job_state(body)
        if state != self._state:
            self._state = state
            self._add_line(at, f"job {state}")

    def update_pod(self, pod: JSON, at: float, *, deleted: bool = False) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"].get("uid", "")
        if name not in self._attempts_before:
            return
        self._record_end(name, pod, at)
        attempt, known = container_attempt(pod), self._current_attempts[name]
        has_ended = (_training_status(pod).get("state") or {}).get("terminated") is not None
        if attempt.uid == known.uid and attempt.restarts > known.restarts and has_ended:
            # A process that ends at once may never be seen running.
            self._current_attempts[name] = attempt
            self._record_end(name, pod, at)
        if deleted:
            if self._pods.get(name, {}).get("metadata", {}).get("uid") == uid:
                del self._pods[name]
            return
        self._pods[name] = pod
        if uid == self._attempts_before[name].uid and name not in self._restarted_at:
            # A report arrives before the end of its process does: until the restart, reports are the old process's.
            self._progress_before[name] = last_report(pod) or self._progress_before[name]
        if container_attempt(pod) != self._current_attempts[name] and is_running(pod):
            self._current_attempts[name], self._restarted_at[name] = container_attempt(pod), at
            self._add_line(at, f"{self._replica_names[name]} runs again")

    def _record_end(self, name: str, pod: JSON, at: float) -> None:
        text = end_text(pod, self._current_attempts[name])
        if text and self._current_attempts[name] not in self._reported_ends:
            self._reported_ends.add(self._current_attempts[name])
            self._end_texts.setdefault(name, []).append(text)
            self._add_line(at, f"{self._replica_names[name]} ended: {text}")

    def _add_line(self, at: float, text: str) -> None:
        self._pending_lines.append(f"{at - self._fault.started_at:5.1f} s  {text}")

    def drain_lines(self) -> list[str]:
        """The lines since the last call."""
        lines, self._pending_lines = self._pending_lines, []
        return lines

    # The verdict

    def exit_code(self, at: float) -> int | None:
        """The exit code of the drill; None while the verdict is open."""
        if self._body is None:
            return CANCELLED
        if self._state == "Failed":
            return FAILED
        if self._state == "Succeeded":
            return SUCCEEDED
        if at - self._fault.started_at < self._fault.duration or not self._is_healthy():
            self._healthy_since = None
            return None
        self._healthy_since = at if self._healthy_since is None else self._healthy_since
        # A victim that reported progress gets more time, so that the outcome can say at which step it resumed.
        hold_seconds = self._fault.hold_seconds * (2 if self._awaits_report() else 1)
        return SUCCEEDED if at - self._healthy_since >= hold_seconds else None

    def outcome(self, exit_code: int, at: float) -> DrillOutcome:
        """All that is known of the drill now, with the exit code that was decided."""
        return DrillOutcome(
            self._job.key.name,
            self._fault,
            exit_code,
            self._state,
            self._body is None,
            at - self._fault.started_at,
            {self._replica_names[name]: texts for name, texts in self._end_texts.items()},
            {self._replica_names[name]: when - self._fault.started_at for name, when in self._restarted_at.items()},
            self._resumed_text(),
            ((self._body or {}).get("status") or {}).get("firstFailure"),
        )

    def _is_healthy(self) -> bool:
        """Whether every replica runs or has succeeded, the victims in another process than before the fault."""
        for name, first in self._attempts_before.items():
            pod = self._pods.get(name)
            if pod is None or not (is_running(pod) or _pod_phase(pod) == "Succeeded"):
                return False
            must_restart = self._replica_names[name] in self._fault.victims and self._fault.fault not in LASTING_FAULTS
            if must_restart and container_attempt(pod) == first:
                return False
        return self._state == "Running"

    def _awaits_report(self) -> bool:
        return bool(self._progress_before.get(self._first_victim_pod, "")) and not self._resumed_text()

    @property
    def _first_victim_pod(self) -> str:
        """The pod name of the first victim."""
        victim = self._fault.victims[0]
        return next((name for name, replica in self._replica_names.items() if replica == victim), "")

    def _resumed_text(self) -> str:
        """At which step the first victim resumed, compared with its last step before the fault."""
        name = self._first_victim_pod
        report, pod = self._progress_before.get(name, ""), self._pods.get(name)
        new_report = last_report(pod) if pod is not None and self._fault.fault not in LASTING_FAULTS else ""
        before, after = parse_progress(report), parse_progress(new_report)
        if before is None or after is None or new_report == report or name not in self._restarted_at:
            return ""
        verb = "began again" if after.step < before.step else "went on"
        return f"{verb} at step {after.step:g} (it was at {before.step:g})"


def _pod_phase(pod: JSON) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def _training_status(pod: JSON) -> JSON:
    """The status of the training container."""
    name = container_name(pod)
    statuses: list[JSON] = (pod.get("status") or {}).get("containerStatuses") or []
    return next((status for status in statuses if status.get("name") == name), {})


def container_attempt(pod: JSON) -> ContainerAttempt:
    """The current attempt of the pod's training container."""
    return ContainerAttempt(pod["metadata"].get("uid", ""), _training_status(pod).get("restartCount") or 0)


def is_running(pod: JSON) -> bool:
    """Whether the training container runs, and the pod is not being deleted."""
    running = (_training_status(pod).get("state") or {}).get("running") is not None
    return _pod_phase(pod) == "Running" and running and not pod["metadata"].get("deletionTimestamp")


def last_report(pod: JSON) -> str:
    """The pod's last progress report, from its annotation."""
    return str((pod["metadata"].get("annotations") or {}).get(PROGRESS_ANNOTATION, ""))


def end_text(pod: JSON, attempt: ContainerAttempt) -> str:
    """How an attempt ended, such as `OOMKilled, exit 137`; empty while it runs, or if the pod does not say."""
    status, current = _training_status(pod), container_attempt(pod)
    if current.uid != attempt.uid:
        return ""
    # A container in back-off has ended, but is not counted as restarted yet.
    waiting = bool((status.get("state") or {}).get("waiting"))
    field = "lastState" if current.restarts > attempt.restarts or waiting else "state"
    terminated = (status.get(field) or {}).get("terminated")
    # A pod's reason is that of its last process.
    pod_reason = (pod.get("status") or {}).get("reason") if current.restarts == attempt.restarts else ""
    reason = pod_reason or (terminated or {}).get("reason") or ""
    is_plain = reason in ("", "Completed", "Error")
    if terminated is None:
        return "" if is_plain or _pod_phase(pod) != "Failed" else reason
    code = f"exit {terminated.get('exitCode')}"
    return code if is_plain else f"{reason}, {code}"
