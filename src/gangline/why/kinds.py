"""Which kinds `why` understands: where they live, how their pods are found, and what their status calls things."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gangline.api.kubeflow.kinds import KINDS
from gangline.api.kubeflow.training import JOB_NAME, REPLICA_TYPE, JobKind
from gangline.api.meta import JSON
from gangline.api.scheme import Resource
from gangline.base.errors import InputError


def plain(group: str, version: str, kind: str, plural: str, *, namespaced: bool = True) -> Resource[JSON]:
    """A resource that is read as JSON: kinds that may not be installed, fields that we do not decode."""
    return Resource(group, version, kind, plural, dict[str, Any], namespaced=namespaced)


BATCH = plain("batch", "v1", "Job", "jobs")
JOBSET = plain("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
TRAINJOB = plain("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs")
VOLCANO = plain("batch.volcano.sh", "v1alpha1", "Job", "jobs")
PODS = plain("", "v1", "Pod", "pods")
EVENTS = plain("events.k8s.io", "v1", "Event", "events")
CLAIMS = plain("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
METRICS = plain("metrics.k8s.io", "v1beta1", "PodMetrics", "pods")
NATIVE = "scheduling.k8s.io"
"""Kubernetes' own gang scheduling: 1.37, and 1.36."""
POD_GROUPS = (
    plain("scheduling.gangline.dev", "v1alpha1", "PodGroup", "podgroups"),
    plain("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"),
    plain("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups"),
    plain(NATIVE, "v1beta1", "PodGroup", "podgroups"),
    plain(NATIVE, "v1alpha2", "PodGroup", "podgroups"),
)
QUEUES = plain("scheduling.gangline.dev", "v1alpha1", "Queue", "queues", namespaced=False)


class Owner(msgspec.Struct, frozen=True):
    """A kind of job."""

    resource: Resource[JSON]
    # The labels by which its pods are found, any of them.
    labels: tuple[str, ...]
    # What may stand between it and its pods, outermost first.
    between: tuple[Resource[JSON], ...] = ()
    # The label that has a pod's replica type; and the spec of its pods, with {type}.
    type_label: str = ""
    template: str = "spec.template.spec"
    facts: JobKind | None = None
    # Other names that people type.
    aliases: tuple[str, ...] = ()

    @property
    def called(self) -> tuple[str, ...]:
        known = self.resource
        single = known.kind.lower()
        full = (f"{known.plural}.{known.group}", f"{single}.{known.group}")
        return (*full, *self.aliases) if self.aliases else (single, known.plural, *full)


def _training(facts: JobKind) -> Owner:
    known = facts.resource
    return Owner(
        plain(known.group, known.version, known.kind, known.plural),
        (JOB_NAME,),
        type_label=REPLICA_TYPE,
        template=f"spec.{facts.replicas}.{{type}}.template.spec",
        facts=facts,
    )


OWNERS: tuple[Owner, ...] = (
    *map(_training, KINDS),
    Owner(
        TRAINJOB,
        ("jobset.sigs.k8s.io/jobset-name",),
        (JOBSET, BATCH),
        "jobset.sigs.k8s.io/replicatedjob-name",
        "spec.podTemplateOverrides[{type}].spec",
    ),
    Owner(
        JOBSET,
        ("jobset.sigs.k8s.io/jobset-name",),
        (BATCH,),
        "jobset.sigs.k8s.io/replicatedjob-name",
        "spec.replicatedJobs[{type}].template.spec.template.spec",
    ),
    Owner(
        VOLCANO,
        ("volcano.sh/job-name",),
        (),
        "volcano.sh/task-spec",
        "spec.tasks[{type}].template.spec",
        aliases=("vcjob", "vj"),
    ),
    Owner(BATCH, ("batch.kubernetes.io/job-name", "job-name")),
)
"""In the order in which a name without a kind is looked for."""


def owner(kind: str) -> Owner:
    """What a person means by `tfjob`, `jobs.batch`, `vcjob`. Raises `InputError`."""
    wanted = kind.lower()
    for one in OWNERS:
        if wanted in one.called:
            return one
    known = ", ".join(one.called[0] if one.aliases else one.resource.kind.lower() for one in OWNERS)
    raise InputError(f"{kind}: is no kind of job that can be explained; write one of {known}")


def value(body: Mapping[str, Any], *path: str) -> Any:
    """What is at a path of JSON; None where there is nothing."""
    found: Any = body
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
