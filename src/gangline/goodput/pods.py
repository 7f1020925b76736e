"""What a pod does over time, as far as its own timestamps say."""

from datetime import datetime

from gangline.api.core import ContainerState, ContainerStatus, Pod, PodPhase
from gangline.goodput.accrual import whole_seconds
from gangline.goodput.model import Activity, ActivityChange, Course

_ENDED = (PodPhase.SUCCEEDED, PodPhase.FAILED)


def pod_course(pod: Pod, container: ContainerStatus, now: datetime, undated: datetime) -> Course:
    """The course of a pod. `container` is the one that trains. What is so and has no date begins at `undated`."""
    changes: list[ActivityChange] = []

    def add(at: datetime | None, activity: Activity) -> None:
        # Dates of different clocks may be out of order: what follows does not begin before what it follows.
        time = whole_seconds(undated if at is None else min(at, now))
        changes.append(ActivityChange(max(changes[-1].at, time) if changes else time, activity))

    add(pod.metadata.creation_timestamp, Activity.QUEUEING)
    if pod.spec.node_name:
        add(_scheduled_at(pod) or first_start(container, undated), Activity.STARTING)
    state, last = container.state, container.last_state
    if last.terminated is not None:
        add(last.terminated.started_at, Activity.WORKING)
        add(last.terminated.finished_at, Activity.STARTING)
    if state.terminated is not None:
        add(state.terminated.started_at or state.terminated.finished_at, Activity.WORKING)
        ended = state.terminated.exit_code == 0 or pod.status.phase in _ENDED
        add(state.terminated.finished_at, Activity.IDLE if ended else Activity.STARTING)
    elif state.running is not None:
        add(state.running.started_at, Activity.WORKING)
    if pod.status.phase in _ENDED and changes[-1].activity is not Activity.IDLE:
        # Evicted, or lost with its node: no container says when it ended.
        add(None, Activity.IDLE)
    return tuple(changes)


def first_start(container: ContainerStatus, undated: datetime) -> datetime | None:
    """When the process first started, as far as the status still tells; None if it has not."""
    return _started_at(container.last_state, undated) or _started_at(container.state, undated)


def latest_start(container: ContainerStatus, undated: datetime) -> datetime | None:
    """When the newest process started; None if none has."""
    return _started_at(container.state, undated) or _started_at(container.last_state, undated)


def _started_at(state: ContainerState, undated: datetime) -> datetime | None:
    found = state.terminated or state.running
    return (found.started_at or undated) if found is not None else None


def _scheduled_at(pod: Pod) -> datetime | None:
    conditions = (found for found in pod.status.conditions if found.type == "PodScheduled" and found.status == "True")
    return next((condition.last_transition_time for condition in conditions), None)
