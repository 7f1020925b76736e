"""Objects for tests, named by what matters in them."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from gangline.api.core import (
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
)
from gangline.api.kubeflow.kinds import TFJOB, TFJob
from gangline.api.kubeflow.training import (
    JOB_NAME,
    OPERATOR_NAME,
    REPLICA_INDEX,
    REPLICA_TYPE,
    ROUND_ANNOTATION,
    JobKind,
)
from gangline.api.meta import JSON, ObjectMeta


def make_pod(
    name: str = "pod",
    *,
    namespace: str = "default",
    phase: str = "Pending",
    labels: Mapping[str, str] | None = None,
    exit_code: int | None = None,
    node: str = "",
    version: str = "1",
    container: str = "main",
    restarts: int = 0,
    finished_at: datetime | None = None,
    reason: str = "",
    leaving: datetime | None = None,
    uid: str = "",
    annotations: Mapping[str, str] | None = None,
) -> Pod:
    """A pod as a controller sees it. With an exit code, its container has ended; `leaving`, it is being deleted."""
    state = ContainerState()
    if exit_code is not None:
        ended = ContainerStateTerminated(exit_code=exit_code, finished_at=finished_at)
        state = ContainerState(terminated=ended)
    told = exit_code is not None or restarts
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=uid or f"uid-{name}",
            resource_version=version,
            labels=dict(labels or {}),
            annotations=dict(annotations or {}),
            deletion_timestamp=leaving,
        ),
        spec=PodSpec(node_name=node),
        status=PodStatus(
            phase=phase,
            reason=reason,
            container_statuses=(
                (ContainerStatus(name=container, state=state, restart_count=restarts),) if told else ()
            ),
        ),
    )


def make_member(
    kind: str,
    index: int = 0,
    *,
    job: str = "job",
    of: JobKind = TFJOB,
    phase: str = "Running",
    number: int = 0,
    **more: Any,
) -> Pod:
    """A pod that fills one seat of a job, in a round of its team. Takes what `make_pod` takes."""
    labels = {JOB_NAME: job, OPERATOR_NAME: of.controller, REPLICA_TYPE: kind.lower()}
    name = f"{job}-{kind.lower()}"
    if kind != "Launcher":
        labels[REPLICA_INDEX], name = str(index), f"{name}-{index}"
    annotations = {ROUND_ANNOTATION: str(number)} if number else {}
    more.setdefault("container", of.container)
    if phase == "Succeeded":
        more.setdefault("exit_code", 0)
    return make_pod(name, phase=phase, labels=labels, annotations=annotations, **more)


def make_template(*command: str, container: str = "tensorflow") -> JSON:
    """A pod template with one container."""
    return {"spec": {"containers": [{"name": container, "image": "test", "command": list(command)}]}}


def make_job(
    of: JobKind,
    name: str = "job",
    *,
    restart: str | None = None,
    policy: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
    generation: int = 1,
    **replicas: int,
) -> Any:
    """A job of any kind: `make_job(PYTORCHJOB, master=1, worker=3, restart="ExitCode", policy={"backoffLimit": 2})`.

    `policy` is its runPolicy and `spec` the rest of its spec, both as written in YAML.
    """
    spelled = {kind.lower(): kind for kind in of.types}
    specs = {
        spelled.get(kind, kind): {
            "replicas": count,
            "template": make_template("true", container=of.container),
            **({"restartPolicy": restart} if restart is not None else {}),
        }
        for kind, count in replicas.items()
    }
    body = {
        "apiVersion": "kubeflow.org/v1",
        "kind": of.kind,
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "generation": generation,
            "annotations": dict(annotations or {}),
        },
        "spec": {of.replicas: specs, "runPolicy": dict(policy or {}), **(spec or {})},
    }
    return msgspec.convert(body, of.model)


def make_tfjob(name: str = "job", *, clean: str = "Running", **replicas: Any) -> TFJob:
    """A TFJob whose replicas are never restarted: `make_tfjob(ps=1, worker=3)`."""
    job: TFJob = make_job(TFJOB, name, restart="Never", policy={"cleanPodPolicy": clean}, **replicas)
    return job
