"""The status of a pod, from the state of its containers. Pure; reasons and messages are the kubelet's."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from gangline.api.core import ResourceRequirements
from gangline.api.in_place import IN_PLACE_REASON
from gangline.api.meta import JSON, Condition, timestamp
from gangline.node.environment import HOST_IP
from gangline.node.pods.plan import (
    Activity,
    ContainerExit,
    ContainerObservation,
    ContainerRun,
    PodObservation,
    Role,
    is_initialized,
    pod_has_finished,
    pod_termination,
    restart_at,
    restart_delay,
    should_restart,
)

EPOCH = datetime.fromtimestamp(0, UTC)
OWN_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
"""The conditions that the node writes. All others are kept as they are."""


class PodStatusContext(msgspec.Struct, frozen=True):
    """The identity of a pod, and the parts of its earlier status that the next status needs."""

    namespace: str
    name: str
    uid: str
    readiness_gates: tuple[str, ...] = ()
    previous_conditions: tuple[Condition, ...] = ()
    pod_ip: str = HOST_IP


def pod_status(pod: PodObservation, context: PodStatusContext) -> JSON:
    """The status for a merge patch: without the fields of other writers."""
    phase = pod_phase(pod)
    inits = [container_status(container, pod, context) for container in pod.with_role(Role.INIT, Role.SIDECAR)]
    status: JSON = {
        "phase": phase,
        "hostIP": HOST_IP,
        "hostIPs": [{"ip": HOST_IP}],
        "podIP": context.pod_ip,
        "podIPs": [{"ip": context.pod_ip}],
        "conditions": pod_conditions(pod, phase, context),
        "containerStatuses": [container_status(container, pod, context) for container in pod.with_role(Role.MAIN)],
    }
    if inits:
        status["initContainerStatuses"] = inits
    if ephemeral := pod.with_role(Role.EPHEMERAL):
        status["ephemeralContainerStatuses"] = [container_status(container, pod, context) for container in ephemeral]
    if pod.start_time is not None:
        status["startTime"] = timestamp(pod.start_time)
    termination = pod_termination(pod)
    if termination is not None:
        status.update(reason=termination.reason, message=termination.message)
    return status


# Phase


def pod_phase(pod: PodObservation) -> str:
    """The pod's phase. It is terminal only when no container runs any more, sidecars included."""
    mains = pod.with_role(Role.MAIN)
    if any(container.is_busy for container in pod.containers) and (
        pod.stop_by or pod_termination(pod) or pod_has_finished(pod)
    ):
        return "Pending" if all(_has_never_run(main) for main in mains) else "Running"
    if pod_termination(pod) is not None:
        return "Failed"
    if pod.stop_by is not None:
        return _stopped_phase(mains)
    if pod_has_finished(pod):
        return "Succeeded" if all(main.succeeded for main in mains) else "Failed"
    inits = pod.with_role(Role.INIT, Role.SIDECAR)
    if not all(is_initialized(init) for init in inits) or any(_has_never_run(main) for main in mains):
        return "Pending"
    return "Running"


def _stopped_phase(mains: Sequence[ContainerObservation]) -> str:
    """The phase of a pod that is being deleted, independent of its restart policy."""
    if all(main.latest_run is None for main in mains):
        return "Pending"
    return "Succeeded" if all(main.succeeded for main in mains) else "Failed"


def _has_never_run(container: ContainerObservation) -> bool:
    latest = container.latest_run
    return latest is None or (latest.started_at is None and latest.exit is None)


# Conditions


def pod_conditions(pod: PodObservation, phase: str, context: PodStatusContext) -> list[JSON]:
    """The node's conditions. A transition time changes only together with the condition's status."""
    containers_ready = _containers_ready_condition(pod, phase)
    conditions = [
        Condition(type="PodReadyToStartContainers", status=_condition_status(pod.prepared and phase in _ACTIVE_PHASES)),
        _initialized_condition(pod, phase),
        _ready_condition(containers_ready, context),
        containers_ready,
    ]
    before = {condition.type: condition for condition in context.previous_conditions}
    return [
        condition_body(_with_transition_time(condition, before.get(condition.type), pod.now))
        for condition in conditions
    ]


_ACTIVE_PHASES = ("Pending", "Running")


def _initialized_condition(pod: PodObservation, phase: str) -> Condition:
    if phase == "Succeeded":
        return Condition(type="Initialized", status="True", reason="PodCompleted")
    incomplete = [init.name for init in pod.with_role(Role.INIT, Role.SIDECAR) if not is_initialized(init)]
    if not incomplete:
        return Condition(type="Initialized", status="True")
    message = f"containers with incomplete status: [{' '.join(incomplete)}]"
    return Condition(type="Initialized", status="False", reason="ContainersNotInitialized", message=message)


def _containers_ready_condition(pod: PodObservation, phase: str) -> Condition:
    name = "ContainersReady"
    if phase == "Succeeded":
        return Condition(type=name, status="False", reason="PodCompleted")
    if phase == "Failed":
        return Condition(type=name, status="False", reason="PodFailed")
    unready = [container.name for container in pod.with_role(Role.SIDECAR, Role.MAIN) if not container.ready]
    if not unready:
        return Condition(type=name, status="True")
    message = f"containers with unready status: [{' '.join(unready)}]"
    return Condition(type=name, status="False", reason="ContainersNotReady", message=message)


def _ready_condition(containers: Condition, context: PodStatusContext) -> Condition:
    if containers.status != "True":
        return msgspec.structs.replace(containers, type="Ready")
    passed = {condition.type for condition in context.previous_conditions if condition.status == "True"}
    missing = [gate for gate in context.readiness_gates if gate not in passed]
    if not missing:
        return Condition(type="Ready", status="True")
    message = "; ".join(f'corresponding condition of pod readiness gate "{gate}" is not "True".' for gate in missing)
    return Condition(type="Ready", status="False", reason="ReadinessGatesNotReady", message=message)


def _with_transition_time(now: Condition, before: Condition | None, moment: datetime) -> Condition:
    since = before.last_transition_time if before is not None and before.status == now.status else None
    return msgspec.structs.replace(now, last_transition_time=since or moment)


def condition_body(condition: Condition) -> JSON:
    """A condition in its wire form."""
    body: JSON = {"type": condition.type, "status": condition.status, "lastProbeTime": None}
    if condition.last_transition_time is not None:
        body["lastTransitionTime"] = timestamp(condition.last_transition_time)
    for name, value in (("reason", condition.reason), ("message", condition.message)):
        if value:
            body[name] = value
    return body


def _condition_status(value: object) -> str:
    return "True" if value else "False"


# Containers


def container_status(container: ContainerObservation, pod: PodObservation, context: PodStatusContext) -> JSON:
    latest = container.latest_run
    status: JSON = {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": _is_ready(container),
        "started": container.is_running and container.started,
        "restartCount": latest.attempt if latest is not None else 0,
        "state": container_state(container, pod, context),
        "lastState": last_state(container, pod),
    }
    if latest is not None and latest.id:
        status["containerID"] = container_id(latest)
    if container.is_running and container.role in (Role.MAIN, Role.SIDECAR):
        status |= resource_status(container.resources)
    return status


def resource_status(resources: ResourceRequirements) -> JSON:
    """The resources that a running container has. By them the server knows that the node can resize it."""
    amounts = {"limits": resources.limits, "requests": resources.requests}
    actual = {field: dict(values) for field, values in amounts.items() if values}
    allocated = {"allocatedResources": dict(resources.requests)} if resources.requests else {}
    return {"resources": actual, **allocated}


def _is_ready(container: ContainerObservation) -> bool:
    # As the kubelet: an init container that succeeded is ready.
    return container.succeeded if container.role is Role.INIT else container.is_running and container.ready


def container_state(container: ContainerObservation, pod: PodObservation, context: PodStatusContext) -> JSON:
    latest = container.latest_run
    if latest is not None and latest.is_running:
        return {"running": {"startedAt": timestamp(latest.started_at or EPOCH)}}
    if container.waiting is not None:
        return {"waiting": {"reason": container.waiting.reason, "message": container.waiting.message}}
    if latest is not None and latest.exit is not None:
        return _crash_loop_state(container, pod, context) or {"terminated": terminated_state(latest)}
    return {"waiting": {"reason": _creation_reason(container, pod)}}


def last_state(container: ContainerObservation, pod: PodObservation) -> JSON:
    """The state of the run before the one in `container_state`."""
    ended = [run for run in container.runs if run.exit is not None]
    latest = container.latest_run
    is_current = latest is not None and latest.exit is not None and not _is_waiting(container, pod)
    before = ended[:-1] if is_current else ended
    return {"terminated": terminated_state(before[-1])} if before else {}


def terminated_state(run: ContainerRun) -> JSON:
    assert run.exit is not None
    exit_ = run.exit
    body: JSON = {
        "exitCode": exit_.exit_code,
        "reason": exit_.reason or ("Completed" if exit_.exit_code == 0 else "Error"),
        "startedAt": timestamp(run.started_at or EPOCH),
        "finishedAt": timestamp(exit_.finished_at),
    }
    if exit_.signal:
        body["signal"] = exit_.signal
    if exit_.message:
        body["message"] = exit_.message
    if run.id:
        body["containerID"] = container_id(run)
    return body


def container_id(run: ContainerRun) -> str:
    return f"process://{run.id}"


def failed_ends(pod: PodObservation) -> str:
    """When the runs that failed ended, to the microsecond, by container id, as JSON; empty if none has.

    A status holds whole seconds: too little to tell which replica of a team failed first.
    """
    ends = {
        container_id(run): run.exit.finished_at.isoformat(timespec="microseconds").replace("+00:00", "Z")
        for container in pod.with_role(Role.MAIN)
        for run in container.runs
        if run.id and run.exit is not None and _has_failed(run.exit) and run.exit.finished_at.microsecond
    }
    return msgspec.json.encode(ends).decode() if ends else ""


def _has_failed(end: ContainerExit) -> bool:
    return bool(end.exit_code) and end.reason != IN_PLACE_REASON


def _is_waiting(container: ContainerObservation, pod: PodObservation) -> bool:
    if container.is_running:
        return False
    return container.waiting is not None or _is_backing_off(container, pod)


def _is_backing_off(container: ContainerObservation, pod: PodObservation) -> bool:
    """Whether the container has ended and waits for its back-off."""
    due = restart_at(container, pod.backoff)
    is_active = (
        pod.stop_by is None and not pod.is_finished and pod_termination(pod) is None and not pod_has_finished(pod)
    )
    idle = container.activity is Activity.IDLE
    return bool(
        is_active and idle and due is not None and due > pod.now and should_restart(container, pod.restart_policy)
    )


def _crash_loop_state(container: ContainerObservation, pod: PodObservation, context: PodStatusContext) -> JSON | None:
    latest = container.latest_run
    if latest is None or not _is_backing_off(container, pod):
        return None
    delay = restart_delay(latest, pod.backoff)
    message = (
        f"back-off {_go_duration(delay.total_seconds())} restarting failed container={container.name} "
        f"pod={context.name}_{context.namespace}({context.uid})"
    )
    return {"waiting": {"reason": "CrashLoopBackOff", "message": message}}


def _creation_reason(container: ContainerObservation, pod: PodObservation) -> str:
    """Why a container that never ran waits: it is being created, or init containers run first."""
    inits = pod.with_role(Role.INIT, Role.SIDECAR)
    return "ContainerCreating" if not inits and container.role is Role.MAIN else "PodInitializing"


def _go_duration(seconds: float) -> str:
    """A duration as Go writes it: 10s, 2m40s, 5m0s."""
    minutes, rest = divmod(round(seconds, 3), 60)
    text = f"{rest:g}s"
    return f"{int(minutes)}m{text}" if minutes else text
