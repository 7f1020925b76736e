"""Labels that the operators before training-operator 1.4 set, by which the SDKs of their time look pods up."""

from gangline.api.kubeflow.training import GROUP, JOB_ROLE, TrainingJob
from gangline.jobs.pods.replicas import UNINDEXED_TYPE, Member

_LABEL_PREFIXES = {"TFJob": "tf", "PyTorchJob": "pytorch"}
"""The kinds that had an operator and an SDK of their own, which put this before its labels."""


def legacy_labels(job: TrainingJob, member: Member, role: str = "") -> dict[str, str]:
    """Of a member's pod, beside today's. `role` is that of its label `job-role`, if it has one."""
    kind = member.type.lower()
    index = "" if member.type == UNINDEXED_TYPE else str(member.index)
    own = _LABEL_PREFIXES.get(job.KIND)
    labels = {
        "group-name": GROUP,
        "controller-name": f"{own}-operator" if own else f"{job.KIND.lower()}-controller",
        "job-name": job.metadata.name,
        "replica-type": kind,
        "replica-index": index,
        JOB_ROLE.rpartition("/")[2]: role,
    }
    if own:
        labels |= {
            f"{own}-job-name": job.metadata.name,
            f"{own}-replica-type": kind,
            f"{own}-replica-index": index,
        }
    return {label: value for label, value in labels.items() if value}
