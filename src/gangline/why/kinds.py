"""The job kinds that `why` explains: where they are served, how their pods are found, and the words of their status."""

from collections.abc import Mapping
from typing import Any

import msgspec

from gangline.api.kubeflow.kinds import MPIJOB, MPIJOB_V2, TRAINING_KINDS
from gangline.api.kubeflow.training import JOB_NAME, REPLICA_TYPE, JobKind
from gangline.api.meta import JSON
from gangline.api.scheme import Resource
from gangline.base.errors import InputError


def json_resource(group: str, version: str, kind: str, plural: str, *, namespaced: bool = True) -> Resource[JSON]:
    """A resource that is read as JSON, because it may not be installed or because we decode none of its fields."""
    return Resource(group, version, kind, plural, dict[str, Any], namespaced=namespaced)


BATCH_JOBS = json_resource("batch", "v1", "Job", "jobs")
JOBSETS = json_resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
TRAINJOBS = json_resource("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs")
VOLCANO_JOBS = json_resource("batch.volcano.sh", "v1alpha1", "Job", "jobs")
PODS = json_resource("", "v1", "Pod", "pods")
EVENTS = json_resource("events.k8s.io", "v1", "Event", "events")
CLAIMS = json_resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
NATIVE_GROUP = "scheduling.k8s.io"
"""The API group of Kubernetes' own gang scheduling, in 1.37 and in 1.36."""
POD_GROUPS = (
    json_resource("scheduling.gangline.dev", "v1alpha1", "PodGroup", "podgroups"),
    json_resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"),
    json_resource("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups"),
    json_resource(NATIVE_GROUP, "v1beta1", "PodGroup", "podgroups"),
    json_resource(NATIVE_GROUP, "v1alpha2", "PodGroup", "podgroups"),
)
QUEUES = json_resource("scheduling.gangline.dev", "v1alpha1", "Queue", "queues", namespaced=False)


class WorkloadKind(msgspec.Struct, frozen=True):
    """A kind of job that can be explained."""

    resource: Resource[JSON]
    # Labels that select its pods; one of them is enough.
    pod_labels: tuple[str, ...]
    # Kinds of objects between the job and its pods, outermost first.
    intermediates: tuple[Resource[JSON], ...] = ()
    # The label with a pod's replica type, and the path of the pod spec, with {type}.
    type_label: str = ""
    template_path: str = "spec.template.spec"
    job_kind: JobKind | None = None
    # Other names that people type for this kind.
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


MPI_V2_JOBS = msgspec.structs.replace(_training_kind(MPIJOB_V2), intermediates=(BATCH_JOBS,))
"""MPIJobs of v2beta1, whose launcher is a Job of Kubernetes."""


def served_kind(kind: WorkloadKind, body: JSON) -> WorkloadKind:
    """The kind of a job that was read in the version of `kind`: an MPIJob may have been written in the other one."""
    written_in_v2 = kind.job_kind is MPIJOB and json_value(body, "spec", "mpiImplementation")
    return MPI_V2_JOBS if written_in_v2 else kind


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
"""In the order in which a name without a kind is searched."""


def workload_kind(kind: str) -> WorkloadKind:
    """The kind that a person means by `tfjob`, `jobs.batch` or `vcjob`. Raises `InputError`."""
    lowered = kind.lower()
    for candidate in WORKLOAD_KINDS:
        if lowered in candidate.accepted_names:
            return candidate
    names = ", ".join(
        candidate.accepted_names[0] if candidate.aliases else candidate.resource.kind.lower()
        for candidate in WORKLOAD_KINDS
    )
    raise InputError(f"{kind}: is no kind of job that can be explained; write one of {names}")


def json_value(body: Mapping[str, Any], *path: str) -> Any:
    """The value at a path of a JSON object; None if there is none."""
    value: Any = body
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
