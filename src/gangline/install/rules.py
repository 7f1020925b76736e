"""What each component may do, as the rules of its roles. The tests run every kind of job with these rights and no others."""

from collections.abc import Sequence

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import GROUP as JOBS
from gangline.api.scheduling import GROUP as GANGS
from gangline.install.nodes import Node, Note
from gangline.schema.crds.gang_crds import GANG_RESOURCES

PLURALS = tuple(kind.plural for kind in TRAINING_KINDS)
READ = ("get", "list", "watch")
RBAC = "rbac.authorization.k8s.io"
CORE = ""


def _rule(groups: str | Sequence[str], resources: Sequence[str], verbs: Sequence[str]) -> dict[str, Node]:
    names = [groups] if isinstance(groups, str) else list(groups)
    return {"apiGroups": names, "resources": list(resources), "verbs": list(verbs)}


OPERATOR_RULES: tuple[Node, ...] = (
    Note(
        "Jobs: read, end when their time to live is over. What is written is the status alone.",
        _rule(JOBS, PLURALS, (*READ, "delete")),
    ),
    _rule(JOBS, [f"{plural}/status" for plural in PLURALS], ["patch"]),
    Note(
        "To own children that block the deletion of their job, where the server checks that right.",
        _rule(JOBS, [f"{plural}/finalizers" for plural in PLURALS], ["update"]),
    ),
    Note("Children of every job.", _rule(CORE, ["pods", "services"], (*READ, "create", "patch", "delete"))),
    Note("The last words of a replica that failed, for the job's status.", _rule(CORE, ["pods/log"], ["get"])),
    Note(
        "MPI: host file, and the launcher's account with its role.",
        _rule(CORE, ["configmaps", "serviceaccounts"], (*READ, "create", "patch")),
    ),
    _rule(RBAC, ["roles", "rolebindings"], (*READ, "create", "patch")),
    Note(
        "Not used: nobody may grant what they do not have, and launchers start processes in their workers.",
        _rule(CORE, ["pods/exec"], ["create"]),
    ),
    Note(
        "Elastic jobs.",
        _rule("autoscaling", ["horizontalpodautoscalers"], (*READ, "create", "patch", "delete")),
    ),
    Note(
        "Gang scheduling: by gangline, Volcano, scheduler-plugins, or Kubernetes itself.",
        _rule(
            [GANGS, "scheduling.volcano.sh", "scheduling.x-k8s.io", "scheduling.k8s.io"],
            ["podgroups"],
            (*READ, "create", "patch", "delete"),
        ),
    ),
    _rule("scheduling.k8s.io", ["workloads"], (*READ, "create", "patch", "delete")),
    _rule("events.k8s.io", ["events"], ["create", "patch"]),
    Note(
        "The election; list, to see another operator's.",
        _rule("coordination.k8s.io", ["leases"], ["get", "list", "create", "patch"]),
    ),
    Note("To see another operator at start.", _rule("apps", ["deployments"], ["list"])),
)
"""In the cluster, or in each namespace that is served."""

OPERATOR_HOME_RULES: tuple[Node, ...] = (
    Note(
        "The election; list, to see another operator's.",
        _rule("coordination.k8s.io", ["leases"], ["get", "list", "create", "patch"]),
    ),
)
"""In the namespace in which the operator runs, if it serves some namespaces only."""

INSTALL_CRDS_RULES: tuple[Node, ...] = (
    Note(
        "A name cannot be asked for at creation.",
        _rule("apiextensions.k8s.io", ["customresourcedefinitions"], ["create"]),
    ),
    {
        "apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"],
        "resourceNames": [*(f"{plural}.{JOBS}" for plural in PLURALS), *(one.name for one in GANG_RESOURCES)],
        "verbs": ["patch"],
    },
)

SCHEDULER_RULES: tuple[Node, ...] = (
    Note(
        "What decides where a pod may run.",
        _rule(CORE, ["pods", "nodes", "namespaces", "persistentvolumes", "persistentvolumeclaims"], READ),
    ),
    _rule("storage.k8s.io", ["storageclasses", "csinodes"], READ),
    _rule("scheduling.k8s.io", ["priorityclasses"], READ),
    Note("Who may not be asked to leave.", _rule("policy", ["poddisruptionbudgets"], READ)),
    Note(
        "Placing, and making room. Nothing is ever deleted but through the eviction API.",
        _rule(CORE, ["pods/binding", "pods/eviction"], ["create"]),
    ),
    Note(
        "What autoscalers look at: PodScheduled=False on members for which there is no room.",
        _rule(CORE, ["pods/status"], ["patch"]),
    ),
    Note(
        "To take our gate off a pod and say where it goes; only for jobs that are pinned, not needed with --commit=bind.",
        _rule(CORE, ["pods"], ["patch"]),
    ),
    _rule(GANGS, ["podgroups", "queues"], READ),
    _rule(GANGS, ["podgroups/status", "queues/status"], ["patch"]),
    _rule("events.k8s.io", ["events"], ["create", "patch"]),
)

SCHEDULER_HOME_RULES: tuple[Node, ...] = (
    Note("The election.", _rule("coordination.k8s.io", ["leases"], ["get", "create", "patch"])),
)
"""In the namespace in which the scheduler runs."""
