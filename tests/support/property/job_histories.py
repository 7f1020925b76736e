"""Jobs of all six kinds, for properties that hold of every one of them."""

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hypothesis import strategies as st

from gangline.api.meta import JSON
from gangline.frameworks.jax import Jax
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.paddle import Paddle
from gangline.frameworks.pytorch import PyTorch
from gangline.frameworks.tensorflow import TensorFlow
from gangline.frameworks.xgboost import XGBoost
from gangline.jobs.framework import Framework
from gangline.jobs.site import ServiceMode, Site
from gangline.testing.world.invariants import Invariants
from gangline.testing.world.world import World

FRAMEWORKS: dict[str, Framework[Any]] = {
    "TFJob": TensorFlow(),
    "PyTorchJob": PyTorch(),
    "XGBoostJob": XGBoost(),
    "MPIJob": Mpi(),
    "PaddleJob": Paddle(),
    "JAXJob": Jax(),
}
REPLICA_COUNTS: dict[str, tuple[dict[str, int], ...]] = {
    "TFJob": (
        {"Worker": 2},
        {"PS": 1, "Worker": 2},
        {"Chief": 1, "Worker": 1},
        {"Worker": 1, "Evaluator": 1},
    ),
    "PyTorchJob": ({"Master": 1, "Worker": 2}, {"Worker": 2}, {"Master": 1}),
    "XGBoostJob": ({"Master": 1, "Worker": 1}, {"Master": 1, "Worker": 2}),
    "MPIJob": ({"Launcher": 1, "Worker": 2}, {"Launcher": 1}),
    "PaddleJob": ({"Worker": 2}, {"Master": 1, "Worker": 1}),
    "JAXJob": ({"Worker": 2}, {"Worker": 3}),
}
SITES = {
    "cluster": Site(),
    "one service per job": Site(services=ServiceMode.PER_JOB),
    "one machine": Site(shared_host=True),
}


def example_count(usual: int) -> int:
    """How many to try: the usual number, times GANGLINE_JOB_HISTORIES where more time is at hand."""
    return usual * int(os.environ.get("GANGLINE_JOB_HISTORIES", "1"))


class GeneratedJob(NamedTuple):
    """A job, and the site it runs on."""

    kind: str
    replicas: dict[str, int]
    restart_policies: dict[str, str]
    run_policy: JSON
    spec: JSON = {}
    site: str = "cluster"
    # Pods that are deleted never go at once.
    slow_deletion: bool = False
    # The nodes on which pods start; none: their names do not matter.
    nodes: tuple[str, ...] = ()

    def world(self) -> World:
        framework = FRAMEWORKS[self.kind]
        replicas = {
            kind: {"replicas": count, "restartPolicy": self.restart_policies[kind]}
            for kind, count in self.replicas.items()
        }
        body = job_manifest(framework, replicas, self.run_policy, self.spec)
        world = World(framework, body, SITES[self.site], Invariants().judge, nodes=self.nodes)
        world.server.hold_deleted_pods = self.slow_deletion
        return world


@st.composite
def run_policies(draw: Callable[[Any], Any]) -> JSON:
    """A runPolicy as a user writes it."""
    policy = {
        "backoffLimit": draw(st.sampled_from([None, 0, 1, 2, 3])),
        "cleanPodPolicy": draw(st.sampled_from(["", "None", "Running", "All"])),
        "activeDeadlineSeconds": draw(st.sampled_from([None, None, None, 100])),
        "ttlSecondsAfterFinished": draw(st.sampled_from([None, None, 0, 50])),
        "suspend": draw(st.sampled_from([None, None, None, None, None, True])),
        "restartScope": draw(st.sampled_from(["", "Replica", "Job"])),
    }
    return {name: value for name, value in policy.items() if value is not None and value != ""}


@st.composite
def generated_jobs(draw: Callable[[Any], Any]) -> GeneratedJob:
    kind = draw(st.sampled_from(list(FRAMEWORKS)))
    replicas = draw(st.sampled_from(REPLICA_COUNTS[kind]))
    restarts = st.sampled_from(["Never", "ExitCode", "OnFailure", "Always"])
    restart = {name: draw(restarts) for name in replicas}
    policy = draw(run_policies())
    spec: JSON = {}
    if kind == "TFJob":
        spec = draw(st.sampled_from([{}, {}, {"successPolicy": "AllWorkers"}, {"enableDynamicWorker": True}]))
    if kind == "PyTorchJob" and "Worker" in replicas:
        metrics = [{"type": "Resource"}]
        spec = draw(
            st.sampled_from([{}, {}, {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 3, "metrics": metrics}}])
        )
    site = "cluster" if kind == "MPIJob" else draw(st.sampled_from(list(SITES)))
    return GeneratedJob(kind, replicas, restart, policy, spec, site, draw(st.booleans()))


def job_manifest(
    framework: Framework[Any], replicas: Mapping[str, JSON], policy: JSON, spec: JSON | None = None
) -> JSON:
    """A job as a user writes it."""
    container = {"name": framework.facts.container, "image": "train:1"}
    template = {"spec": {"containers": [container]}}
    entries = {kind: {"template": template, **entry} for kind, entry in replicas.items()}
    return {
        "apiVersion": framework.facts.model.API_VERSION,
        "kind": framework.facts.kind,
        "metadata": {"name": "job", "namespace": "ml"},
        "spec": {framework.facts.replicas: entries, "runPolicy": policy, **(spec or {})},
    }
