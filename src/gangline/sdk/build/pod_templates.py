"""Reads and edits the pod templates of a job of any kind. Pure."""

import copy
from collections.abc import Callable, Iterator

from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON


def pod_specs(body: JSON, kind: JobKind) -> Iterator[JSON]:
    """The pod spec of every replica type that has one. Malformed parts are skipped: the server reports them."""
    replicas = (body.get("spec") or {}).get(kind.replicas)
    for replica in replicas.values() if isinstance(replicas, dict) else ():
        template = replica.get("template") if isinstance(replica, dict) else None
        spec = template.get("spec") if isinstance(template, dict) else None
        if isinstance(spec, dict):
            yield spec


def training_containers(body: JSON, kind: JobKind) -> Iterator[JSON]:
    """The training container of every replica type."""
    for spec in pod_specs(body, kind):
        container = training_container(spec, kind)
        if container is not None:
            yield container


def training_container(spec: JSON, kind: JobKind) -> JSON | None:
    """The training container of a pod spec, found by its name; None if there is none."""
    containers = spec.get("containers")
    if not isinstance(containers, list):
        return None
    return next((item for item in containers if isinstance(item, dict) and item.get("name") == kind.container), None)


def with_edited_pods(body: JSON, kind: JobKind, edit: Callable[[JSON], None]) -> JSON:
    """A copy of the job after `edit` was called with every pod spec."""
    edited: JSON = copy.deepcopy(body)
    for spec in pod_specs(edited, kind):
        edit(spec)
    return edited


def escaped_word(word: str) -> str:
    """A word escaped for a container command: Kubernetes expands `$(NAME)`."""
    return word.replace("$", "$$")
