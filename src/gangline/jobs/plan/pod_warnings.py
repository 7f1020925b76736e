"""Pods that do not get on: what a person should see under the job."""

from collections.abc import Iterable, Iterator

from gangline.api.core import Pod, PodPhase
from gangline.jobs.plan.actions import JobEvent
from gangline.jobs.pods.replicas import terminated_state


def pod_warnings(pods: Iterable[Pod]) -> tuple[JobEvent, ...]:
    """One warning per container that waits for a reason, or ended badly in a pod that goes on; else per pod."""
    return tuple(note for pod in pods for note in _warnings(pod))


def exit_events(pods: Iterable[Pod], container: str) -> Iterator[JobEvent]:
    """With what the training containers of pods that are through have ended."""
    for pod in pods:
        state = terminated_state(pod, container)
        if state is not None:
            name = f"{pod.metadata.namespace}.{pod.metadata.name}"
            yield JobEvent("ExitedWithCode", f"Pod: {name} exited with code {state.exit_code}")


def _warnings(pod: Pod) -> Iterator[JobEvent]:
    if pod.status.phase not in (PodPhase.PENDING, PodPhase.RUNNING):
        return
    name, told = pod.metadata.name, False
    for found in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting, ended = found.state.waiting, found.state.terminated
        if waiting is not None and waiting.message:
            told = True
            message = f"Error pod {name} container {found.name} waiting message: {waiting.message}"
            yield JobEvent(waiting.reason or "Waiting", message, warning=True)
        elif ended is not None and ended.exit_code:
            told = True
            message = (
                f"Error pod {name} container {found.name} exitCode: {ended.exit_code}"
                f" terminated message: {ended.message}"
            )
            yield JobEvent(ended.reason or "Error", message, warning=True)
    if not told and not pod.spec.node_name:
        for condition in pod.status.conditions:
            if condition.status == "False" and condition.message:
                message = f"Error pod {name} condition message: {condition.message}"
                yield JobEvent(condition.reason or condition.type, message, warning=True)
