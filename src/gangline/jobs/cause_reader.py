"""Who tells the engine the cause of a failure."""

from typing import Protocol

from gangline.api.kubeflow.training import JobKind, TrainingJob
from gangline.jobs.plan.recovery.decision import FailureCause


class CauseReader(Protocol):
    """Diagnoses a job. Asked only about jobs with a recovery policy, once a failure is to be decided about."""

    async def cause(self, job: TrainingJob, kind: JobKind) -> FailureCause | None:
        """The cause of the job's first failure; None if it cannot be found. Raises if the server does not answer."""
        ...
