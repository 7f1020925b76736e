"""The texts of conditions. Clients read them, so they are v1's to the letter."""

from gangline.api.kubeflow.training import TrainingJob
from gangline.jobs.framework import ConditionText, JobOutcome, Verdict


def job_verdict(job: TrainingJob, *, succeeded: bool, running: bool, led: bool) -> Verdict:
    """The verdict on a job; success comes first. `led`: v1 judges the job by one replica, and words it differently."""
    kind, name = job.KIND, job.metadata.name
    full = f"{kind} {job.metadata.namespace}/{name}"
    if succeeded:
        message = f"{kind} {name} is successfully completed." if led else f"{full} successfully completed."
        return Verdict(JobOutcome.SUCCEEDED, message)
    if running:
        return Verdict(JobOutcome.RUNNING, running_text(job).message if led else f"{full} is running.")
    return Verdict(JobOutcome.PENDING)


def failure_text(job: TrainingJob, kind: str, count: int) -> ConditionText:
    """The condition Failed of a job of which `count` replicas of a type failed permanently."""
    message = f"{job.KIND} {job.metadata.name} is failed because {count} {kind} replica(s) failed."
    return ConditionText(f"{job.KIND}Failed", message)


def restart_message(job: TrainingJob, kind: str, count: int) -> str:
    """The message of condition Restarting, for kinds that v1 judges by their counters alone."""
    return f"{job.KIND} {job.metadata.name} is restarting because {count} {kind} replica(s) failed."


def running_text(job: TrainingJob) -> ConditionText:
    """The condition Running of a job that is judged by its leader."""
    return ConditionText(f"{job.KIND}Running", f"{job.KIND} {job.metadata.name} is running.")
