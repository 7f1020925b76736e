"""Which kinds `why` understands: where they live, how their pods are found, and what their status calls things."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import JOB_NAME, REPLICA_TYPE, JobKind
from gangline.api.meta import JSON
from gangline.api.scheme import Resource
from gangline.base.errors import InputError


def json_resource(group: str, version: str, kind: str, plural: str, *, namespaced: bool = True) -> Resource[JSON]:
    """A resource that is read as JSON: kinds that may not be installed, fields that we do not decode."""
    return Resource(group, version, kind, plural, dict[str, Any], namespaced=namespaced)


BATCH_JOBS = json_resource("batch", "v1", "Job", "jobs")
JOBSETS = json_resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
TRAINJOBS = json_resource("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs")
VOLCANO_JOBS = json_resource("batch.volcano.sh", "v1alpha1", "Job", "jobs")
PODS = json_resource("", "v1", "Pod", "pods")
EVENTS = json_resource("events.k8s.io", "v1", "Event", "events")
CLAIMS = json_resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
POD_METRICS = json_resource("metrics.k8s.io", "v1beta1", "PodMetrics", "pods")
NATIVE_GROUP = "scheduling.k8s.io"
"""Kubernetes' own gang scheduling: 1.37, and 1.36."""
POD_GROUPS = (
    json_resource("scheduling.gangline.dev", "v1alpha1", "PodGroup", "podgroups"),
    json_resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"),
    json_resource("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups"),
    json_resource(NATIVE_GROUP, "v1beta1", "PodGroup", "podgroups"),
    json_resource(NATIVE_GROUP, "v1alpha2", "PodGroup", "podgroups"),
)
QUEUES = json_resource("scheduling.gangline.dev", "v1alpha1", "Queue", "queues", namespaced=False)


class WorkloadKind(msgspec.Struct, frozen=True):
    """A kind of job."""

    resource: Resource[JSON]
    # The labels by which its pods are found, any of them.
    pod_labels: tuple[str, ...]
    # What may stand between it and its pods, outermost first.
    intermediates: tuple[Resource[JSON], ...] = ()
    # The label that has a pod's replica type; and the spec of its pods, with {type}.
    type_label: str = ""
    template_path: str = "spec.template.spec"
    job_kind: JobKind | None = None
    # Other names that people type.
    aliases: tuple[str, ...] = ()

    @property
    def accepted_names(self) -> tuple[str, ...]:
        known = self.resource
        single = known.kind.lower()
        full = (f"{known.plural}.{known.group}", f"{single}.{known.group}")
        return (*full, *self.aliases) if self.aliases else (single, known.plural, *full)


def _training_kind(facts: JobKind) -> WorkloadKind:
    known = facts.resource
    return WorkloadKind(
        json_resource(known.group, known.version, known.kind, known.plural),
        (JOB_NAME,),
        type_label=REPLICA_TYPE,
        template_path=f"spec.{facts.replicas}.{{type}}.template.spec",
        job_kind=facts,
    )


WORKLOAD_KINDS: tuple[WorkloadKind, ...] = (
    *map(_training_kind, TRAINING_KINDS),
    WorkloadKind(
        TRAINJOBS,
        ("jobset.sigs.k8s.io/jobset-name",),
        (JOBSETS, BATCH_JOBS),
        "jobset.sigs.k8s.io/replicatedjob-name",
        "spec.podTemplateOverrides[{type}].spec",
    ),
    WorkloadKind(
        JOBSETS,
        ("jobset.sigs.k8s.io/jobset-name",),
        (BATCH_JOBS,),
        "jobset.sigs.k8s.io/replicatedjob-name",
        "spec.replicatedJobs[{type}].template.spec.template.spec",
    ),
    WorkloadKind(
        VOLCANO_JOBS,
        ("volcano.sh/job-name",),
        (),
        "volcano.sh/task-spec",
        "spec.tasks[{type}].template.spec",
        aliases=("vcjob", "vj"),
    ),
    WorkloadKind(BATCH_JOBS, ("batch.kubernetes.io/job-name", "job-name")),
)
"""In the order in which a name without a kind is looked for."""


def workload_kind(kind: str) -> WorkloadKind:
    """What a person means by `tfjob`, `jobs.batch`, `vcjob`. Raises `InputError`."""
    wanted = kind.lower()
    for one in WORKLOAD_KINDS:
        if wanted in one.accepted_names:
            return one
    known = ", ".join(one.accepted_names[0] if one.aliases else one.resource.kind.lower() for one in WORKLOAD_KINDS)
    raise InputError(f"{kind}: is no kind of job that can be explained; write one of {known}")


def json_value(body: Mapping[str, Any], *path: str) -> Any:
    """What is at a path of JSON; None where there is nothing."""
    found: Any = body
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
