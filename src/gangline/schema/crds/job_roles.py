"""The cluster roles of job kinds: who may edit or view pods in a namespace may do so with jobs. As in an installation."""

from collections.abc import Iterable, Sequence

from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.api.scheduling import GROUP

READ_VERBS = ("get", "list", "watch")
EDIT_VERBS = (*READ_VERBS, "create", "update", "patch", "delete", "deletecollection")


def job_roles(kinds: Sequence[JobKind]) -> tuple[JSON, JSON]:
    """The roles `gangline-edit` and `gangline-view`, which are aggregated to `admin`, `edit` and `view`."""
    edit = [*_job_rules(kinds, EDIT_VERBS, ("get", "update", "patch")), _rule(GROUP, ["podgroups"], EDIT_VERBS)]
    gangs = ["podgroups", "podgroups/status", "queues", "queues/status"]
    view = [*_job_rules(kinds, READ_VERBS, ("get",)), _rule(GROUP, gangs, READ_VERBS)]
    return (
        _cluster_role("gangline-edit", edit, ("admin", "edit"), ("kubeflow-training-admin", "kubeflow-edit")),
        _cluster_role("gangline-view", view, ("view",), ("kubeflow-view",)),
    )


def _job_rules(kinds: Sequence[JobKind], verbs: Sequence[str], scale_verbs: Sequence[str]) -> Iterable[JSON]:
    for group in dict.fromkeys(kind.resource.group for kind in kinds):
        # Two APIs of one kind are one resource.
        own = [*{kind.plural: kind for kind in kinds if kind.resource.group == group}.values()]
        yield _rule(group, [kind.plural for kind in own], verbs)
        yield _rule(group, [f"{kind.plural}/status" for kind in own], ("get",))
        scalable = [f"{kind.plural}/scale" for kind in own if kind.scalable]
        if scalable:
            yield _rule(group, scalable, scale_verbs)


def _rule(group: str, resources: list[str], verbs: Sequence[str]) -> JSON:
    return {"apiGroups": [group], "resources": resources, "verbs": list(verbs)}


def _cluster_role(name: str, rules: list[JSON], to: Sequence[str], to_kubeflow: Sequence[str]) -> JSON:
    labels = {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in to}
    labels |= {f"rbac.authorization.kubeflow.org/aggregate-to-{role}": "true" for role in to_kubeflow}
    metadata = {"name": name, "labels": labels}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": metadata,
        "rules": rules,
    }
