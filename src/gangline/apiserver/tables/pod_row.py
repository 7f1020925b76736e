"""The row of a pod."""

from datetime import datetime
from typing import Any

from gangline.api.durations import human_age
from gangline.api.meta import JSON
from gangline.apiserver.tables.table import age_cell, object_name

_NONE = "<none>"


def pod_cells(pod: JSON, now: datetime) -> list[Any]:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    summary = _ContainerSummary(pod)
    ips = status.get("podIPs") or [{}]
    return [
        object_name(pod),
        f"{summary.ready}/{summary.total}",
        summary.reason,
        _restarts_cell(summary, now),
        age_cell(pod, now),
        ips[0].get("ip") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        _readiness_gates_cell(spec, status),
    ]


_COMPLETION_MESSAGES = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}


def pod_row_conditions(pod: JSON) -> list[JSON]:
    """A Completed condition for a pod that has ended. `kubectl` can hide such rows."""
    phase = (pod.get("status") or {}).get("phase", "")
    message = _COMPLETION_MESSAGES.get(phase)
    if message is None:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": message}]


class _ContainerSummary:
    """The containers of a pod summed up: ready, restarts, reason.

    The first container that is waiting or has terminated gives the reason; init containers win over the phase.
    """

    def __init__(self, pod: JSON) -> None:
        spec, status = pod.get("spec") or {}, pod.get("status") or {}
        init = spec.get("initContainers") or []
        self._sidecars = {item["name"] for item in init if item.get("restartPolicy") == "Always"}
        self._init_total = len(init)
        self._conditions = status.get("conditions") or []
        self.total = len(spec.get("containers") or []) + len(self._sidecars)
        self.ready = self.restarts = 0
        self.last_restart = ""
        self.reason: str = status.get("reason") or status.get("phase", "")
        if any(item["type"] == "PodScheduled" and item.get("reason") == "SchedulingGated" for item in self._conditions):
            self.reason = "SchedulingGated"
        initializing = self._add_init_containers(status.get("initContainerStatuses") or [])
        if not initializing or self._condition_is_true("Initialized"):
            self._add_containers(status)
        self._apply_deletion(pod)

    def _add_init_containers(self, statuses: list[JSON]) -> bool:
        """Add the init containers. Returns whether one of them has not yet completed."""
        for index, container in enumerate(statuses):
            self._count_restarts(container)
            state = container.get("state") or {}
            terminated, waiting = state.get("terminated"), state.get("waiting")
            if terminated is not None and terminated.get("exitCode", 0) == 0:
                continue
            if container["name"] in self._sidecars and container.get("started"):
                self.ready += bool(container.get("ready"))
                continue
            if terminated is not None:
                self.reason = f"Init:{_termination_reason(terminated)}"
            elif waiting and waiting.get("reason") not in (None, "", "PodInitializing"):
                self.reason = f"Init:{waiting['reason']}"
            else:
                self.reason = f"Init:{index}/{self._init_total}"
            return True
        return False

    def _add_containers(self, status: JSON) -> None:
        # Restarts of completed init containers do not count, those of sidecars do.
        self.restarts, self.last_restart = 0, ""
        for container in status.get("initContainerStatuses") or []:
            if container["name"] in self._sidecars:
                self._count_restarts(container)
        running = False
        for container in reversed(status.get("containerStatuses") or []):
            self._count_restarts(container)
            state = container.get("state") or {}
            terminated, waiting = state.get("terminated"), state.get("waiting") or {}
            if waiting.get("reason"):
                self.reason = waiting["reason"]
            elif terminated is not None:
                self.reason = _termination_reason(terminated)
            elif container.get("ready") and state.get("running") is not None:
                running = True
                self.ready += 1
        if self.reason == "Completed" and running:
            self.reason = "Running" if self._condition_is_true("Ready") else "NotReady"

    def _apply_deletion(self, pod: JSON) -> None:
        if not pod.get("metadata", {}).get("deletionTimestamp"):
            return
        status = pod.get("status") or {}
        if status.get("reason") == "NodeLost":
            self.reason = "Unknown"
        elif status.get("phase") not in _COMPLETION_MESSAGES:
            self.reason = "Terminating"

    def _count_restarts(self, container: JSON) -> None:
        self.restarts += container.get("restartCount", 0)
        terminated = (container.get("lastState") or {}).get("terminated") or {}
        self.last_restart = max(self.last_restart, terminated.get("finishedAt") or "")

    def _condition_is_true(self, kind: str) -> bool:
        return any(condition["type"] == kind and condition.get("status") == "True" for condition in self._conditions)


def _termination_reason(terminated: JSON) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _restarts_cell(summary: _ContainerSummary, now: datetime) -> str:
    if summary.restarts and summary.last_restart:
        return f"{summary.restarts} ({human_age(summary.last_restart, now)} ago)"
    return str(summary.restarts)


def _readiness_gates_cell(spec: JSON, status: JSON) -> str:
    gates = spec.get("readinessGates") or []
    if not gates:
        return _NONE
    states = {condition["type"]: condition.get("status") for condition in reversed(status.get("conditions") or [])}
    passed = sum(states.get(gate["conditionType"]) == "True" for gate in gates)
    return f"{passed}/{len(gates)}"
