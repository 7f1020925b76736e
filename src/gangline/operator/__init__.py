"""The operator; and for authors of new kinds of job, everything they need in one place.

    from gangline.operator import JobKind, PodEdits, Port, TeamFramework, run

Names are looked up when first used: importing this package imports nothing else.
"""

from gangline.base.lazily import looked_up

_NAMES = {
    "gangline.api.meta": ("JSON", "Key", "Wire"),
    "gangline.api.training": (
        "JobKind",
        "JobStatus",
        "Port",
        "ReplicaSpec",
        "RestartPolicy",
        "RunPolicy",
        "TrainingJob",
    ),
    "gangline.frameworks.base": ("TeamFramework",),
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
    "gangline.jobs.gang": ("Counts", "Gang", "Member"),
    "gangline.operator.engine": ("scheme_of",),
    "gangline.operator.inside": ("JobReconciler",),
    "gangline.operator.main": ("run",),
    "gangline.schema.crds": ("crd",),
}
__all__, __getattr__ = looked_up(__name__, _NAMES)
