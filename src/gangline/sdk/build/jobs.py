"""Jobs from arguments: one function for each kind, and one for a team that runs the same everywhere."""

from collections.abc import Mapping, Sequence
from typing import Any

from gangline.api.kubeflow.kinds import JAXJOB, MPIJOB, PADDLEJOB, PYTORCHJOB, TFJOB, XGBOOSTJOB
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.sdk.build.bodies import env_entries, plain_json, resource_requirements
from gangline.sdk.job import Job

NO_SIDECAR_ANNOTATIONS = {"sidecar.istio.io/inject": "false"}
"""A service mesh would keep pods alive after the training has ended."""


class Replica:
    """What the replicas of a type run.

    Args:
        image: the image; on this machine it is only a name, unless images are mapped.
        command: its words, each as it is: nothing is expanded by a shell.
        replicas: how many.
        resources: `{"cpu": 2, "memory": "4Gi", "gpu": 1}` for requests and limits, or as Kubernetes has them.
        env: variables, as a dict or as Kubernetes has them.
        restart_policy: Never, OnFailure, Always or ExitCode.
        volumes: claims by the path where they are mounted.
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
        """As a job of that kind has it."""
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
    """A job of any kind. `run_policy` and `spec` as written in YAML. Raises `ValueError`."""
    unknown = [kind for kind in replicas if kind not in facts.types]
    if unknown:
        known = ", ".join(facts.types)
        raise ValueError(f"{facts.kind}: has no replica type {unknown[0]!r}; write one of {known}")
    there = {kind: each.spec(facts) for kind, each in replicas.items() if each is not None and each.replicas}
    if not there:
        raise ValueError(f"{facts.kind} {name}: no replicas; write at least one of {', '.join(facts.types)}")
    metadata: JSON = {"name": name}
    metadata |= {"namespace": namespace} if namespace else {}
    metadata |= {"labels": dict(labels)} if labels else {}
    metadata |= {"annotations": dict(annotations)} if annotations else {}
    body: JSON = {
        "apiVersion": facts.model.API_VERSION,
        "kind": facts.kind,
        "metadata": metadata,
        "spec": {facts.replicas: there, "runPolicy": plain_json(run_policy or {}), **plain_json(spec)},
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
    team = {"Chief": chief, "PS": ps, "Worker": worker, "Evaluator": evaluator}
    return build_job(TFJOB, name, team, **more)


def xgboost_job(name: str, *, master: Replica, worker: Replica | None = None, **more: Any) -> Job:
    """An XGBoostJob; `more` as for `build_job`."""
    return build_job(XGBOOSTJOB, name, {"Master": master, "Worker": worker}, **more)


def mpi_job(name: str, *, launcher: Replica, worker: Replica | None = None, slots: int = 1, **more: Any) -> Job:
    """An MPIJob with so many slots on every worker; `more` as for `build_job`."""
    team = {"Launcher": launcher, "Worker": worker}
    return build_job(MPIJOB, name, team, slotsPerWorker=slots, **more)


def paddle_job(name: str, *, master: Replica | None = None, worker: Replica | None = None, **more: Any) -> Job:
    """A PaddleJob; `more` as for `build_job`, and `elasticPolicy`."""
    return build_job(PADDLEJOB, name, {"Master": master, "Worker": worker}, **more)


def jax_job(name: str, *, worker: Replica, **more: Any) -> Job:
    """A JAXJob; `more` as for `build_job`."""
    return build_job(JAXJOB, name, {"Worker": worker}, **more)


KINDS_WITH_MASTER = (PYTORCHJOB, XGBOOSTJOB)


def replica_counts(facts: JobKind, members: int) -> dict[str, int]:
    """How so many equal members are named: with a master, who is one of them, where the kind has one."""
    if facts is MPIJOB:
        raise ValueError("MPIJob: its launcher starts the workers; write it with mpi_job()")
    if members < 1:
        raise ValueError(f"{members} members; write 1 or more")
    if facts in KINDS_WITH_MASTER:
        return {"Master": 1, **({"Worker": members - 1} if members > 1 else {})}
    return {"Worker": members}
