"""Jobs of the six kinds from the models of Kubeflow's SDK: whole teams that train, or one member each."""

from pathlib import Path
from typing import Any, NamedTuple

from kubeflow import training  # type: ignore[import-not-found]
from kubernetes import client  # type: ignore[import-not-found]

EXAMPLES = Path(__file__).parents[2] / "examples"
Command = tuple[str, ...]


class Kind(NamedTuple):
    """One of the six: its names, a team of it that trains, what its leader says at the end, and one member alone."""

    replicas: str
    container: str
    team: dict[str, int]
    program: Command
    says: str
    leader: str
    alone: dict[str, int]


LINEAR = ("python", "linear.py")
ALLREDUCE = ("python", "allreduce.py")
LAUNCH = ("python", "launch.py", *ALLREDUCE)
PAIR, TRIO = {"Master": 1, "Worker": 1}, {"Master": 1, "Worker": 2}
WORKER, MASTER, LAUNCHER = {"Worker": 1}, {"Master": 1}, {"Launcher": 1}
KINDS = {
    "TFJob": Kind("tf_replica_specs", "tensorflow", {"PS": 1, "Worker": 2}, LINEAR, "trained", "worker-0", WORKER),
    "PyTorchJob": Kind("pytorch_replica_specs", "pytorch", TRIO, ALLREDUCE, "rank 0 of 3", "master-0", MASTER),
    "XGBoostJob": Kind("xgb_replica_specs", "xgboost", PAIR, ALLREDUCE, "rank 0 of 2", "master-0", MASTER),
    "MPIJob": Kind(
        "mpi_replica_specs",
        "mpi",
        {"Launcher": 1, "Worker": 2},
        LAUNCH,
        "rank 0 of 2",
        "launcher",
        LAUNCHER,
    ),
    "PaddleJob": Kind("paddle_replica_specs", "paddle", PAIR, ALLREDUCE, "rank 0 of 2", "master-0", MASTER),
    "JAXJob": Kind("jax_replica_specs", "jax", {"Worker": 2}, ALLREDUCE, "rank 0 of 2", "worker-0", WORKER),
}


def make(kind: str, name: str, replicas: dict[str, int], command: Command) -> Any:
    """A job whose members all run the command, in the folder of the examples. The workers of an MPIJob only wait."""
    facts = KINDS[kind]

    def spec(role: str, count: int) -> Any:
        container = client.V1Container(
            name=facts.container,
            image="none",
            command=None if (kind, role) == ("MPIJob", "Worker") else list(command),
            working_dir=str(EXAMPLES),
            env=[client.V1EnvVar(name="WHO", value=name)],
        )
        template = client.V1PodTemplateSpec(spec=client.V1PodSpec(containers=[container]))
        return training.KubeflowOrgV1ReplicaSpec(replicas=count, restart_policy="Never", template=template)

    return getattr(training, f"KubeflowOrgV1{kind}")(
        api_version="kubeflow.org/v1",
        kind=kind,
        metadata=client.V1ObjectMeta(name=name),
        spec=getattr(training, f"KubeflowOrgV1{kind}Spec")(
            run_policy=training.KubeflowOrgV1RunPolicy(clean_pod_policy="Running"),
            **{facts.replicas: {role: spec(role, count) for role, count in replicas.items()}},
        ),
    )


def pods_of(name: str, replicas: dict[str, int]) -> set[str]:
    """What they are called."""
    named = {f"{name}-{role.lower()}-{index}" for role, count in replicas.items() for index in range(count)}
    return {pod.replace("launcher-0", "launcher") for pod in named}
