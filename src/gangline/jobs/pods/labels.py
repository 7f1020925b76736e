"""Labels and owner references of the objects that belong to a job."""

from gangline.api.kubeflow.training import (
    GROUP,
    JOB_NAME,
    JOB_ROLE,
    OPERATOR_NAME,
    REPLICA_INDEX,
    REPLICA_TYPE,
    TrainingJob,
)
from gangline.api.meta import JSON
from gangline.jobs.pods.replicas import UNINDEXED_TYPE, Member

_LEGACY_PREFIXES = {"TFJob": "tf", "PyTorchJob": "pytorch"}
"""The kinds that once had an operator and an SDK of their own, and the prefix of the labels of that operator."""


def job_labels(job: TrainingJob) -> dict[str, str]:
    """The labels that select the objects of a job."""
    return {JOB_NAME: job.metadata.name, OPERATOR_NAME: f"{job.KIND.lower()}-controller"}


def member_labels(job: TrainingJob, member: Member) -> dict[str, str]:
    """The labels that select the pod of one replica."""
    labels = {**job_labels(job), REPLICA_TYPE: member.type.lower()}
    return labels if member.type == UNINDEXED_TYPE else {**labels, REPLICA_INDEX: str(member.index)}


def legacy_labels(job: TrainingJob, member: Member, role: str = "") -> dict[str, str]:
    """The labels that the operators before training-operator 1.4 set, by which the SDKs of their time find pods.

    `role` is the value of the pod's label `job-role`, if it has one.
    """
    replica_type = member.type.lower()
    index = "" if member.type == UNINDEXED_TYPE else str(member.index)
    prefix = _LEGACY_PREFIXES.get(job.KIND)
    labels = {
        "group-name": GROUP,
        "controller-name": f"{prefix}-operator" if prefix else f"{job.KIND.lower()}-controller",
        "job-name": job.metadata.name,
        "replica-type": replica_type,
        "replica-index": index,
        JOB_ROLE.rpartition("/")[2]: role,
    }
    if prefix:
        labels |= {
            f"{prefix}-job-name": job.metadata.name,
            f"{prefix}-replica-type": replica_type,
            f"{prefix}-replica-index": index,
        }
    return {label: value for label, value in labels.items() if value}


def owner_reference(job: TrainingJob) -> JSON:
    """The reference that makes the job the controller of an object."""
    return {
        "apiVersion": job.API_VERSION,
        "kind": job.KIND,
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
