"""Which nodes jobs with a recovery policy avoid, because jobs of different owners failed there. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from gangline.api.kubeflow.training import ReplicaSpec, TrainingJob
from gangline.jobs.plan.recovery.affinity import NodeAvoidance
from gangline.jobs.plan.recovery.classes import CAUSE_CLASSES, CauseClass

MIN_NODES = 4
"""In a smaller cluster no node is avoided by all jobs: too little would be left."""


class NodeOwner(msgspec.Struct, frozen=True):
    """Whose job it was: jobs of one namespace and service account are of one owner, and may share a fault."""

    namespace: str
    service_account: str


class NodeIncident(msgspec.Struct, frozen=True):
    """One failure of a job on a node, for which the job is not to blame."""

    node: str
    owner: NodeOwner
    cause: str
    time: datetime


class BadNodeLimits(msgspec.Struct, frozen=True):
    """When a node is avoided by all jobs, and for how long."""

    # A failure counts for this long.
    forgive_after: timedelta = timedelta(hours=1)
    # The largest share of all nodes that is avoided; 0: none is.
    share: float = 0.1
    # The number of owners whose jobs must have failed: new pods should not, and must not start there.
    soft_owners: int = 2
    hard_owners: int = 3


class BadNode(msgspec.Struct, frozen=True):
    """A node that is avoided."""

    name: str
    owners: int
    causes: tuple[str, ...]
    # Whether new pods must not start there; else they should not.
    is_excluded: bool

    @property
    def reason(self) -> str:
        return f"jobs of {self.owners} owners failed there ({', '.join(self.causes)})"


def job_incidents(job: TrainingJob, replicas: Mapping[str, ReplicaSpec]) -> frozenset[NodeIncident]:
    """The failures that the status of a job tells of: those whose nodes it leaves out, and the last one."""
    record = job.status.recovery
    if record is None:
        return frozenset()
    accounts = [(spec.template.get("spec") or {}).get("serviceAccountName") for spec in replicas.values()]
    owner = NodeOwner(job.metadata.namespace, str(next(filter(None, accounts), "default")))
    incidents = {
        NodeIncident(node.name, owner, node.cause, node.since)
        for node in record.excluded_nodes
        if node.since is not None
    }
    is_outside = CAUSE_CLASSES.get(record.cause) is CauseClass.INFRASTRUCTURE
    if record.node and record.time is not None and is_outside:
        incidents.add(NodeIncident(record.node, owner, record.cause, record.time))
    return frozenset(incidents)


def bad_nodes(
    incidents: Iterable[NodeIncident], nodes: Collection[str], now: datetime, limits: BadNodeLimits
) -> tuple[BadNode, ...]:
    """The nodes to avoid now, the worst first. `nodes` are those that are known; those of the incidents count, too."""
    recent: dict[str, list[NodeIncident]] = defaultdict(list)
    for incident in incidents:
        if now - incident.time < limits.forgive_after:
            recent[incident.node].append(incident)
    found = [_bad_node(name, listed, limits) for name, listed in recent.items()]
    bad = sorted((node for node in found if node is not None), key=lambda node: (-node.owners, node.name))
    return tuple(bad[: most_avoided(len({*nodes, *recent}), limits.share)])


def most_avoided(nodes: int, share: float) -> int:
    """How many of so many nodes may be avoided."""
    if share <= 0 or nodes < MIN_NODES:
        return 0
    return max(int(nodes * share), 1)


def _bad_node(name: str, incidents: Collection[NodeIncident], limits: BadNodeLimits) -> BadNode | None:
    owners = len({incident.owner for incident in incidents})
    if owners < limits.soft_owners:
        return None
    causes = tuple(sorted({incident.cause for incident in incidents}))
    return BadNode(name, owners, causes, owners >= limits.hard_owners)


def node_avoidance(nodes: Iterable[BadNode]) -> NodeAvoidance:
    """How new pods avoid these nodes."""
    listed = tuple(nodes)
    return NodeAvoidance(
        excluded=tuple(node.name for node in listed if node.is_excluded),
        disliked=tuple(node.name for node in listed if not node.is_excluded),
        reasons={node.name: node.reason for node in listed},
    )
