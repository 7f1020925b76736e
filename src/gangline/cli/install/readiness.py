"""Whether the Deployments of an installation are ready, and what keeps them from it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gangline.api.meta import JSON
from gangline.summary.pending_reasons import IMAGE_REASONS

HOPELESS_REASONS = ("ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
"""Reasons for which a pod waits that go away only if somebody does something. ErrImagePull is tried again at once."""

CRASHING = "CrashLoopBackOff"


class Rollout(NamedTuple):
    """How far a Deployment is. `problem` is what a pod says; `is_hopeless` if waiting does not help."""

    name: str
    ready: int
    replicas: int
    is_complete: bool
    problem: str = ""
    is_hopeless: bool = False

    @property
    def text(self) -> str:
        counts = f"{self.ready}/{self.replicas} ready"
        return f"{counts}, {self.problem}" if self.problem else counts


def is_established(crd: JSON) -> bool:
    """Whether the server serves the kind that a CRD defines."""
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(item.get("type") == "Established" and item.get("status") == "True" for item in conditions)


def crashing_pods(pods: Iterable[JSON]) -> list[JSON]:
    """The pods with a container that ends again and again."""
    return [pod for pod in pods if any(_waiting(container)[0] == CRASHING for container in _containers(pod))]


def rollout(
    deployment: JSON, pods: Sequence[JSON], events: Iterable[JSON], last_lines: Mapping[str, str] | None = None
) -> Rollout:
    """How far a Deployment is, judged as `kubectl rollout status` does. `last_lines`: of the logs of crashing pods."""
    spec, status = deployment.get("spec") or {}, deployment.get("status") or {}
    replicas, ready = spec.get("replicas", 1), status.get("readyReplicas") or 0
    updated, available = status.get("updatedReplicas") or 0, status.get("availableReplicas") or 0
    observed = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    complete = observed and updated >= replicas and (status.get("replicas") or 0) <= updated and available >= updated
    name = deployment["metadata"]["name"]
    if complete:
        return Rollout(name, ready, replicas, is_complete=True)
    texts = _event_texts(events)
    # Not those of an earlier image, which are about to go.
    current = [pod for pod in pods if _images(pod) == _images(spec.get("template") or {})]
    for pod in sorted(current, key=lambda body: str(body["metadata"]["name"])):
        reason, text = _pod_problem(pod, texts, (last_lines or {}).get(pod["metadata"]["name"], ""))
        if text:
            pod_name = pod["metadata"]["name"]
            problem = f"pod {pod_name}: {text}"
            hopeless = reason in HOPELESS_REASONS
            return Rollout(name, ready, replicas, is_complete=False, problem=problem, is_hopeless=hopeless)
    return Rollout(name, ready, replicas, is_complete=False, problem=_own_problem(status, texts.get(name, "")))


def _images(template: JSON) -> list[str]:
    """The images of a pod, or of a pod template."""
    return [str(container.get("image", "")) for container in (template.get("spec") or {}).get("containers") or ()]


def _own_problem(status: Mapping[str, Any], event: str) -> str:
    """Why a Deployment has no pods: a quota, an account that is missing, Pod Security."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return _one_line(condition.get("message"))
    return event


def _containers(pod: JSON) -> list[JSON]:
    status: Mapping[str, Any] = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _waiting(container: JSON) -> tuple[str, str]:
    """Why a container waits: a reason and a message; both empty if it does not."""
    waiting = (container.get("state") or {}).get("waiting") or {}
    return str(waiting.get("reason") or ""), _one_line(waiting.get("message"))


def _pod_problem(pod: JSON, events: Mapping[str, str], last_line: str) -> tuple[str, str]:
    """Why a pod does not run: a reason, and what the pod, its log and its events say."""
    status: Mapping[str, Any] = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return "Unschedulable", _one_line(condition.get("message") or condition.get("reason"))
    event = events.get(pod["metadata"]["name"], "")
    for container in _containers(pod):
        reason, message = _waiting(container)
        if reason in IMAGE_REASONS:
            return reason, f"{reason} {container.get('image', '')}: {event or message}".rstrip(": ")
        if reason == CRASHING:
            ended = (container.get("lastState") or {}).get("terminated") or {}
            cause = _one_line(ended.get("message")) or last_line
            return reason, f"it ends with code {ended.get('exitCode', '?')}" + (f": {cause}" if cause else "")
        if reason not in ("", "ContainerCreating", "PodInitializing"):
            return reason, f"{reason}: {message}".rstrip(": ")
    return ("", event) if status.get("phase", "Pending") == "Pending" and event else ("", "")


def _event_texts(events: Iterable[JSON]) -> dict[str, str]:
    """The most telling warning about each object, by name: the newest that is more than a note of a back-off."""
    newest: dict[str, tuple[bool, str, str]] = {}
    for event in events:
        name = str((event.get("involvedObject") or {}).get("name", ""))
        message = _one_line(event.get("message"))
        stamp = str(event.get("lastTimestamp") or event.get("eventTime") or "")
        rank = (not message.startswith(("Back-off", "Error:")), stamp, message)
        newest[name] = max(newest.get(name, (False, "", "")), rank)
    return {name: message for name, (_, _, message) in newest.items()}


def _one_line(text: object) -> str:
    return " ".join(str(text or "").split())
