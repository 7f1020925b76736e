"""The status of a pod, from what is known of its containers. Pure; the words are the kubelet's."""

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from gangline.api.meta import JSON, Condition
from gangline.node.pods.plan import (
    Activity,
    Observed,
    Role,
    Run,
    Seen,
    doomed,
    finished,
    initialized,
    ready_at,
    restarts,
)

HOST = "127.0.0.1"
OURS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
"""The conditions that the node writes. All others are handed on as they are."""


class Named(msgspec.Struct, frozen=True):
    """What of a pod's identity and of its earlier status goes into the next one."""

    namespace: str
    name: str
    uid: str
    gates: tuple[str, ...] = ()
    before: tuple[Condition, ...] = ()
    address: str = HOST


def pod_status(seen: Observed, named: Named) -> JSON:
    """`status`, for a merge patch: fields of others are left out."""
    phase = pod_phase(seen)
    inits = [container_status(each, seen, named) for each in seen.of(Role.INIT, Role.SIDECAR)]
    status: JSON = {
        "phase": phase,
        "hostIP": HOST,
        "hostIPs": [{"ip": HOST}],
        "podIP": named.address,
        "podIPs": [{"ip": named.address}],
        "conditions": conditions(seen, phase, named),
        "containerStatuses": [container_status(each, seen, named) for each in seen.of(Role.MAIN)],
    }
    if inits:
        status["initContainerStatuses"] = inits
    if seen.since is not None:
        status["startTime"] = stamp(seen.since)
    doom = doomed(seen)
    if doom is not None:
        status.update(reason=doom.reason, message=doom.message)
    return status


# Phase


def pod_phase(seen: Observed) -> str:
    """A pod is over only when nothing of it runs any more, sidecars included."""
    mains = seen.of(Role.MAIN)
    if any(each.busy for each in seen.containers) and (seen.stop_by or doomed(seen) or finished(seen)):
        return "Pending" if all(_never_ran(each) for each in mains) else "Running"
    if doomed(seen) is not None:
        return "Failed"
    if seen.stop_by is not None:
        return _stopped_phase(mains)
    if finished(seen):
        return "Succeeded" if all(each.succeeded for each in mains) else "Failed"
    inits = seen.of(Role.INIT, Role.SIDECAR)
    if not all(initialized(each) for each in inits) or any(_never_ran(each) for each in mains):
        return "Pending"
    return "Running"


def _stopped_phase(mains: Sequence[Seen]) -> str:
    """Of a pod that was deleted: what became of it, whatever its restart policy."""
    if all(each.newest is None for each in mains):
        return "Pending"
    return "Succeeded" if all(each.succeeded for each in mains) else "Failed"


def _never_ran(container: Seen) -> bool:
    newest = container.newest
    return newest is None or (newest.started is None and newest.ended is None)


# Conditions


def conditions(seen: Observed, phase: str, named: Named) -> list[JSON]:
    """Ours as they are now. A transition time moves with the status only."""
    containers_ready = _containers_ready(seen, phase)
    ours = [
        Condition(type="PodReadyToStartContainers", status=_truth(seen.prepared and phase in _GOING)),
        _initialized(seen, phase),
        _ready(containers_ready, named),
        containers_ready,
    ]
    before = {each.type: each for each in named.before}
    return [written(_dated(each, before.get(each.type), seen.now)) for each in ours]


_GOING = ("Pending", "Running")


def _initialized(seen: Observed, phase: str) -> Condition:
    if phase == "Succeeded":
        return Condition(type="Initialized", status="True", reason="PodCompleted")
    left = [each.name for each in seen.of(Role.INIT, Role.SIDECAR) if not initialized(each)]
    if not left:
        return Condition(type="Initialized", status="True")
    message = f"containers with incomplete status: [{' '.join(left)}]"
    return Condition(type="Initialized", status="False", reason="ContainersNotInitialized", message=message)


def _containers_ready(seen: Observed, phase: str) -> Condition:
    name = "ContainersReady"
    if phase == "Succeeded":
        return Condition(type=name, status="False", reason="PodCompleted")
    if phase == "Failed":
        return Condition(type=name, status="False", reason="PodFailed")
    left = [each.name for each in seen.of(Role.SIDECAR, Role.MAIN) if not each.ready]
    if not left:
        return Condition(type=name, status="True")
    message = f"containers with unready status: [{' '.join(left)}]"
    return Condition(type=name, status="False", reason="ContainersNotReady", message=message)


def _ready(containers: Condition, named: Named) -> Condition:
    if containers.status != "True":
        return msgspec.structs.replace(containers, type="Ready")
    passed = {each.type for each in named.before if each.status == "True"}
    missing = [gate for gate in named.gates if gate not in passed]
    if not missing:
        return Condition(type="Ready", status="True")
    message = "; ".join(
        f'corresponding condition of pod readiness gate "{gate}" is not "True".' for gate in missing
    )
    return Condition(type="Ready", status="False", reason="ReadinessGatesNotReady", message=message)


def _dated(now: Condition, before: Condition | None, moment: datetime) -> Condition:
    kept = before.last_transition_time if before is not None and before.status == now.status else None
    return msgspec.structs.replace(now, last_transition_time=kept or moment)


def written(condition: Condition) -> JSON:
    """A condition as the wire has it."""
    said: JSON = {"type": condition.type, "status": condition.status, "lastProbeTime": None}
    if condition.last_transition_time is not None:
        said["lastTransitionTime"] = stamp(condition.last_transition_time)
    for name, value in (("reason", condition.reason), ("message", condition.message)):
        if value:
            said[name] = value
    return said


def _truth(value: object) -> str:
    return "True" if value else "False"


# Containers


def container_status(container: Seen, seen: Observed, named: Named) -> JSON:
    newest = container.newest
    status: JSON = {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": _is_ready(container),
        "started": container.alive and container.started,
        "restartCount": newest.attempt if newest is not None else 0,
        "state": state(container, seen, named),
        "lastState": last_state(container, seen),
    }
    if newest is not None and newest.id:
        status["containerID"] = identity(newest)
    return status


def _is_ready(container: Seen) -> bool:
    # An init container that did its work is called ready, as the kubelet does.
    return container.succeeded if container.role is Role.INIT else container.alive and container.ready


def state(container: Seen, seen: Observed, named: Named) -> JSON:
    newest = container.newest
    if newest is not None and newest.alive:
        return {"running": {"startedAt": stamp(newest.started)}}
    if container.waiting is not None:
        return {"waiting": {"reason": container.waiting.reason, "message": container.waiting.message}}
    if newest is not None and newest.ended is not None:
        return _crash_loop(container, seen, named) or {"terminated": terminated(newest)}
    return {"waiting": {"reason": _creating(container, seen)}}


def last_state(container: Seen, seen: Observed) -> JSON:
    """The run before the one that `state` tells of."""
    ended = [run for run in container.runs if run.ended is not None]
    newest = container.newest
    told = newest is not None and newest.ended is not None and not _waits(container, seen)
    before = ended[:-1] if told else ended
    return {"terminated": terminated(before[-1])} if before else {}


def terminated(run: Run) -> JSON:
    assert run.ended is not None
    ended = run.ended
    said: JSON = {
        "exitCode": ended.code,
        "reason": ended.reason or ("Completed" if ended.code == 0 else "Error"),
        "startedAt": stamp(run.started or datetime.fromtimestamp(0, UTC)),
        "finishedAt": stamp(ended.at),
    }
    if ended.signal:
        said["signal"] = ended.signal
    if ended.message:
        said["message"] = ended.message
    if run.id:
        said["containerID"] = identity(run)
    return said


def identity(run: Run) -> str:
    return f"process://{run.id}"


def stamp(moment: datetime | None) -> str:
    """To the second, as Kubernetes writes times."""
    return (moment or datetime.fromtimestamp(0, UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _waits(container: Seen, seen: Observed) -> bool:
    if container.alive:
        return False
    return container.waiting is not None or _backs_off(container, seen)


def _backs_off(container: Seen, seen: Observed) -> bool:
    """Whether it ended and is held back before the next start."""
    due = ready_at(container, seen.backoff)
    going = seen.stop_by is None and not seen.over and doomed(seen) is None and not finished(seen)
    idle = container.activity is Activity.IDLE
    return bool(
        going and idle and due is not None and due > seen.now and restarts(container, seen.restart_policy)
    )


def _crash_loop(container: Seen, seen: Observed, named: Named) -> JSON | None:
    newest = container.newest
    if newest is None or not _backs_off(container, seen):
        return None
    delay = seen.backoff.delay(newest)
    message = (
        f"back-off {_duration(delay.total_seconds())} restarting failed container={container.name} "
        f"pod={named.name}_{named.namespace}({named.uid})"
    )
    return {"waiting": {"reason": "CrashLoopBackOff", "message": message}}


def _creating(container: Seen, seen: Observed) -> str:
    """Nothing of it ran yet: it is being made, or others come first."""
    inits = seen.of(Role.INIT, Role.SIDECAR)
    return "ContainerCreating" if not inits and container.role is Role.MAIN else "PodInitializing"


def _duration(seconds: float) -> str:
    """As Go writes one: 10s, 2m40s, 5m0s."""
    minutes, rest = divmod(round(seconds, 3), 60)
    text = f"{rest:g}s"
    return f"{int(minutes)}m{text}" if minutes else text


def finally_over(phase: str) -> bool:
    """Whether a phase is one that a pod never leaves."""
    return phase in ("Succeeded", "Failed")
