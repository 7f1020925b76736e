"""Which container of a pod trains, and what its replica is called. Pure."""

from gangline.api.core import Container, Pod
from gangline.api.kubeflow.kinds import JOB_APIS
from gangline.api.kubeflow.training import REPLICA_INDEX, REPLICA_TYPE

TRAINING_CONTAINERS = frozenset(kind.container for kind in JOB_APIS)


def containers(pod: Pod) -> list[Container]:
    """The containers of a pod, the one that trains first."""
    return sorted(pod.spec.containers, key=lambda one: one.name not in TRAINING_CONTAINERS)


def replica_name(pod: Pod) -> str:
    """The name of a replica within its job: `worker-1`; the pod's name if it belongs to no training job."""
    labels = pod.metadata.labels
    kind = labels.get(REPLICA_TYPE, "").lower()
    if not kind:
        return pod.metadata.name
    index = labels.get(REPLICA_INDEX, "")
    return f"{kind}-{index}" if index else kind
