"""What the engine knows about the place in which jobs run, and which gang scheduler places a job's pods there."""

from enum import StrEnum

import msgspec

from gangline.api.kubeflow.training import TrainingJob
from gangline.api.scheduling import GANG_SCHEDULER_ANNOTATION
from gangline.jobs.gangs.podgroup import GangScheduler
from gangline.jobs.pods.progress_reporting import ProgressEndpoint

NO_GANG_SCHEDULER = "none"
"""A job that requests this name gets no gang scheduler: its pods are placed one by one."""


class ServiceMode(StrEnum):
    """One headless service per replica, as in v1; or one per job, and host names for its pods."""

    PER_REPLICA = "per-replica"
    PER_JOB = "per-job"


class Site(msgspec.Struct, frozen=True):
    """The cluster, or the machine, in which jobs run."""

    services: ServiceMode = ServiceMode.PER_REPLICA
    # The cluster domain, which follows `.svc.` in full names: CUSTOM_CLUSTER_DOMAIN.
    domain: str = ""
    # All replicas run on one machine: their addresses are annotations of their services, and pods wait for them.
    shared_host: bool = False
    # Pods also get the labels of the operators before training-operator 1.4.
    legacy_labels: bool = False
    # The gang scheduler of jobs that name none; None: their pods are placed one by one.
    gang_scheduler: GangScheduler | None = None
    # `gang_scheduler` is used only for jobs that ask for it, by a scheduling policy or by name.
    gangs_on_request: bool = False
    # More gang schedulers that a job may request by name.
    other_gang_schedulers: tuple[GangScheduler, ...] = ()
    # Where pods report progress; None: nowhere, and pods are not changed for it.
    progress: ProgressEndpoint | None = None
    # Nodes restart the processes of a pod in place, if its annotation asks for it.
    restarts_in_place: bool = False
    # The image of the containers that pods need for that where kubelets run them; empty: our own nodes do.
    in_place_image: str = ""

    @property
    def gang_schedulers(self) -> tuple[GangScheduler, ...]:
        """All gang schedulers that a job may request."""
        return (*((self.gang_scheduler,) if self.gang_scheduler is not None else ()), *self.other_gang_schedulers)


class SchedulerChoice(msgspec.Struct, frozen=True):
    """The gang scheduler of one job, if it has one."""

    gang_scheduler: GangScheduler | None = None
    # The name that the job requests, if this operator does not use that scheduler.
    missing_name: str = ""


def choose_scheduler(site: Site, job: TrainingJob, *, policy: bool) -> SchedulerChoice:
    """The gang scheduler that the job requests, else the site's. `policy`: whether the job has a scheduling policy."""
    name = job.metadata.annotations.get(GANG_SCHEDULER_ANNOTATION, "").strip()
    if not name:
        return SchedulerChoice(site.gang_scheduler if policy or not site.gangs_on_request else None)
    if name.lower() == NO_GANG_SCHEDULER:
        return SchedulerChoice()
    by_name = {scheduler.name.lower(): scheduler for scheduler in site.gang_schedulers}
    scheduler = by_name.get(name.lower())
    return SchedulerChoice(scheduler) if scheduler is not None else SchedulerChoice(missing_name=name)


def missing_scheduler_message(site: Site, requested: str) -> str:
    """The condition message of a job that requests a gang scheduler which this operator does not use."""
    names = [scheduler.name for scheduler in site.gang_schedulers]
    flag = ",".join([*(names if site.gang_scheduler is not None else [NO_GANG_SCHEDULER, *names]), requested])
    choices = ", ".join([*names, NO_GANG_SCHEDULER])
    return (
        f'annotation {GANG_SCHEDULER_ANNOTATION} asks for "{requested}", which this operator does not use; write one of'
        f" {choices}, or install that scheduler and start the operator with --gang-scheduler-name {flag}"
    )
