"""Who places the pods of a job: whom it asks for, else the one that all use."""

import msgspec

from gangline.api.kubeflow.training import TrainingJob
from gangline.api.scheduling import GANG_SCHEDULER_ANNOTATION
from gangline.jobs.gangs.podgroup import GangScheduler
from gangline.jobs.pods.addressing import Site

NO_GANG_SCHEDULER = "none"
"""Asked for by this name: nobody in particular, pod by pod."""


class SchedulerChoice(msgspec.Struct, frozen=True):
    gang_scheduler: GangScheduler | None = None
    # Asked for, and not there.
    missing_name: str = ""


def choose_scheduler(site: Site, job: TrainingJob, *, policy: bool) -> SchedulerChoice:
    """`policy`: whether the job has a scheduling policy, which is one way to ask."""
    asked = job.metadata.annotations.get(GANG_SCHEDULER_ANNOTATION, "").strip()
    if not asked:
        return SchedulerChoice(site.gang_scheduler if policy or not site.gangs_on_request else None)
    if asked.lower() == NO_GANG_SCHEDULER:
        return SchedulerChoice()
    known = {gangs.name.lower(): gangs for gangs in site.gang_schedulers}
    found = known.get(asked.lower())
    return SchedulerChoice(found) if found is not None else SchedulerChoice(missing_name=asked)


def missing_scheduler_message(site: Site, asked: str) -> str:
    """What to tell whoever asked for one that is not there."""
    names = [gangs.name for gangs in site.gang_schedulers]
    served = ",".join([*(names if site.gang_scheduler is not None else [NO_GANG_SCHEDULER, *names]), asked])
    known = ", ".join([*names, NO_GANG_SCHEDULER])
    return (
        f'annotation {GANG_SCHEDULER_ANNOTATION} asks for "{asked}", which this operator does not use; write one of {known}, '
        f"or install that scheduler and start the operator with --gang-scheduler-name {served}"
    )
