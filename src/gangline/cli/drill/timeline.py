"""What becomes of a job after a fault: changes in, lines and a verdict out. Pure; time is an argument."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gangline.api.meta import JSON
from gangline.cli.exit_codes import CANCELLED, FAILED, SUCCEEDED, UNFINISHED
from gangline.cli.output.job_rows import PROGRESS, failure_text, state
from gangline.cli.resources.lookup import FoundJob
from gangline.cli.resources.replicas import container_of, member
from gangline.progress.line import progress

WORDS = {
    "kill": "killed",
    "oom": "out of memory",
    "port": "killed, its port taken",
    "disk": "out of disk",
    "node-lost": "lost with its node",
    "slow": "slowed down",
}


class Mark(NamedTuple):
    """Which process sits on a seat: that of which pod, after how many restarts inside it."""

    uid: str
    restarts: int


class Trial(NamedTuple):
    """What was done, to whom, when; how long it lasts; and how long all must be well again to count."""

    fault: str
    victims: tuple[str, ...]
    began: float
    lasts: float = 0.0
    hold: float = 5.0


class Story:
    """The replicas of a job from the fault on. Told everything that changes, in any order."""

    def __init__(self, job: FoundJob, before: Sequence[JSON], trial: Trial) -> None:
        self._job, self._trial = job, trial
        self._body: JSON | None = job.body
        self._pods: dict[str, JSON] = {pod["metadata"]["name"]: pod for pod in before}
        self._first = {name: mark(pod) for name, pod in self._pods.items()}
        # The process whose end is awaited, or has been told.
        self._run, self._told = dict(self._first), set[Mark]()
        self._reported = {name: report(pod) for name, pod in self._pods.items()}
        self._names = {name: member(job, pod) for name, pod in self._pods.items()}
        self._ends: dict[str, list[str]] = {}
        self._back: dict[str, float] = {}
        self._well_since: float | None = None
        self._state = state(job.body)
        self._news: list[str] = []

    # What is seen

    def saw_job(self, body: JSON, at: float, *, deleted: bool = False) -> None:
        self._body = None if deleted else body
        now = "deleted" if deleted else state(body)
        if now != self._state:
            self._state = now
            self._tell(at, f"job {now}")

    def saw_pod(self, pod: JSON, at: float, *, deleted: bool = False) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"].get("uid", "")
        if name not in self._first:
            return
        self._ended(name, pod, at)
        if deleted:
            if self._pods.get(name, {}).get("metadata", {}).get("uid") == uid:
                del self._pods[name]
            return
        self._pods[name] = pod
        if uid == self._first[name].uid and name not in self._back:
            # The last words of a process are told before its end is: until it is back these are the old one's.
            self._reported[name] = report(pod) or self._reported[name]
        if mark(pod) != self._run[name] and runs(pod):
            self._run[name], self._back[name] = mark(pod), at
            self._tell(at, f"{self._names[name]} runs again")

    def _ended(self, name: str, pod: JSON, at: float) -> None:
        how = end(pod, self._run[name])
        if how and self._run[name] not in self._told:
            self._told.add(self._run[name])
            self._ends.setdefault(name, []).append(how)
            self._tell(at, f"{self._names[name]} ended: {how}")

    def _tell(self, at: float, text: str) -> None:
        self._news.append(f"{at - self._trial.began:5.1f} s  {text}")

    def news(self) -> list[str]:
        """Lines that were not given yet."""
        given, self._news = self._news, []
        return given

    # What it means

    def verdict(self, at: float) -> int | None:
        """The exit code, once it is clear."""
        if self._body is None:
            return CANCELLED
        if self._state == "Failed":
            return FAILED
        if self._state == "Succeeded":
            return SUCCEEDED
        if at - self._trial.began < self._trial.lasts or not self._well():
            self._well_since = None
            return None
        self._well_since = at if self._well_since is None else self._well_since
        held = at - self._well_since
        # Who reported before is waited for a little longer: it may have to begin again, and that should be told.
        patient = self._trial.hold * (2 if self._owes_report() else 1)
        return SUCCEEDED if held >= patient else None

    def _well(self) -> bool:
        """Whether everybody runs or has done its work, the victims in another process than before."""
        for name, first in self._first.items():
            pod = self._pods.get(name)
            if pod is None or not (runs(pod) or _phase(pod) == "Succeeded"):
                return False
            struck = self._names[name] in self._trial.victims and self._trial.fault != "slow"
            if struck and mark(pod) == first:
                return False
        return self._state == "Running"

    def _owes_report(self) -> bool:
        return bool(self._reported.get(self._lead, "")) and not self._went_on()

    @property
    def _lead(self) -> str:
        """The pod of the first victim."""
        return next((name for name, seat in self._names.items() if seat == self._trial.victims[0]), "")

    def _went_on(self) -> str:
        """What the first victim reports after the fault, next to what it reported before."""
        before, pod = self._reported.get(self._lead, ""), self._pods.get(self._lead)
        after = report(pod) if pod is not None and self._trial.fault != "slow" else ""
        was, now = progress(before), progress(after)
        if was is None or now is None or after == before or self._lead not in self._back:
            return ""
        how = "began again" if now.step < was.step else "went on"
        return f"{how} at step {now.step:g} (it was at {was.step:g})"

    # In the end

    @property
    def others(self) -> list[str]:
        """Who else was started anew."""
        return [self._names[name] for name in self._back if self._names[name] not in self._trial.victims]

    def sentence(self, code: int, at: float) -> str:
        """All of it in one line."""
        trial = self._trial
        who = trial.victims[0] if len(trial.victims) == 1 else f"{len(trial.victims)} replicas"
        how = self._how()
        word = WORDS[trial.fault].replace("its", "their") if len(trial.victims) > 1 else WORDS[trial.fault]
        parts = [f"{who} {word}{f' ({how})' if how else ''}", *self._consequences()]
        parts.append(f"job {self._state}" if self._body is not None else "job deleted")
        parts.append(
            {
                SUCCEEDED: "training survived",
                FAILED: "training did not survive",
                CANCELLED: "nobody will know",
            }.get(code, f"not clear after {at - trial.began:.0f} s")
        )
        return " · ".join(parts)

    def _how(self) -> str:
        if self._trial.fault == "slow":
            return f"for {self._trial.lasts:g} s"
        seen = [self._ends[name] for name in self._first if name in self._ends and self._is_victim(name)]
        if seen:
            return ", then ".join(seen[0][:3])
        failure = ((self._body or {}).get("status") or {}).get("firstFailure")
        told = failure_text(failure) if failure and failure.get("replica") in self._trial.victims else ""
        return told.partition(" ")[2]

    def _is_victim(self, name: str) -> bool:
        return self._names[name] in self._trial.victims

    def _consequences(self) -> Iterable[str]:
        back = [self._back[name] for name in self._first if self._is_victim(name) and name in self._back]
        if self._trial.fault != "slow":
            if len(back) == len(self._trial.victims):
                yield f"restarted after {max(back) - self._trial.began:.1f} s"
            else:
                yield "not restarted"
        if self.others:
            yield (
                f"{len(self.others)} others restarted too"
                if len(self.others) > 1
                else (f"{self.others[0]} restarted too")
            )
        if told := self._went_on():
            yield told

    def facts(self, code: int, at: float) -> Mapping[str, object]:
        """The same for programs."""
        words = {SUCCEEDED: "survived", FAILED: "failed", CANCELLED: "deleted", UNFINISHED: "unfinished"}
        return {
            "job": self._job.key.name,
            "fault": self._trial.fault,
            "replicas": list(self._trial.victims),
            "verdict": words[code],
            "state": self._state,
            "ends": {self._names[name]: how for name, how in self._ends.items()},
            "restartedAfter": {
                self._names[name]: round(when - self._trial.began, 2) for name, when in self._back.items()
            },
            "seconds": round(at - self._trial.began, 2),
            "message": self.sentence(code, at),
        }


def _phase(pod: JSON) -> str:
    return str((pod.get("status") or {}).get("phase", ""))


def _status(pod: JSON) -> JSON:
    """The status of the container that trains."""
    name = container_of(pod)
    statuses: list[JSON] = (pod.get("status") or {}).get("containerStatuses") or []
    return next((each for each in statuses if each.get("name") == name), {})


def mark(pod: JSON) -> Mark:
    """The process that a pod has now."""
    return Mark(pod["metadata"].get("uid", ""), _status(pod).get("restartCount") or 0)


def runs(pod: JSON) -> bool:
    """Whether the container that trains runs."""
    going = (_status(pod).get("state") or {}).get("running") is not None
    return _phase(pod) == "Running" and going and not pod["metadata"].get("deletionTimestamp")


def report(pod: JSON) -> str:
    """What it last reported of its progress."""
    return str((pod["metadata"].get("annotations") or {}).get(PROGRESS, ""))


def end(pod: JSON, run: Mark) -> str:
    """How a process ended, in few words; nothing while it has not, or if the pod cannot say."""
    status, now = _status(pod), mark(pod)
    if now.uid != run.uid:
        return ""
    # One that is held back before its next start has ended, and is not counted as restarted yet.
    waits = bool((status.get("state") or {}).get("waiting"))
    part = "lastState" if now.restarts > run.restarts or waits else "state"
    ended = (status.get(part) or {}).get("terminated")
    reason = (pod.get("status") or {}).get("reason") or (ended or {}).get("reason") or ""
    plain = reason in ("", "Completed", "Error")
    if ended is None:
        return "" if plain or _phase(pod) != "Failed" else reason
    code = f"exit {ended.get('exitCode')}"
    return code if plain else f"{reason}, {code}"
