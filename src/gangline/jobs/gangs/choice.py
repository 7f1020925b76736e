"""Who places the pods of a job: whom it asks for, else the one that all use."""

import msgspec

from gangline.api.kubeflow.training import TrainingJob
from gangline.api.scheduling import GANG_SCHEDULER
from gangline.jobs.gangs.podgroup import GangScheduler
from gangline.jobs.pods.addressing import Site

NONE = "none"
"""Asked for by this name: nobody in particular, pod by pod."""


class Choice(msgspec.Struct, frozen=True):
    gangs: GangScheduler | None = None
    # Asked for, and not there.
    missing: str = ""


def choice(site: Site, job: TrainingJob, *, policy: bool) -> Choice:
    """`policy`: whether the job has a scheduling policy, which is one way to ask."""
    asked = job.metadata.annotations.get(GANG_SCHEDULER, "").strip()
    if not asked:
        return Choice(site.gangs if policy or not site.gangs_on_request else None)
    if asked.lower() == NONE:
        return Choice()
    known = {gangs.name.lower(): gangs for gangs in site.offered}
    found = known.get(asked.lower())
    return Choice(found) if found is not None else Choice(missing=asked)


def refusal(site: Site, asked: str) -> str:
    """What to tell whoever asked for one that is not there."""
    names = [gangs.name for gangs in site.offered]
    served = ",".join([*(names if site.gangs is not None else [NONE, *names]), asked])
    known = ", ".join([*names, NONE])
    return (
        f'annotation {GANG_SCHEDULER} asks for "{asked}", which this operator does not use; write one of {known}, '
        f"or install that scheduler and start the operator with --gang-scheduler-name {served}"
    )
