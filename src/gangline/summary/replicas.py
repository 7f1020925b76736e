"""The replicas of a job: their pods, their names, and the selection of replicas on a command line."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gangline.api.in_place import HOLD_CONTAINER
from gangline.api.meta import JSON, Selector
from gangline.base.errors import InputError
from gangline.kube.client import Client
from gangline.summary.job_state import GENERIC_EXIT_REASONS
from gangline.summary.objects import PODS, ServerJob

JOB_NAME = "training.kubeflow.org/job-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
DEFAULT_CONTAINER_ANNOTATION = "kubectl.kubernetes.io/default-container"
TRAINING_CONTAINERS = ("tensorflow", "pytorch", "xgboost", "mpi", "paddle", "jax")
"""The names of training containers. These and the labels are also in `gangline.api.kubeflow.training`, which loads slowly."""

_REPLICA_PATTERN = re.compile(r"([A-Za-z]+)(?:[-/](\d+))?")


class ReplicaSelector(NamedTuple):
    """A replica type, or one replica of it."""

    type: str
    number: int | None = None

    def __str__(self) -> str:
        return self.type if self.number is None else f"{self.type}-{self.number}"

    def matches(self, pod: JSON) -> bool:
        """Whether a pod is this replica, or of this replica type."""
        labels = pod["metadata"].get("labels") or {}
        if labels.get(REPLICA_TYPE, "").lower() != self.type:
            return False
        # A launcher has no index.
        return self.number is None or labels.get(REPLICA_INDEX, "0") == str(self.number)


def replica_selector(text: str) -> ReplicaSelector:
    """The selector in `worker`, `worker/0` or `worker-0`. Raises `InputError`."""
    match = _REPLICA_PATTERN.fullmatch(text)
    if match is None:
        raise InputError(f'"{text}" is no replica; write worker, or worker/0')
    return ReplicaSelector(match[1].lower(), int(match[2]) if match[2] else None)


def pod_selector(job: ServerJob) -> Selector:
    """The selector of a job's pods. It also matches pods of a job of another kind with the same name: see `owns_pod`."""
    return Selector(job.key.namespace, labels=f"{JOB_NAME}={job.key.name}")


def owns_pod(job: ServerJob, pod: JSON) -> bool:
    """Whether a pod that `pod_selector` matches belongs to the job: it has no owner, or the job is its owner.

    The owner of a launcher's pod may be a Job of Kubernetes, which is named after the job and its role.
    """
    owners = pod["metadata"].get("ownerReferences") or []
    launcher = ("Job", f"{job.key.name}-launcher")
    return not owners or any(
        owner.get("uid") == job.body["metadata"].get("uid") or (owner.get("kind"), owner.get("name")) == launcher
        for owner in owners
    )


async def list_replicas(client: Client, job: ServerJob, selectors: Sequence[ReplicaSelector] = ()) -> list[JSON]:
    """The pods of a job, sorted: those that any selector matches, or all. Raises `InputError` if one matches none."""
    page = await client.list(PODS, pod_selector(job))
    pods = sorted_pods(pod for pod in page.items if owns_pod(job, pod))
    for selector in selectors:
        if not any(selector.matches(pod) for pod in pods):
            names = ", ".join(replica_name(job, pod) for pod in pods) or "no pods"
            raise InputError(f'{job.display_name} has no replica "{selector}"; there is {names}')
    return [pod for pod in pods if not selectors or any(selector.matches(pod) for selector in selectors)]


def sorted_pods(pods: Iterable[JSON]) -> list[JSON]:
    """Pods by replica type, then by replica index."""

    def sort_key(pod: JSON) -> tuple[str, int, str]:
        labels = pod["metadata"].get("labels") or {}
        index = labels.get(REPLICA_INDEX, "0")
        return labels.get(REPLICA_TYPE, ""), int(index) if index.isdigit() else 0, pod["metadata"]["name"]

    return sorted(pods, key=sort_key)


def replica_name(job: ServerJob, pod: JSON) -> str:
    """The name of a replica within its job: `worker-1`."""
    name: str = pod["metadata"]["name"]
    return name.removeprefix(f"{job.key.name}-")


def container_name(pod: JSON, requested: str = "") -> str:
    """The container to use: the requested one, else the annotated default, the training container, or the first."""
    if requested:
        return requested
    names: list[str] = [container["name"] for container in pod["spec"].get("containers") or [{"name": ""}]]
    default = (pod["metadata"].get("annotations") or {}).get(DEFAULT_CONTAINER_ANNOTATION)
    if default in names:
        return str(default)
    return next((name for name in names if name in TRAINING_CONTAINERS), names[0])


def pod_state(pod: JSON) -> str:
    """The state of a pod in one word, close to kubectl's STATUS: the reason of a container counts before the phase."""
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for container in reversed(status.get("containerStatuses") or []):
        state = container.get("state") or {}
        for part in ("waiting", "terminated"):
            if (state.get(part) or {}).get("reason"):
                return str(state[part]["reason"])
    return str(status.get("reason") or status.get("phase") or "Unknown")


def restart_count(pod: JSON) -> int:
    """How often the kubelet restarted containers of the pod."""
    containers = (pod.get("status") or {}).get("containerStatuses") or []
    return sum(
        container.get("restartCount") or 0 for container in containers if container.get("name") != HOLD_CONTAINER
    )


def exit_text(pod: JSON) -> str:
    """How the training container last exited: `0`, `1`, `137 (OOMKilled)`; `-` if it never did."""
    name = container_name(pod)
    for container in (pod.get("status") or {}).get("containerStatuses") or []:
        if container.get("name") != name:
            continue
        for part in ("state", "lastState"):
            terminated = (container.get(part) or {}).get("terminated")
            if terminated:
                reason = terminated.get("reason") or ""
                suffix = "" if reason in GENERIC_EXIT_REASONS else f" ({reason})"
                return str(terminated.get("exitCode", "")) + suffix
    return "-"
