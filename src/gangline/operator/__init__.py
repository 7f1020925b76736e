"""The operator; and for authors of new kinds of job, everything they need in one place.

    from gangline.operator import JobKind, PodEdits, Port, TeamFramework, run

Names are looked up when first used: importing this package imports nothing else.
"""

from gangline.base.lazy_exports import looked_up

_NAMES = {
    "gangline.api.meta": ("JSON", "Key", "Wire"),
    "gangline.api.kubeflow.training": (
        "JobKind",
        "JobStatus",
        "Port",
        "ReplicaSpec",
        "RestartPolicy",
        "RunPolicy",
        "TrainingJob",
    ),
    "gangline.frameworks.team_framework": ("TeamFramework",),
    "gangline.jobs.framework": (
        "Address",
        "Addresses",
        "Companion",
        "Framework",
        "Into",
        "Outcome",
        "PodEdits",
        "Problem",
        "Told",
        "Verdict",
        "variables",
    ),
    "gangline.jobs.pods.replicas": ("Counts", "Gang", "Member"),
    "gangline.operator.engine": ("scheme_of",),
    "gangline.operator.embedding": ("JobReconciler",),
    "gangline.operator.main": ("run",),
    "gangline.schema.crds.job_crds": ("crd",),
}
__all__, __getattr__ = looked_up(__name__, _NAMES)
