"""The operator; and in one place everything that authors of new kinds of jobs need.

    from gangline.operator import JobKind, PodEdits, Port, TeamFramework, run

Names are imported when first used: importing this package imports nothing else.
"""

from gangline.base.lazy_exports import lazy_exports

_NAMES = {
    "gangline.api.meta": ("JSON", "Key", "ApiStruct"),
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
        "EnvTarget",
        "JobOutcome",
        "PodEdits",
        "Problem",
        "ConditionText",
        "Verdict",
        "variables",
    ),
    "gangline.jobs.pods.replicas": ("Counts", "Gang", "Member"),
    "gangline.operator.engine": ("scheme_of",),
    "gangline.operator.embedding": ("JobReconciler",),
    "gangline.operator.main": ("run",),
    "gangline.schema.crds.job_crds": ("crd",),
}
_DEPRECATED = {
    "Into": ("EnvTarget", "0.2.0", "0.4.0"),
    "Outcome": ("JobOutcome", "0.2.0", "0.4.0"),
    "Told": ("ConditionText", "0.2.0", "0.4.0"),
    "Wire": ("ApiStruct", "0.2.0", "0.4.0"),
}
__all__, __getattr__ = lazy_exports(__name__, _NAMES, _DEPRECATED)
