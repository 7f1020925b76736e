"""Random MPIJobs of v2beta1, and random things that happen to them, to play against mpi-operator and gangline alike."""

from collections.abc import Iterator
from random import Random
from typing import Any

from support.cases.kubeflow import Scenario
from support.cases.kubeflow_play import NODE_NAME

MAX_STEPS = 6


def random_scenarios(seed: int, count: int) -> list[Scenario]:
    """The same seed gives the same scenarios."""
    chance = Random(seed)
    return [_scenario(chance, f"random-{seed}-{number}") for number in range(count)]


def _scenario(chance: Random, name: str) -> Scenario:
    workers = chance.randint(1, 3)
    as_worker = chance.random() < 0.3
    suspended = chance.random() < 0.2
    policy: dict[str, Any] = {"backoffLimit": 0}
    if chance.random() < 0.6:
        policy["cleanPodPolicy"] = chance.choice(["None", "Running", "All"])
    if suspended:
        policy["suspend"] = True
    spec: dict[str, Any] = {
        "runPolicy": policy,
        "mpiReplicaSpecs": {
            "Launcher": {"restartPolicy": "Never", "template": _template(chance, ["mpirun", "train"])},
            "Worker": {"replicas": workers, "template": _template(chance, None)},
        },
    }
    optional: dict[str, Any] = {
        "mpiImplementation": chance.choice(["OpenMPI", "Intel", "MPICH"]),
        "slotsPerWorker": chance.randint(1, 8),
        "launcherCreationPolicy": chance.choice(["AtStartup", "WaitForWorkersReady"]),
        "sshAuthMountPath": chance.choice(["/root/.ssh", "/home/mpiuser/.ssh"]),
    }
    spec |= {field: value for field, value in optional.items() if chance.random() < 0.5}
    if as_worker:
        spec["runLauncherAsWorker"] = True
    job = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "job"}, "spec": spec}
    steps = list(_steps(chance, workers, suspended=suspended, scalable=not as_worker))
    return Scenario(name, job, steps)


def _template(chance: Random, command: list[str] | None) -> Any:
    container: dict[str, Any] = {"name": chance.choice(["mpi", "main"]), "image": "train:1"}
    if command is not None:
        container["command"] = command
    elif chance.random() < 0.3:
        container["args"] = ["-De"]
    if chance.random() < 0.4:
        container["env"] = [{"name": "A", "value": str(chance.randint(0, 9))}]
    if chance.random() < 0.3:
        container["resources"] = {"limits": {"cpu": "1", "nvidia.com/gpu": "1"}}
    pod: dict[str, Any] = {"nodeName": NODE_NAME, "automountServiceAccountToken": False, "containers": [container]}
    if chance.random() < 0.2:
        pod["hostNetwork"] = True
    if chance.random() < 0.2:
        pod["dnsConfig"] = {"searches": ["example.com"]}
    if chance.random() < 0.3:
        pod["containers"].append({"name": "sidecar", "image": "side:1"})
    metadata = {"labels": {"team": "a"}, "annotations": {"note": "b"}} if chance.random() < 0.4 else {}
    return {"spec": pod, **({"metadata": metadata} if metadata else {})}


def _steps(chance: Random, workers: int, *, suspended: bool, scalable: bool) -> Iterator[Any]:
    for _ in range(chance.randint(2, MAX_STEPS)):
        if suspended:
            suspended = False
            yield {"patch": {"spec": {"runPolicy": {"suspend": False}}}}
            continue
        worker = f"worker-{chance.randrange(workers)}"
        what = chance.choice(["all", "all", "worker", "worker", "launcher", "scale", "suspend"])
        if what == "all":
            yield {"pods": {"all": "Running"}}
        elif what == "worker":
            yield {"pods": {worker: chance.choice(["Running", "Succeeded", "delete", {"exit": 1}, "evicted"])}}
        elif what == "launcher":
            yield {"pods": {"launcher": chance.choice(["Running", "Succeeded", {"exit": 1}])}}
        elif what == "scale" and scalable:
            workers = chance.randint(1, 3)
            yield {"patch": {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": workers}}}}}
        elif what == "suspend":
            suspended = True
            yield {"patch": {"spec": {"runPolicy": {"suspend": True}}}}
