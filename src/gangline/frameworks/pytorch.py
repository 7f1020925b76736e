"""PyTorch: the variables of torch.distributed and torchrun (`PET_`). The job succeeds when the master has.

Without a master it succeeds when all workers have; an elastic one when one worker has.
"""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from gangline.api.kubeflow.kinds import PYTORCHJOB, ElasticPolicy, PyTorchJob
from gangline.api.kubeflow.training import GROUP, VERSION
from gangline.api.meta import JSON
from gangline.frameworks import condition_messages
from gangline.frameworks.init_container import InitContainers
from gangline.frameworks.replica_counts import (
    MASTER,
    MASTER_ROLE_LABELS,
    WORKER,
    all_succeeded,
    elastic_bounds,
    pod_counts,
    replica_count,
    total_replicas,
)
from gangline.frameworks.team_framework import TeamFramework
from gangline.jobs.defaults import with_defaults
from gangline.jobs.framework import Addresses, Companion, EnvTarget, PodEdits, Problem, Verdict, variables
from gangline.jobs.pods.replicas import Gang, Member

LEADER, FIRST_WORKER = Member(MASTER, 0), Member(WORKER, 0)
AUTOSCALERS = "horizontalpodautoscalers.autoscaling"
_INTEGER = re.compile(r"[+-]?[0-9]+")


class PyTorch(TeamFramework[PyTorchJob]):
    """PyTorchJob. torch waits for the master; with an `init_image` workers do so in an init container, as in v1."""

    facts = PYTORCHJOB
    collective = True

    resources: tuple[str, ...] = (AUTOSCALERS,)

    def __init__(self, init_image: str = "", init_tries: int = 100, init_template: str | None = None) -> None:
        self._init_containers = InitContainers(init_image, init_tries, init_template)

    def default(self, job: PyTorchJob) -> PyTorchJob:
        job = with_defaults(job, PYTORCHJOB)
        spec = job.spec
        elastic = spec.elastic_policy
        if spec.nproc_per_node is None and (elastic is None or elastic.nproc_per_node is None):
            spec = msgspec.structs.replace(spec, nproc_per_node="auto")
        if elastic is not None and (worker := spec.pytorch_replica_specs.get(WORKER)) is not None:
            bounds = elastic_bounds(elastic.min_replicas, elastic.max_replicas, worker.replicas)
            spec = msgspec.structs.replace(spec, elastic_policy=msgspec.structs.replace(elastic, **bounds))
        return msgspec.structs.replace(job, spec=spec)

    def validate(self, job: PyTorchJob) -> Iterable[Problem]:
        replicas, elastic = self.replicas(job), job.spec.elastic_policy
        if MASTER in replicas and replica_count(replicas, MASTER) != 1:
            path = f"spec.pytorchReplicaSpecs.{MASTER}.replicas"
            yield Problem(path, f"is {replica_count(replicas, MASTER)}; write 1, or leave the Master out")
        if elastic is None:
            return
        if WORKER not in replicas:
            yield Problem("spec.pytorchReplicaSpecs", "has no Worker, which elasticPolicy needs; write one")
        if elastic.nproc_per_node is not None and job.spec.nproc_per_node is not None:
            path = "spec.elasticPolicy.nProcPerNode"
            yield Problem(path, "is deprecated and stands beside spec.nprocPerNode; write the latter alone")

    def wiring(self, job: PyTorchJob, member: Member, addresses: Addresses) -> PodEdits:
        led = self._has_master(job)
        init: tuple[JSON, ...] = ()
        if led and member.type == WORKER:
            init = self._init_containers.waiting_for(addresses.of(LEADER).name)
        env = (
            *variables(PYTHONUNBUFFERED="1"),
            *(self._rank_variables(job, member, addresses) if led else ()),
            *(variables(PET_NPROC_PER_NODE=job.spec.nproc_per_node) if job.spec.nproc_per_node else ()),
            *self._torchrun_variables(job, member, addresses),
        )
        is_leader = member == (LEADER if led else FIRST_WORKER)
        return PodEdits(
            env=env, into=EnvTarget.EVERY, labels=MASTER_ROLE_LABELS if is_leader else {}, init_containers=init
        )

    def min_members(self, job: Any) -> int | None:
        """An elastic job can train with its master and the minimum of workers in its policy."""
        assert isinstance(job, PyTorchJob)
        elastic = job.spec.elastic_policy
        if elastic is None or elastic.min_replicas is None:
            return None
        return elastic.min_replicas + replica_count(self.replicas(job), MASTER)

    def companions(self, job: Any, gang: Gang) -> tuple[Companion, ...]:
        """The autoscaler of an elastic job with `metrics`; an empty list means the default metrics of the server."""
        assert isinstance(job, PyTorchJob)
        elastic = job.spec.elastic_policy
        if elastic is None or elastic.metrics is None:
            return ()
        return (Companion(AUTOSCALERS, _autoscaler(job, elastic), ("spec",), only_active=True),)

    def verdict(self, job: PyTorchJob, gang: Gang) -> Verdict:
        led = self._has_master(job)
        leader = MASTER if led else WORKER
        succeeded = all_succeeded(self.replicas(job), gang, leader)
        if job.spec.elastic_policy is not None and not led:
            # Once one worker is done, the others have nothing left to do.
            succeeded = pod_counts(gang, WORKER).succeeded > 0
        return condition_messages.job_verdict(
            job, succeeded=succeeded, running=pod_counts(gang, leader).active > 0, led=led
        )

    def ignored_fields(self, job: Any) -> Iterable[Problem]:
        assert isinstance(job, PyTorchJob)
        elastic = job.spec.elastic_policy
        if elastic is not None and elastic.standalone and (elastic.rdzv_host or elastic.rdzv_port):
            yield Problem("spec.elasticPolicy", "with standalone: true torchrun ignores rdzvHost and rdzvPort")

    def _has_master(self, job: PyTorchJob) -> bool:
        return replica_count(self.replicas(job), MASTER) > 0

    def _rank_variables(self, job: PyTorchJob, member: Member, addresses: Addresses) -> tuple[JSON, ...]:
        leader = addresses.of(LEADER)
        port, rank = str(leader.port), str(member.index if member.type == MASTER else member.index + 1)
        return variables(
            MASTER_PORT=port,
            PET_MASTER_PORT=port,
            MASTER_ADDR=leader.name,
            PET_MASTER_ADDR=leader.name,
            WORLD_SIZE=str(total_replicas(self.replicas(job)) * _process_count(job.spec.nproc_per_node)),
            RANK=rank,
            PET_NODE_RANK=rank,
        )

    def _torchrun_variables(self, job: PyTorchJob, member: Member, addresses: Addresses) -> tuple[JSON, ...]:
        elastic = job.spec.elastic_policy
        if elastic is None:
            return variables(PET_NNODES=str(total_replicas(self.replicas(job))))
        # A master without workers is its own rendezvous.
        rendezvous = addresses.known.get(FIRST_WORKER) or addresses.of(member)
        port = rendezvous.port if elastic.rdzv_port is None else elastic.rdzv_port
        values = {
            "PET_RDZV_ENDPOINT": f"{elastic.rdzv_host or rendezvous.name}:{port}",
            "PET_RDZV_BACKEND": elastic.rdzv_backend or "c10d",
            "PET_NNODES": f"{elastic.min_replicas}:{elastic.max_replicas}",
            "PET_MAX_RESTARTS": _optional_text(elastic.max_restarts),
            "PET_NPROC_PER_NODE": _optional_text(elastic.nproc_per_node),
            "PET_RDZV_ID": elastic.rdzv_id or None,
            "PET_RDZV_CONF": ",".join(f"{entry.key}={entry.value}" for entry in elastic.rdzv_conf) or None,
            "PET_STANDALONE": "" if elastic.standalone else None,
        }
        return variables(**{name: value for name, value in values.items() if value is not None})


def _process_count(nproc_per_node: str | None) -> int:
    """Processes per node, as far as the operator can know: `auto` and `gpu` count as one."""
    return int(nproc_per_node) if nproc_per_node and _INTEGER.fullmatch(nproc_per_node) else 1


def _optional_text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _autoscaler(job: PyTorchJob, elastic: ElasticPolicy) -> JSON:
    name = job.metadata.name
    target = {"apiVersion": f"{GROUP}/{VERSION}", "kind": job.KIND, "name": name}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": target,
            "minReplicas": elastic.min_replicas,
            "maxReplicas": elastic.max_replicas,
            **({"metrics": list(elastic.metrics)} if elastic.metrics else {}),
        },
    }
