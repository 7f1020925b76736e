"""The pod templates of a job as people write it: looked at and changed, whatever kind it is. Pure."""

import copy
from collections.abc import Callable, Iterator

from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON


def pod_specs(body: JSON, facts: JobKind) -> Iterator[JSON]:
    """The pod spec of every replica type that has one. What is not as it should be is left to whoever checks it."""
    replicas = (body.get("spec") or {}).get(facts.replicas)
    for replica in replicas.values() if isinstance(replicas, dict) else ():
        template = replica.get("template") if isinstance(replica, dict) else None
        spec = template.get("spec") if isinstance(template, dict) else None
        if isinstance(spec, dict):
            yield spec


def training_containers(body: JSON, facts: JobKind) -> Iterator[JSON]:
    """The container that trains, of every replica type."""
    for spec in pod_specs(body, facts):
        found = training_container(spec, facts)
        if found is not None:
            yield found


def training_container(spec: JSON, facts: JobKind) -> JSON | None:
    """The container that trains, by its name; None where the pod has none of that name."""
    containers = spec.get("containers")
    found = containers if isinstance(containers, list) else []
    return next((each for each in found if isinstance(each, dict) and each.get("name") == facts.container), None)


def with_edited_pods(body: JSON, facts: JobKind, edit: Callable[[JSON], None]) -> JSON:
    """A copy of the job in which `edit` has changed every pod spec."""
    changed: JSON = copy.deepcopy(body)
    for spec in pod_specs(changed, facts):
        edit(spec)
    return changed


def escaped_word(word: str) -> str:
    """A word that reaches a program as it is: Kubernetes takes `$(NAME)` for a variable."""
    return word.replace("$", "$$")
