"""Events of a job about its pods: containers that wait or failed, and exit codes."""

from collections.abc import Iterable, Iterator

from gangline.api.core import Pod, PodPhase
from gangline.jobs.plan.actions import JobEvent
from gangline.jobs.pods.replicas import terminated_state


def pod_warnings(pods: Iterable[Pod]) -> tuple[JobEvent, ...]:
    """Warnings about pods that are pending or running.

    One for each container that waits with a message or has failed; else, for a pod without a node, its conditions.
    """
    return tuple(warning for pod in pods for warning in _warnings(pod))


def exit_events(pods: Iterable[Pod], container: str) -> Iterator[JobEvent]:
    """The exit codes of training containers that have ended."""
    for pod in pods:
        state = terminated_state(pod, container)
        if state is not None:
            name = f"{pod.metadata.namespace}.{pod.metadata.name}"
            yield JobEvent("ExitedWithCode", f"Pod: {name} exited with code {state.exit_code}")


def _warnings(pod: Pod) -> Iterator[JobEvent]:
    if pod.status.phase not in (PodPhase.PENDING, PodPhase.RUNNING):
        return
    name, warned = pod.metadata.name, False
    for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting, terminated = container.state.waiting, container.state.terminated
        if waiting is not None and waiting.message:
            warned = True
            message = f"Error pod {name} container {container.name} waiting message: {waiting.message}"
            yield JobEvent(waiting.reason or "Waiting", message, warning=True)
        elif terminated is not None and terminated.exit_code:
            warned = True
            message = (
                f"Error pod {name} container {container.name} exitCode: {terminated.exit_code}"
                f" terminated message: {terminated.message}"
            )
            yield JobEvent(terminated.reason or "Error", message, warning=True)
    if not warned and not pod.spec.node_name:
        for condition in pod.status.conditions:
            if condition.status == "False" and condition.message:
                message = f"Error pod {name} condition message: {condition.message}"
                yield JobEvent(condition.reason or condition.type, message, warning=True)
