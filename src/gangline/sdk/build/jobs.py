"""Builders of jobs: one function for each kind."""

from collections.abc import Mapping, Sequence
from typing import Any

from gangline.api.kubeflow.kinds import JAXJOB, MPIJOB, MPIJOB_V2, PADDLEJOB, PYTORCHJOB, TFJOB, XGBOOSTJOB
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.sdk.build.bodies import env_entries, plain_json, resource_requirements
from gangline.sdk.job import Job

NO_SIDECAR_ANNOTATIONS = {"sidecar.istio.io/inject": "false"}
"""The sidecar of a service mesh would keep pods running after the training has ended."""


class Replica:
    """The replicas of one replica type.

    Args:
        image: the image; on a local plane it is only a name, unless images are mapped.
        command: the words of the command; no shell expands them.
        replicas: the number of replicas.
        resources: `{"cpu": 2, "memory": "4Gi", "gpu": 1}` for requests and limits, or in the form of Kubernetes.
        env: environment variables, as a dict or in the form of Kubernetes.
        restart_policy: Never, OnFailure, Always or ExitCode.
        volumes: claims by mount path.
    """

    def __init__(
        self,
        image: str,
        command: Sequence[str] = (),
        *,
        args: Sequence[str] = (),
        replicas: int = 1,
        resources: Any = None,
        env: Any = None,
        restart_policy: str = "Never",
        volumes: Mapping[str, str] | None = None,
        template: Mapping[str, Any] | None = None,
    ) -> None:
        if isinstance(command, str) or isinstance(args, str):
            raise ValueError('command: is one text; write its words, such as ["python", "train.py"]')
        if replicas < 0:
            raise ValueError(f"replicas: is {replicas}; write 0 or more")
        self.image, self.command, self.args, self.replicas = image, list(command), list(args), replicas
        self.resources, self.env = resource_requirements(resources), env_entries(env)
        self.restart_policy, self.volumes = restart_policy, dict(volumes or {})
        self.template = plain_json(template or {})

    def spec(self, facts: JobKind) -> JSON:
        """The replica spec in a job of this kind."""
        container: JSON = {"name": facts.container, "image": self.image}
        container |= {"command": self.command} if self.command else {}
        container |= {"args": self.args} if self.args else {}
        container |= {"env": self.env} if self.env else {}
        container |= {"resources": self.resources} if self.resources else {}
        pod: JSON = {"containers": [container]}
        if self.volumes:
            names = {claim: f"data-{number}" for number, claim in enumerate(dict.fromkeys(self.volumes.values()))}
            container["volumeMounts"] = [
                {"name": names[claim], "mountPath": path} for path, claim in self.volumes.items()
            ]
            pod["volumes"] = [
                {"name": name, "persistentVolumeClaim": {"claimName": claim}} for claim, name in names.items()
            ]
        extra = dict(self.template.get("spec") or {})
        containers = [*pod["containers"], *extra.pop("containers", [])]
        metadata = dict(self.template.get("metadata") or {})
        annotations = {**NO_SIDECAR_ANNOTATIONS, **(metadata.get("annotations") or {})}
        return {
            "replicas": self.replicas,
            "restartPolicy": self.restart_policy,
            "template": {
                "metadata": {**metadata, "annotations": annotations},
                "spec": {**pod, **extra, "containers": containers},
            },
        }


def build_job(
    facts: JobKind,
    name: str,
    replicas: Mapping[str, Replica | None],
    *,
    namespace: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    run_policy: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Job:
    """A job of any kind. `run_policy` and `spec` have the field names of YAML. Raises `ValueError`."""
    unknown = [replica_type for replica_type in replicas if replica_type not in facts.types]
    if unknown:
        types = ", ".join(facts.types)
        raise ValueError(f"{facts.kind}: has no replica type {unknown[0]!r}; write one of {types}")
    specs = {
        replica_type: replica.spec(facts)
        for replica_type, replica in replicas.items()
        if replica is not None and replica.replicas
    }
    if not specs:
        raise ValueError(f"{facts.kind} {name}: no replicas; write at least one of {', '.join(facts.types)}")
    metadata: JSON = {"name": name}
    metadata |= {"namespace": namespace} if namespace else {}
    metadata |= {"labels": dict(labels)} if labels else {}
    metadata |= {"annotations": dict(annotations)} if annotations else {}
    body: JSON = {
        "apiVersion": facts.model.API_VERSION,
        "kind": facts.kind,
        "metadata": metadata,
        "spec": {facts.replicas: specs, "runPolicy": plain_json(run_policy or {}), **plain_json(spec)},
    }
    return Job(body)


def pytorch_job(name: str, *, master: Replica | None = None, worker: Replica | None = None, **more: Any) -> Job:
    """A PyTorchJob; `more` as for `build_job`, and `elasticPolicy`, `nprocPerNode`."""
    return build_job(PYTORCHJOB, name, {"Master": master, "Worker": worker}, **more)


def tf_job(
    name: str,
    *,
    worker: Replica | None = None,
    ps: Replica | None = None,
    chief: Replica | None = None,
    evaluator: Replica | None = None,
    **more: Any,
) -> Job:
    """A TFJob; `more` as for `build_job`, and `successPolicy`, `enableDynamicWorker`."""
    replicas = {"Chief": chief, "PS": ps, "Worker": worker, "Evaluator": evaluator}
    return build_job(TFJOB, name, replicas, **more)


def xgboost_job(name: str, *, master: Replica, worker: Replica | None = None, **more: Any) -> Job:
    """An XGBoostJob; `more` as for `build_job`."""
    return build_job(XGBOOSTJOB, name, {"Master": master, "Worker": worker}, **more)


def mpi_job(
    name: str, *, launcher: Replica, worker: Replica | None = None, slots: int = 1, ssh: bool = False, **more: Any
) -> Job:
    """An MPIJob with `slots` slots per worker, with `ssh` of `v2beta1`, which is mpi-operator's; `more` as for `build_job`."""
    replicas = {"Launcher": launcher, "Worker": worker}
    return build_job(MPIJOB_V2 if ssh else MPIJOB, name, replicas, slotsPerWorker=slots, **more)


def paddle_job(name: str, *, master: Replica | None = None, worker: Replica | None = None, **more: Any) -> Job:
    """A PaddleJob; `more` as for `build_job`, and `elasticPolicy`."""
    return build_job(PADDLEJOB, name, {"Master": master, "Worker": worker}, **more)


def jax_job(name: str, *, worker: Replica, **more: Any) -> Job:
    """A JAXJob; `more` as for `build_job`."""
    return build_job(JAXJOB, name, {"Worker": worker}, **more)


KINDS_WITH_MASTER = (PYTORCHJOB, XGBOOSTJOB)


def replica_counts(facts: JobKind, members: int) -> dict[str, int]:
    """The replica types of `members` equal replicas: one is the master if the kind has one. Raises `ValueError`."""
    if facts is MPIJOB:
        raise ValueError("MPIJob: its launcher starts the workers; write it with mpi_job()")
    if members < 1:
        raise ValueError(f"{members} members; write 1 or more")
    if facts in KINDS_WITH_MASTER:
        return {"Master": 1, **({"Worker": members - 1} if members > 1 else {})}
    return {"Worker": members}
