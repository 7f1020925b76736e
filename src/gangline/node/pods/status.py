"""The status of a pod, from what is known of its containers. Pure; the words are the kubelet's."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from gangline.api.meta import JSON, Condition
from gangline.node.pods.plan import (
    Activity,
    ContainerObservation,
    ContainerRun,
    PodObservation,
    Role,
    is_initialized,
    pod_has_finished,
    pod_termination,
    restart_at,
    should_restart,
)

HOST_IP = "127.0.0.1"
OWN_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
"""The conditions that the node writes. All others are handed on as they are."""


class PodStatusContext(msgspec.Struct, frozen=True):
    """What of a pod's identity and of its earlier status goes into the next one."""

    namespace: str
    name: str
    uid: str
    readiness_gates: tuple[str, ...] = ()
    previous_conditions: tuple[Condition, ...] = ()
    pod_ip: str = HOST_IP


def pod_status(seen: PodObservation, named: PodStatusContext) -> JSON:
    """`status`, for a merge patch: fields of others are left out."""
    phase = pod_phase(seen)
    inits = [container_status(each, seen, named) for each in seen.with_role(Role.INIT, Role.SIDECAR)]
    status: JSON = {
        "phase": phase,
        "hostIP": HOST_IP,
        "hostIPs": [{"ip": HOST_IP}],
        "podIP": named.pod_ip,
        "podIPs": [{"ip": named.pod_ip}],
        "conditions": pod_conditions(seen, phase, named),
        "containerStatuses": [container_status(each, seen, named) for each in seen.with_role(Role.MAIN)],
    }
    if inits:
        status["initContainerStatuses"] = inits
    if seen.start_time is not None:
        status["startTime"] = timestamp(seen.start_time)
    doom = pod_termination(seen)
    if doom is not None:
        status.update(reason=doom.reason, message=doom.message)
    return status


# Phase


def pod_phase(seen: PodObservation) -> str:
    """A pod is over only when nothing of it runs any more, sidecars included."""
    mains = seen.with_role(Role.MAIN)
    if any(each.is_busy for each in seen.containers) and (
        seen.stop_by or pod_termination(seen) or pod_has_finished(seen)
    ):
        return "Pending" if all(_has_never_run(each) for each in mains) else "Running"
    if pod_termination(seen) is not None:
        return "Failed"
    if seen.stop_by is not None:
        return _stopped_phase(mains)
    if pod_has_finished(seen):
        return "Succeeded" if all(each.succeeded for each in mains) else "Failed"
    inits = seen.with_role(Role.INIT, Role.SIDECAR)
    if not all(is_initialized(each) for each in inits) or any(_has_never_run(each) for each in mains):
        return "Pending"
    return "Running"


def _stopped_phase(mains: Sequence[ContainerObservation]) -> str:
    """Of a pod that was deleted: what became of it, whatever its restart policy."""
    if all(each.latest_run is None for each in mains):
        return "Pending"
    return "Succeeded" if all(each.succeeded for each in mains) else "Failed"


def _has_never_run(container: ContainerObservation) -> bool:
    newest = container.latest_run
    return newest is None or (newest.started_at is None and newest.exit is None)


# Conditions


def pod_conditions(seen: PodObservation, phase: str, named: PodStatusContext) -> list[JSON]:
    """Ours as they are now. A transition time moves with the status only."""
    containers_ready = _containers_ready_condition(seen, phase)
    ours = [
        Condition(
            type="PodReadyToStartContainers",
            status=_condition_status(seen.prepared and phase in _ACTIVE_PHASES),
        ),
        _initialized_condition(seen, phase),
        _ready_condition(containers_ready, named),
        containers_ready,
    ]
    before = {each.type: each for each in named.previous_conditions}
    return [condition_body(_with_transition_time(each, before.get(each.type), seen.now)) for each in ours]


_ACTIVE_PHASES = ("Pending", "Running")


def _initialized_condition(seen: PodObservation, phase: str) -> Condition:
    if phase == "Succeeded":
        return Condition(type="Initialized", status="True", reason="PodCompleted")
    left = [each.name for each in seen.with_role(Role.INIT, Role.SIDECAR) if not is_initialized(each)]
    if not left:
        return Condition(type="Initialized", status="True")
    message = f"containers with incomplete status: [{' '.join(left)}]"
    return Condition(type="Initialized", status="False", reason="ContainersNotInitialized", message=message)


def _containers_ready_condition(seen: PodObservation, phase: str) -> Condition:
    name = "ContainersReady"
    if phase == "Succeeded":
        return Condition(type=name, status="False", reason="PodCompleted")
    if phase == "Failed":
        return Condition(type=name, status="False", reason="PodFailed")
    left = [each.name for each in seen.with_role(Role.SIDECAR, Role.MAIN) if not each.ready]
    if not left:
        return Condition(type=name, status="True")
    message = f"containers with unready status: [{' '.join(left)}]"
    return Condition(type=name, status="False", reason="ContainersNotReady", message=message)


def _ready_condition(containers: Condition, named: PodStatusContext) -> Condition:
    if containers.status != "True":
        return msgspec.structs.replace(containers, type="Ready")
    passed = {each.type for each in named.previous_conditions if each.status == "True"}
    missing = [gate for gate in named.readiness_gates if gate not in passed]
    if not missing:
        return Condition(type="Ready", status="True")
    message = "; ".join(f'corresponding condition of pod readiness gate "{gate}" is not "True".' for gate in missing)
    return Condition(type="Ready", status="False", reason="ReadinessGatesNotReady", message=message)


def _with_transition_time(now: Condition, before: Condition | None, moment: datetime) -> Condition:
    kept = before.last_transition_time if before is not None and before.status == now.status else None
    return msgspec.structs.replace(now, last_transition_time=kept or moment)


def condition_body(condition: Condition) -> JSON:
    """A condition as the wire has it."""
    said: JSON = {"type": condition.type, "status": condition.status, "lastProbeTime": None}
    if condition.last_transition_time is not None:
        said["lastTransitionTime"] = timestamp(condition.last_transition_time)
    for name, value in (("reason", condition.reason), ("message", condition.message)):
        if value:
            said[name] = value
    return said


def _condition_status(value: object) -> str:
    return "True" if value else "False"


# Containers


def container_status(container: ContainerObservation, seen: PodObservation, named: PodStatusContext) -> JSON:
    newest = container.latest_run
    status: JSON = {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": _is_ready(container),
        "started": container.is_running and container.started,
        "restartCount": newest.attempt if newest is not None else 0,
        "state": container_state(container, seen, named),
        "lastState": last_state(container, seen),
    }
    if newest is not None and newest.id:
        status["containerID"] = container_id(newest)
    return status


def _is_ready(container: ContainerObservation) -> bool:
    # An init container that did its work is called ready, as the kubelet does.
    return container.succeeded if container.role is Role.INIT else container.is_running and container.ready


def container_state(container: ContainerObservation, seen: PodObservation, named: PodStatusContext) -> JSON:
    newest = container.latest_run
    if newest is not None and newest.is_running:
        return {"running": {"startedAt": timestamp(newest.started_at)}}
    if container.waiting is not None:
        return {"waiting": {"reason": container.waiting.reason, "message": container.waiting.message}}
    if newest is not None and newest.exit is not None:
        return _crash_loop_state(container, seen, named) or {"terminated": terminated_state(newest)}
    return {"waiting": {"reason": _creation_reason(container, seen)}}


def last_state(container: ContainerObservation, seen: PodObservation) -> JSON:
    """The run before the one that `container_state` tells of."""
    ended = [run for run in container.runs if run.exit is not None]
    newest = container.latest_run
    told = newest is not None and newest.exit is not None and not _is_waiting(container, seen)
    before = ended[:-1] if told else ended
    return {"terminated": terminated_state(before[-1])} if before else {}


def terminated_state(run: ContainerRun) -> JSON:
    assert run.exit is not None
    ended = run.exit
    said: JSON = {
        "exitCode": ended.exit_code,
        "reason": ended.reason or ("Completed" if ended.exit_code == 0 else "Error"),
        "startedAt": timestamp(run.started_at or datetime.fromtimestamp(0, UTC)),
        "finishedAt": timestamp(ended.finished_at),
    }
    if ended.signal:
        said["signal"] = ended.signal
    if ended.message:
        said["message"] = ended.message
    if run.id:
        said["containerID"] = container_id(run)
    return said


def container_id(run: ContainerRun) -> str:
    return f"process://{run.id}"


def timestamp(moment: datetime | None) -> str:
    """To the second, as Kubernetes writes times."""
    return (moment or datetime.fromtimestamp(0, UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_waiting(container: ContainerObservation, seen: PodObservation) -> bool:
    if container.is_running:
        return False
    return container.waiting is not None or _is_backing_off(container, seen)


def _is_backing_off(container: ContainerObservation, seen: PodObservation) -> bool:
    """Whether it ended and is held back before the next start."""
    due = restart_at(container, seen.backoff)
    going = (
        seen.stop_by is None and not seen.is_finished and pod_termination(seen) is None and not pod_has_finished(seen)
    )
    idle = container.activity is Activity.IDLE
    return bool(
        going and idle and due is not None and due > seen.now and should_restart(container, seen.restart_policy)
    )


def _crash_loop_state(container: ContainerObservation, seen: PodObservation, named: PodStatusContext) -> JSON | None:
    newest = container.latest_run
    if newest is None or not _is_backing_off(container, seen):
        return None
    delay = seen.backoff.delay(newest)
    message = (
        f"back-off {_go_duration(delay.total_seconds())} restarting failed container={container.name} "
        f"pod={named.name}_{named.namespace}({named.uid})"
    )
    return {"waiting": {"reason": "CrashLoopBackOff", "message": message}}


def _creation_reason(container: ContainerObservation, seen: PodObservation) -> str:
    """Nothing of it ran yet: it is being made, or others come first."""
    inits = seen.with_role(Role.INIT, Role.SIDECAR)
    return "ContainerCreating" if not inits and container.role is Role.MAIN else "PodInitializing"


def _go_duration(seconds: float) -> str:
    """As Go writes one: 10s, 2m40s, 5m0s."""
    minutes, rest = divmod(round(seconds, 3), 60)
    text = f"{rest:g}s"
    return f"{int(minutes)}m{text}" if minutes else text


def is_terminal_phase(phase: str) -> bool:
    """Whether a phase is one that a pod never leaves."""
    return phase in ("Succeeded", "Failed")
