"""The permissions of each component, by feature, with the reason for each: the one source of all roles that we install.

`OPERATOR_RULES` and `SCHEDULER_RULES` apply in the namespaces that are served: in a Role in each of them, or in a
ClusterRole if all are served. Leases are for a Role in the component's own namespace. `*_CLUSTER_RULES` are for resources
without a namespace, and need a ClusterRole. A test runs every feature and fails if a right is missing, or is never used.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import GROUP, JobKind
from gangline.api.meta import JSON
from gangline.api.scheduling import GROUP as GANG_GROUP
from gangline.operator.settings import KUBEFLOW_LEASE, MPI_OPERATOR_LEASE

RBAC_GROUP = "rbac.authorization.k8s.io"
READ = ("get", "list", "watch")
OWN = (*READ, "create", "patch", "delete")


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of a role, and the reason for it."""

    why: str
    groups: tuple[str, ...] = ("",)
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    # Only objects with these names; empty: all.
    names: tuple[str, ...] = ()

    def to_json(self) -> JSON:
        """The rule as in a Role."""
        names = {"resourceNames": list(self.names)} if self.names else {}
        return {
            "apiGroups": list(self.groups),
            "resources": list(self.resources),
            **names,
            "verbs": list(self.verbs),
        }


class Feature(StrEnum):
    """What an operator may be used for. Each feature needs the rules of `CORE`, too."""

    CORE = "core"
    """Every kind of job but MPIJob."""
    ELASTIC = "elastic"
    """Autoscalers of elastic PyTorchJobs. Without it PyTorchJob cannot be served."""
    MPI = "mpi"
    """MPIJob v1, whose launchers run commands in their workers by a role that the operator creates."""
    MPI_ACCOUNT = "mpi-account"
    """MPIJob v1 with `--mpi-launcher-service-account`: an account with that right exists, and no role is created."""
    MPI_V2 = "mpi-v2beta1"
    """MPIJob v2beta1: launchers are Jobs, and start ranks by SSH with keys in a Secret that the operator creates."""
    HANG_WATCH = "hang-watch"
    """Jobs that hang are found, sooner where the cluster says how much CPU its pods use."""
    HANG_STACKS = "hang-stacks"
    """`--hang-stacks`: where the processes of such a job stand is read in its pods."""
    DIAGNOSIS = "diagnosis"
    """`runPolicy.recovery` looks at the events about a job that failed."""
    GANGLINE = "gangline"
    """Gangs of `gangline scheduler`."""
    VOLCANO = "volcano"
    SCHEDULER_PLUGINS = "scheduler-plugins"
    KUBERNETES = "kubernetes"
    """Gangs of kube-scheduler itself."""


def job_rules(kinds: Sequence[JobKind]) -> tuple[Rule, ...]:
    """What an operator does with the jobs themselves."""
    names = [kind.plural for kind in kinds]
    return (
        Rule(
            why="Jobs: read, and delete when their time to live is over. Nothing but the status is written.",
            groups=(GROUP,),
            resources=tuple(names),
            verbs=(*READ, "delete"),
        ),
        Rule(
            why="Their status.",
            groups=(GROUP,),
            resources=tuple(f"{name}/status" for name in names),
            verbs=("patch",),
        ),
        Rule(
            why="To own children that block the deletion of their job, where the server checks that right.",
            groups=(GROUP,),
            resources=tuple(f"{name}/finalizers" for name in names),
            verbs=("update",),
        ),
    )


def _group_rules(group: str, resources: tuple[str, ...], scheduler: str) -> tuple[Rule, ...]:
    return (Rule(why=f"Gangs for {scheduler}.", groups=(group,), resources=resources, verbs=OWN),)


OPERATOR_RULES: dict[Feature, tuple[Rule, ...]] = {
    Feature.CORE: (
        *job_rules(TRAINING_KINDS),
        Rule(why="Children of every job.", resources=("pods", "services"), verbs=OWN),
        Rule(
            why="The last lines of a replica that failed, for the job's status.",
            resources=("pods/log",),
            verbs=("get",),
        ),
        Rule(
            why="Events about jobs.",
            groups=("events.k8s.io",),
            resources=("events",),
            verbs=("create", "patch"),
        ),
        Rule(
            why="To see another operator at the start: its Deployment.",
            groups=("apps",),
            resources=("deployments",),
            verbs=("list",),
        ),
    ),
    Feature.ELASTIC: (
        Rule(
            why="Autoscalers of elastic jobs.",
            groups=("autoscaling",),
            resources=("horizontalpodautoscalers",),
            verbs=OWN,
        ),
    ),
    Feature.MPI: (
        Rule(
            why="The host file, and the launcher's account.",
            resources=("configmaps", "serviceaccounts"),
            verbs=(*READ, "create", "patch"),
        ),
        Rule(
            why="The launcher's role: it may read pods, and run commands in the workers of its own job.",
            groups=(RBAC_GROUP,),
            resources=("roles", "rolebindings"),
            verbs=(*READ, "create", "patch"),
        ),
        Rule(
            why="Not used by the operator: nobody may grant what they do not have.",
            resources=("pods/exec",),
            verbs=("create", "get"),
        ),
    ),
    Feature.MPI_ACCOUNT: (Rule(why="The host file.", resources=("configmaps",), verbs=(*READ, "create", "patch")),),
    Feature.MPI_V2: (
        Rule(why="The host file.", resources=("configmaps",), verbs=(*READ, "create", "patch")),
        Rule(why="The launcher.", groups=("batch",), resources=("jobs",), verbs=OWN),
        Rule(
            why="To resume a launcher on other nodes.", groups=("batch",), resources=("jobs/status",), verbs=("patch",)
        ),
        Rule(why="The SSH keys of a job. No Secret is read.", resources=("secrets",), verbs=("create",)),
        Rule(
            why="To see mpi-operator at the start: its Lease, by name.",
            groups=("coordination.k8s.io",),
            resources=("leases",),
            names=(MPI_OPERATOR_LEASE,),
            verbs=("list",),
        ),
    ),
    Feature.HANG_WATCH: (
        Rule(
            why="The CPU use of a job that gives no sign of life.",
            groups=("metrics.k8s.io",),
            resources=("pods",),
            verbs=("list",),
        ),
    ),
    Feature.HANG_STACKS: (
        Rule(
            why="To read where the processes of a silent job stand, by a command in its pods. A WebSocket starts as a GET.",
            resources=("pods/exec",),
            verbs=("create", "get"),
        ),
    ),
    Feature.DIAGNOSIS: (
        Rule(
            why="Recovery: the events about a job that failed tell more about the cause.",
            groups=("events.k8s.io",),
            resources=("events",),
            verbs=("list",),
        ),
    ),
    Feature.GANGLINE: _group_rules(GANG_GROUP, ("podgroups",), "the gang scheduler of gangline"),
    Feature.VOLCANO: _group_rules("scheduling.volcano.sh", ("podgroups",), "Volcano"),
    Feature.SCHEDULER_PLUGINS: _group_rules("scheduling.x-k8s.io", ("podgroups",), "scheduler-plugins"),
    Feature.KUBERNETES: _group_rules("scheduling.k8s.io", ("podgroups", "workloads"), "kube-scheduler"),
}
"""What the operator may do in each namespace that it serves."""

DEFAULT_FEATURES = (Feature.CORE, Feature.ELASTIC, Feature.GANGLINE)
"""What is installed unless more is asked for."""


def lease_rules(name: str) -> tuple[Rule, ...]:
    """The election, for a Role in the component's own namespace."""
    groups, resources = ("coordination.k8s.io",), ("leases",)
    return (
        Rule(
            why="The election. A name cannot be asked for at creation.",
            groups=groups,
            resources=resources,
            verbs=("create",),
        ),
        Rule(why="Its Lease alone.", groups=groups, resources=resources, names=(name,), verbs=("get", "patch")),
    )


def notification_rules(name: str) -> tuple[Rule, ...]:
    """What notifications need, for a Role in the operator's own namespace. `name` is that of their ConfigMap."""
    return (
        Rule(
            why="Notifications: which were delivered. A name cannot be asked for at creation.",
            resources=("configmaps",),
            verbs=("create",),
        ),
        Rule(why="That ConfigMap alone.", resources=("configmaps",), names=(name,), verbs=("get", "patch")),
    )


def crd_rules(names: Sequence[str]) -> tuple[Rule, ...]:
    """What `--install-crds` needs, for a ClusterRole. `names` are those of the definitions."""
    groups, resources = ("apiextensions.k8s.io",), ("customresourcedefinitions",)
    return (
        Rule(
            why="A name cannot be asked for at creation.",
            groups=groups,
            resources=resources,
            verbs=("create",),
        ),
        Rule(
            why="The definitions of our kinds.",
            groups=groups,
            resources=resources,
            names=tuple(names),
            verbs=("patch",),
        ),
    )


METRICS_AUTH_RULES = (
    Rule(
        why="--metrics-secure: whose token it is.",
        groups=("authentication.k8s.io",),
        resources=("tokenreviews",),
        verbs=("create",),
    ),
    Rule(
        why="--metrics-secure: whether that user may read /metrics.",
        groups=("authorization.k8s.io",),
        resources=("subjectaccessreviews",),
        verbs=("create",),
    ),
)
"""What `--metrics-secure` needs of operator and scheduler, for a ClusterRole."""

PROGRESS_RULES = (
    Rule(
        why="--progress-bind-address: which pod a token belongs to.",
        groups=("authentication.k8s.io",),
        resources=("tokenreviews",),
        verbs=("create",),
    ),
)
"""What the endpoint for progress needs of the operator, for a ClusterRole. It annotates pods, which are its own."""

DIAGNOSIS_CLUSTER_RULES = (
    Rule(
        why="Recovery: whether the nodes of a job that failed are ready, and how much memory they have.",
        resources=("nodes",),
        verbs=("get", "list"),
    ),
)
"""What else the diagnosis of a failure reads, for a ClusterRole."""

METRICS_READER_RULE: JSON = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
"""What a scraper needs of metrics that are secure, for the ClusterRole `gangline-metrics-reader`."""


HISTORY_RULES = (
    Rule(
        why="What is recorded of jobs and of what belongs to them; and what explains why a job waits.",
        resources=("pods", "services", "events", "nodes", "namespaces", "persistentvolumeclaims"),
        verbs=READ,
    ),
    Rule(why="The ends of logs.", resources=("pods/log",), verbs=("get",)),
    Rule(why="Use of CPU and memory.", groups=("metrics.k8s.io",), resources=("pods",), verbs=("list",)),
    Rule(why="Jobs of all kinds.", groups=("kubeflow.org",), resources=("*",), verbs=READ),
    Rule(
        why="Jobs of others that why explains.",
        groups=("batch", "batch.volcano.sh", "jobset.x-k8s.io", "trainer.kubeflow.org"),
        resources=("jobs", "jobsets", "trainjobs"),
        verbs=READ,
    ),
    Rule(
        why="Gangs and their queues.",
        groups=(GANG_GROUP, "scheduling.volcano.sh", "scheduling.x-k8s.io", "scheduling.k8s.io"),
        resources=("podgroups", "queues"),
        verbs=READ,
    ),
    Rule(why="Whether an operator leads.", groups=("coordination.k8s.io",), resources=("leases",), verbs=("get",)),
)
"""What the dashboard reads to record a cluster, for a ClusterRole. Viewers use their own rights."""


SCHEDULER_CLUSTER_RULES = (
    Rule(
        why="What decides where a pod may run. Pods of all namespaces take room on nodes.",
        resources=("pods", "nodes", "namespaces", "persistentvolumes"),
        verbs=("list", "watch"),
    ),
    Rule(
        why="Where volumes can be.",
        groups=("storage.k8s.io",),
        resources=("storageclasses", "csinodes"),
        verbs=("list", "watch"),
    ),
    Rule(
        why="The priority of gangs.",
        groups=("scheduling.k8s.io",),
        resources=("priorityclasses",),
        verbs=("list", "watch"),
    ),
    Rule(why="The queues of gangs.", groups=(GANG_GROUP,), resources=("queues",), verbs=("list", "watch")),
    Rule(why="Their status.", groups=(GANG_GROUP,), resources=("queues/status",), verbs=("patch",)),
)
"""What the scheduler reads of the whole cluster; it writes nothing but the status of queues."""

SCHEDULER_RULES = (
    Rule(why="Whether a pod was bound although the answer was lost.", resources=("pods",), verbs=("get",)),
    Rule(why="Which volumes a pod needs.", resources=("persistentvolumeclaims",), verbs=("list", "watch")),
    Rule(
        why="Which pods may not be evicted.",
        groups=("policy",),
        resources=("poddisruptionbudgets",),
        verbs=("list", "watch"),
    ),
    Rule(
        why="To bind pods, and to make room by the eviction API alone.",
        resources=("pods/binding", "pods/eviction"),
        verbs=("create",),
    ),
    Rule(
        why="What autoscalers look at: PodScheduled=False on members for which there is no room.",
        resources=("pods/status",),
        verbs=("patch",),
    ),
    Rule(
        why="To take our gate off a pod and name its node; not needed with --commit=bind.",
        resources=("pods",),
        verbs=("patch",),
    ),
    Rule(why="Gangs.", groups=(GANG_GROUP,), resources=("podgroups",), verbs=READ),
    Rule(why="Their status.", groups=(GANG_GROUP,), resources=("podgroups/status",), verbs=("patch",)),
    Rule(
        why="Events about gangs.",
        groups=("events.k8s.io",),
        resources=("events",),
        verbs=("create", "patch"),
    ),
)
"""What the scheduler may do in each namespace whose gangs it places."""


def operator_rules(features: Iterable[Feature] = DEFAULT_FEATURES, lease: str = KUBEFLOW_LEASE) -> tuple[Rule, ...]:
    """What the operator may do in each namespace that it serves, with these features. `lease` is the name of its own."""
    wanted = set(features)
    seen_leases = Rule(
        why="To see another operator at the start: its Lease, by name.",
        groups=("coordination.k8s.io",),
        resources=("leases",),
        names=tuple(dict.fromkeys((KUBEFLOW_LEASE, lease))),
        verbs=("list",),
    )
    rules = tuple(rule for feature in Feature if feature in wanted for rule in OPERATOR_RULES[feature])
    return (*rules, seen_leases) if Feature.CORE in wanted else rules


def rules_json(rules: Iterable[Rule]) -> list[JSON]:
    """Rules as in a Role."""
    return [rule.to_json() for rule in rules]
