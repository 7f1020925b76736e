"""The replicas of a job: which pods they are, what they are called, which of them a person means."""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gangline.api.meta import JSON, Selector
from gangline.base.errors import InputError
from gangline.cli.resources.lookup import PODS, ServerJob
from gangline.kube.client import Client

JOB_NAME = "training.kubeflow.org/job-name"
OPERATOR_NAME = "training.kubeflow.org/operator-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
DEFAULT_CONTAINER_ANNOTATION = "kubectl.kubernetes.io/default-container"
TRAINING_CONTAINERS = ("tensorflow", "pytorch", "xgboost", "mpi", "paddle", "jax")
"""What the containers that train are called. The labels and these are in `gangline.api.kubeflow.training`, at a price."""

_REPLICA_PATTERN = re.compile(r"([A-Za-z]+)(?:[-/](\d+))?")


class ReplicaSelector(NamedTuple):
    """A replica type, or one replica of it."""

    type: str
    number: int | None = None

    def __str__(self) -> str:
        return self.type if self.number is None else f"{self.type}-{self.number}"

    def matches(self, pod: JSON) -> bool:
        """Whether a pod is of it."""
        labels = pod["metadata"].get("labels") or {}
        if labels.get(REPLICA_TYPE, "").lower() != self.type:
            return False
        # A launcher has no number.
        return self.number is None or labels.get(REPLICA_INDEX, "0") == str(self.number)


def replica_selector(text: str) -> ReplicaSelector:
    """What a person means by `worker`, `worker/0` or `worker-0`. Raises `InputError`."""
    found = _REPLICA_PATTERN.fullmatch(text)
    if found is None:
        raise InputError(f'"{text}" is no replica; write worker, or worker/0')
    return ReplicaSelector(found[1].lower(), int(found[2]) if found[2] else None)


def pod_selector(job: ServerJob) -> Selector:
    """Where the pods of a job are. A pod of a job of the same name and another kind has another operator-name."""
    return Selector(job.key.namespace, labels=f"{JOB_NAME}={job.key.name}")


def owns_pod(job: ServerJob, pod: JSON) -> bool:
    """Whether a pod is the job's own: by its owner, or where it has none by its labels."""
    owners = pod["metadata"].get("ownerReferences") or []
    if owners:
        return any(owner.get("uid") == job.body["metadata"].get("uid") for owner in owners)
    return True


async def list_replicas(client: Client, job: ServerJob, chosen: Sequence[ReplicaSelector] = ()) -> list[JSON]:
    """The pods of a job, in order: those chosen, or all. Raises `InputError` when a chosen one is not there."""
    page = await client.list(PODS, pod_selector(job))
    own = sorted_pods(pod for pod in page.items if owns_pod(job, pod))
    for each in chosen:
        if not any(each.matches(pod) for pod in own):
            there = ", ".join(replica_name(job, pod) for pod in own) or "no pods"
            raise InputError(f'{job.display_name} has no replica "{each}"; there is {there}')
    return [pod for pod in own if not chosen or any(each.matches(pod) for each in chosen)]


def sorted_pods(pods: Iterable[JSON]) -> list[JSON]:
    """By type, then by number."""

    def place(pod: JSON) -> tuple[str, int, str]:
        labels = pod["metadata"].get("labels") or {}
        index = labels.get(REPLICA_INDEX, "0")
        return labels.get(REPLICA_TYPE, ""), int(index) if index.isdigit() else 0, pod["metadata"]["name"]

    return sorted(pods, key=place)


def replica_name(job: ServerJob, pod: JSON) -> str:
    """What a replica is called: `worker-1`."""
    name: str = pod["metadata"]["name"]
    return name.removeprefix(f"{job.key.name}-")


def container_name(pod: JSON, asked: str = "") -> str:
    """The container to look into: the one asked for, the annotated, the one that trains, the first."""
    if asked:
        return asked
    names: list[str] = [found["name"] for found in pod["spec"].get("containers") or [{"name": ""}]]
    chosen = (pod["metadata"].get("annotations") or {}).get(DEFAULT_CONTAINER_ANNOTATION)
    if chosen in names:
        return str(chosen)
    return next((name for name in names if name in TRAINING_CONTAINERS), names[0])


def pod_state(pod: JSON) -> str:
    """One word, as kubectl has it, near enough: what a container waits for or ended with goes before the phase."""
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for found in reversed(status.get("containerStatuses") or []):
        state = found.get("state") or {}
        for part in ("waiting", "terminated"):
            if (state.get(part) or {}).get("reason"):
                return str(state[part]["reason"])
    return str(status.get("reason") or status.get("phase") or "Unknown")


def restart_count(pod: JSON) -> int:
    """How often containers were started again inside the pod."""
    found = (pod.get("status") or {}).get("containerStatuses") or []
    return sum(each.get("restartCount") or 0 for each in found)


def exit_text(pod: JSON) -> str:
    """How the training container ended, now or the last time: `0`, `1`, `137 (OOMKilled)`; `-` if it never did."""
    name = container_name(pod)
    for found in (pod.get("status") or {}).get("containerStatuses") or []:
        if found.get("name") != name:
            continue
        for part in ("state", "lastState"):
            ended = (found.get(part) or {}).get("terminated")
            if ended:
                why = ended.get("reason") or ""
                plain = why in ("", "Completed", "Error")
                return str(ended.get("exitCode", "")) + ("" if plain else f" ({why})")
    return "-"
