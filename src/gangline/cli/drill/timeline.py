"""What becomes of a job after a fault: changes in, lines and a verdict out. Pure; time is an argument."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gangline.api.meta import JSON
from gangline.cli.exit_codes import CANCELLED, FAILED, SUCCEEDED, UNFINISHED
from gangline.cli.output.job_rows import PROGRESS_ANNOTATION, failure_text, job_state
from gangline.cli.resources.lookup import ServerJob
from gangline.cli.resources.replicas import container_name, replica_name
from gangline.progress.line import parse_progress

FAULT_TEXT = {
    "kill": "killed",
    "oom": "out of memory",
    "port": "killed, its port taken",
    "disk": "out of disk",
    "node-lost": "lost with its node",
    "slow": "slowed down",
}


class ContainerAttempt(NamedTuple):
    """Which process sits on a seat: that of which pod, after how many restarts inside it."""

    uid: str
    restarts: int


class InjectedFault(NamedTuple):
    """What was done, to whom, when; how long it lasts; and how long all must be well again to count."""

    fault: str
    victims: tuple[str, ...]
    started_at: float
    duration: float = 0.0
    hold_seconds: float = 5.0


class DrillTimeline:
    """The replicas of a job from the fault on. Told everything that changes, in any order."""

    def __init__(self, job: ServerJob, before: Sequence[JSON], trial: InjectedFault) -> None:
        self._job, self._fault = job, trial
        self._body: JSON | None = job.body
        self._pods: dict[str, JSON] = {pod["metadata"]["name"]: pod for pod in before}
        self._attempts_before = {name: container_attempt(pod) for name, pod in self._pods.items()}
        # The process whose end is awaited, or has been told.
        self._current_attempts, self._reported_ends = dict(self._attempts_before), set[ContainerAttempt]()
        self._progress_before = {name: last_report(pod) for name, pod in self._pods.items()}
        self._replica_names = {name: replica_name(job, pod) for name, pod in self._pods.items()}
        self._end_texts: dict[str, list[str]] = {}
        self._restarted_at: dict[str, float] = {}
        self._healthy_since: float | None = None
        self._state = job_state(job.body)
        self._pending_lines: list[str] = []

    # What is seen

    def update_job(self, body: JSON, at: float, *, deleted: bool = False) -> None:
        self._body = None if deleted else body
        now = "deleted" if deleted else job_state(body)
        if now != self._state:
            self._state = now
            self._add_line(at, f"job {now}")

    def update_pod(self, pod: JSON, at: float, *, deleted: bool = False) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"].get("uid", "")
        if name not in self._attempts_before:
            return
        self._record_end(name, pod, at)
        if deleted:
            if self._pods.get(name, {}).get("metadata", {}).get("uid") == uid:
                del self._pods[name]
            return
        self._pods[name] = pod
        if uid == self._attempts_before[name].uid and name not in self._restarted_at:
            # The last words of a process are told before its end is: until it is back these are the old one's.
            self._progress_before[name] = last_report(pod) or self._progress_before[name]
        if container_attempt(pod) != self._current_attempts[name] and is_running(pod):
            self._current_attempts[name], self._restarted_at[name] = container_attempt(pod), at
            self._add_line(at, f"{self._replica_names[name]} runs again")

    def _record_end(self, name: str, pod: JSON, at: float) -> None:
        how = end_text(pod, self._current_attempts[name])
        if how and self._current_attempts[name] not in self._reported_ends:
            self._reported_ends.add(self._current_attempts[name])
            self._end_texts.setdefault(name, []).append(how)
            self._add_line(at, f"{self._replica_names[name]} ended: {how}")

    def _add_line(self, at: float, text: str) -> None:
        self._pending_lines.append(f"{at - self._fault.started_at:5.1f} s  {text}")

    def drain_lines(self) -> list[str]:
        """Lines that were not given yet."""
        given, self._pending_lines = self._pending_lines, []
        return given

    # What it means

    def exit_code(self, at: float) -> int | None:
        """The exit code, once it is clear."""
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
        held = at - self._healthy_since
        # Who reported before is waited for a little longer: it may have to begin again, and that should be told.
        patient = self._fault.hold_seconds * (2 if self._awaits_report() else 1)
        return SUCCEEDED if held >= patient else None

    def _is_healthy(self) -> bool:
        """Whether everybody runs or has done its work, the victims in another process than before."""
        for name, first in self._attempts_before.items():
            pod = self._pods.get(name)
            if pod is None or not (is_running(pod) or _pod_phase(pod) == "Succeeded"):
                return False
            struck = self._replica_names[name] in self._fault.victims and self._fault.fault != "slow"
            if struck and container_attempt(pod) == first:
                return False
        return self._state == "Running"

    def _awaits_report(self) -> bool:
        return bool(self._progress_before.get(self._first_victim_pod, "")) and not self._resumed_text()

    @property
    def _first_victim_pod(self) -> str:
        """The pod of the first victim."""
        return next((name for name, seat in self._replica_names.items() if seat == self._fault.victims[0]), "")

    def _resumed_text(self) -> str:
        """What the first victim reports after the fault, next to what it reported before."""
        before, pod = (
            self._progress_before.get(self._first_victim_pod, ""),
            self._pods.get(self._first_victim_pod),
        )
        after = last_report(pod) if pod is not None and self._fault.fault != "slow" else ""
        was, now = parse_progress(before), parse_progress(after)
        if was is None or now is None or after == before or self._first_victim_pod not in self._restarted_at:
            return ""
        how = "began again" if now.step < was.step else "went on"
        return f"{how} at step {now.step:g} (it was at {was.step:g})"

    # In the end

    @property
    def other_restarts(self) -> list[str]:
        """Who else was started anew."""
        return [
            self._replica_names[name]
            for name in self._restarted_at
            if self._replica_names[name] not in self._fault.victims
        ]

    def summary(self, code: int, at: float) -> str:
        """All of it in one line."""
        trial = self._fault
        who = trial.victims[0] if len(trial.victims) == 1 else f"{len(trial.victims)} replicas"
        how = self._cause_text()
        word = FAULT_TEXT[trial.fault].replace("its", "their") if len(trial.victims) > 1 else FAULT_TEXT[trial.fault]
        parts = [f"{who} {word}{f' ({how})' if how else ''}", *self._consequences()]
        parts.append(f"job {self._state}" if self._body is not None else "job deleted")
        parts.append(
            {
                SUCCEEDED: "training survived",
                FAILED: "training did not survive",
                CANCELLED: "nobody will know",
            }.get(code, f"not clear after {at - trial.started_at:.0f} s")
        )
        return " · ".join(parts)

    def _cause_text(self) -> str:
        if self._fault.fault == "slow":
            return f"for {self._fault.duration:g} s"
        seen = [
            self._end_texts[name] for name in self._attempts_before if name in self._end_texts and self._is_victim(name)
        ]
        if seen:
            return ", then ".join(seen[0][:3])
        failure = ((self._body or {}).get("status") or {}).get("firstFailure")
        told = failure_text(failure) if failure and failure.get("replica") in self._fault.victims else ""
        return told.partition(" ")[2]

    def _is_victim(self, name: str) -> bool:
        return self._replica_names[name] in self._fault.victims

    def _consequences(self) -> Iterable[str]:
        back = [
            self._restarted_at[name]
            for name in self._attempts_before
            if self._is_victim(name) and name in self._restarted_at
        ]
        if self._fault.fault != "slow":
            if len(back) == len(self._fault.victims):
                yield f"restarted after {max(back) - self._fault.started_at:.1f} s"
            else:
                yield "not restarted"
        if self.other_restarts:
            yield (
                f"{len(self.other_restarts)} others restarted too"
                if len(self.other_restarts) > 1
                else (f"{self.other_restarts[0]} restarted too")
            )
        if told := self._resumed_text():
            yield told

    def json_report(self, code: int, at: float) -> Mapping[str, object]:
        """The same for programs."""
        words = {SUCCEEDED: "survived", FAILED: "failed", CANCELLED: "deleted", UNFINISHED: "unfinished"}
        return {
            "job": self._job.key.name,
            "fault": self._fault.fault,
            "replicas": list(self._fault.victims),
            "verdict": words[code],
            "state": self._state,
            "ends": {self._replica_names[name]: how for name, how in self._end_texts.items()},
            "restartedAfter": {
                self._replica_names[name]: round(when - self._fault.started_at, 2)
                for name, when in self._restarted_at.items()
            },
            "seconds": round(at - self._fault.started_at, 2),
            "message": self.summary(code, at),
        }


def _pod_phase(pod: JSON) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def _training_status(pod: JSON) -> JSON:
    """The status of the container that trains."""
    name = container_name(pod)
    statuses: list[JSON] = (pod.get("status") or {}).get("containerStatuses") or []
    return next((each for each in statuses if each.get("name") == name), {})


def container_attempt(pod: JSON) -> ContainerAttempt:
    """The process that a pod has now."""
    return ContainerAttempt(pod["metadata"].get("uid", ""), _training_status(pod).get("restartCount") or 0)


def is_running(pod: JSON) -> bool:
    """Whether the container that trains runs."""
    going = (_training_status(pod).get("state") or {}).get("running") is not None
    return _pod_phase(pod) == "Running" and going and not pod["metadata"].get("deletionTimestamp")


def last_report(pod: JSON) -> str:
    """What it last reported of its progress."""
    return str((pod["metadata"].get("annotations") or {}).get(PROGRESS_ANNOTATION, ""))


def end_text(pod: JSON, run: ContainerAttempt) -> str:
    """How a process ended, in few words; nothing while it has not, or if the pod cannot say."""
    status, now = _training_status(pod), container_attempt(pod)
    if now.uid != run.uid:
        return ""
    # One that is held back before its next start has ended, and is not counted as restarted yet.
    waits = bool((status.get("state") or {}).get("waiting"))
    part = "lastState" if now.restarts > run.restarts or waits else "state"
    ended = (status.get(part) or {}).get("terminated")
    reason = (pod.get("status") or {}).get("reason") or (ended or {}).get("reason") or ""
    plain = reason in ("", "Completed", "Error")
    if ended is None:
        return "" if plain or _pod_phase(pod) != "Failed" else reason
    code = f"exit {ended.get('exitCode')}"
    return code if plain else f"{reason}, {code}"
