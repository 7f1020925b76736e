"""Objects for tests, named by what matters in them."""

from collections.abc import Mapping

from gangline.api.core import (
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
)
from gangline.api.meta import JSON, ObjectMeta
from gangline.api.tfjob import TFJob, TFJobSpec
from gangline.api.training import REPLICA_INDEX, REPLICA_TYPE, ReplicaSpec, RunPolicy


def make_pod(
    name: str = "pod",
    *,
    namespace: str = "default",
    phase: str = "Pending",
    labels: Mapping[str, str] | None = None,
    exit_code: int | None = None,
    node: str = "",
    version: str = "1",
) -> Pod:
    """A pod as a controller sees it."""
    ended = (
        ContainerState(terminated=ContainerStateTerminated(exit_code=exit_code))
        if exit_code is not None
        else None
    )
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"uid-{name}",
            resource_version=version,
            labels=dict(labels or {}),
        ),
        spec=PodSpec(node_name=node),
        status=PodStatus(
            phase=phase,
            container_statuses=(ContainerStatus(name="main", state=ended),) if ended is not None else (),
        ),
    )


def make_member(kind: str, index: int, *, job: str = "job", phase: str = "Running") -> Pod:
    """A pod that fills one seat of a job."""
    labels = {REPLICA_TYPE: kind.lower(), REPLICA_INDEX: str(index)}
    return make_pod(f"{job}-{kind.lower()}-{index}", phase=phase, labels=labels)


def make_template(*command: str, container: str = "tensorflow") -> JSON:
    """A pod template with one container."""
    return {"spec": {"containers": [{"name": container, "image": "test", "command": list(command)}]}}


def make_tfjob(name: str = "job", *, clean: str = "Running", **replicas: int) -> TFJob:
    """A TFJob: `make_tfjob(ps=1, worker=3)`."""
    spelled = {"ps": "PS", "worker": "Worker", "chief": "Chief", "evaluator": "Evaluator"}
    specs = {
        spelled[kind]: ReplicaSpec(replicas=count, template=make_template("true"), restart_policy="Never")
        for kind, count in replicas.items()
    }
    return TFJob(
        api_version="kubeflow.org/v1",
        kind="TFJob",
        metadata=ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", resource_version="1"),
        spec=TFJobSpec(tf_replica_specs=specs, run_policy=RunPolicy(clean_pod_policy=clean)),
    )
