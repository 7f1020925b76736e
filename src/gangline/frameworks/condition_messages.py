"""The sentences of conditions. Clients read them, so they are v1's to the letter."""

from gangline.api.kubeflow.training import TrainingJob
from gangline.jobs.framework import ConditionText, JobOutcome, Verdict


def job_verdict(job: TrainingJob, *, succeeded: bool, running: bool, led: bool) -> Verdict:
    """How a job stands; success comes first. `led`: one replica speaks for all, and the job is called by its name alone."""
    kind, name = job.KIND, job.metadata.name
    full = f"{kind} {job.metadata.namespace}/{name}"
    if succeeded:
        told = f"{kind} {name} is successfully completed." if led else f"{full} successfully completed."
        return Verdict(JobOutcome.SUCCEEDED, told)
    if running:
        return Verdict(JobOutcome.RUNNING, running_text(job).message if led else f"{full} is running.")
    return Verdict(JobOutcome.PENDING)


def failure_text(job: TrainingJob, kind: str, count: int) -> ConditionText:
    """That so many replicas of a type failed for good."""
    message = f"{job.KIND} {job.metadata.name} is failed because {count} {kind} replica(s) failed."
    return ConditionText(f"{job.KIND}Failed", message)


def restart_message(job: TrainingJob, kind: str, count: int) -> str:
    """That a job restarts, where v1 judges it by its counters alone."""
    return f"{job.KIND} {job.metadata.name} is restarting because {count} {kind} replica(s) failed."


def running_text(job: TrainingJob) -> ConditionText:
    """That a job whose leader speaks for all runs."""
    return ConditionText(f"{job.KIND}Running", f"{job.KIND} {job.metadata.name} is running.")
