"""Reads the JSON of recorded objects. Nothing here raises: what is missing or malformed reads as empty."""

import signal
from datetime import datetime
from typing import Any, NamedTuple

from gangline.api.meta import JSON

JOB_NAME = "training.kubeflow.org/job-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
DEFAULT_CONTAINER_ANNOTATION = "kubectl.kubernetes.io/default-container"
TRAINING_CONTAINERS = ("tensorflow", "pytorch", "xgboost", "mpi", "paddle", "jax")
PLAIN_EXIT_REASONS = ("", "Error", "Completed")
"""Reasons of an ended container that say no more than its exit code."""


def child(body: Any, *names: str) -> JSON:
    """The object at a path of fields."""
    for name in names:
        body = body.get(name) if isinstance(body, dict) else None
    return body if isinstance(body, dict) else {}


def children(body: Any, *names: str) -> list[JSON]:
    """The objects of the list at a path of fields."""
    found = child(body, *names[:-1]).get(names[-1])
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def text(body: JSON, name: str) -> str:
    """The text of a field."""
    value = body.get(name)
    return value if isinstance(value, str) else ""


def integer(body: JSON, name: str) -> int | None:
    """The whole number of a field."""
    value = body.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def unix_time(stamp: Any) -> float | None:
    """A timestamp in Unix seconds; None if it is not one."""
    try:
        moment = datetime.fromisoformat(stamp) if isinstance(stamp, str) and stamp else None
        return moment.timestamp() if moment is not None and moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def moment(stamp: float | None, seen_at: float) -> float:
    """When something happened that an object dates `stamp`, and that was first seen at `seen_at`.

    Stamps have whole seconds. Within the second of its stamp, the moment of seeing it is the better estimate.
    """
    return seen_at if stamp is None or seen_at < stamp + 1 else stamp


class Replica(NamedTuple):
    """The replica that a pod runs."""

    type: str
    number: int
    name: str


def pod_replica(pod: JSON, job: str) -> Replica:
    """The replica of a pod: from its labels, else from its name."""
    labels, name = child(pod, "metadata", "labels"), text(child(pod, "metadata"), "name")
    index = text(labels, REPLICA_INDEX)
    short = name.removeprefix(f"{job}-") or name
    return Replica(
        text(labels, REPLICA_TYPE).lower(), int(index) if index.isdecimal() and len(index) < 10 else 0, short
    )


def training_container(pod: JSON) -> str:
    """The name of the container that trains: the annotated default, one of the usual names, or the first."""
    names = [text(container, "name") for container in children(pod, "spec", "containers")]
    default = text(child(pod, "metadata", "annotations"), DEFAULT_CONTAINER_ANNOTATION)
    if default in names:
        return default
    return next((name for name in names if name in TRAINING_CONTAINERS), names[0] if names else "")


def container_status(pod: JSON) -> JSON:
    """The status of the training container; empty if there is none yet."""
    name, statuses = training_container(pod), children(pod, "status", "containerStatuses")
    return next((status for status in statuses if text(status, "name") == name), {})


def condition(body: JSON, kind: str) -> JSON:
    """A condition of an object's status by its type."""
    return next((found for found in children(body, "status", "conditions") if text(found, "type") == kind), {})


def end_text(exit_code: int | None, reason: str) -> str:
    """How a process ended: `exit 1`, `exit 137 (SIGKILL)`, `OOMKilled, exit 137`, `Evicted`."""
    parts = [] if reason in PLAIN_EXIT_REASONS else [reason]
    if exit_code is not None:
        name = _signal_name(exit_code) if not parts else ""
        parts.append(f"exit {exit_code} ({name})" if name else f"exit {exit_code}")
    return ", ".join(parts)


def _signal_name(code: int) -> str:
    try:
        return signal.Signals(code - 128).name if code > 128 else ""
    except ValueError:
        return ""
