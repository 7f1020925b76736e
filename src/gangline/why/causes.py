"""The cause of a job's failure for its recovery policy: what `why` says of the job at that moment."""

import logging

from gangline.api.kubeflow.training import JobKind, TrainingJob
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.jobs.plan.recovery.decision import FailureCause
from gangline.kube.client import Client
from gangline.why.collect import collect
from gangline.why.diagnosis.diagnose import diagnose

log = logging.getLogger(__name__)


class DiagnosedCauses:
    """Reads a job with everything around it, and diagnoses it."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock

    async def cause(self, job: TrainingJob, kind: JobKind) -> FailureCause | None:
        """The likeliest cause; None if nothing is wrong, or the job cannot be read."""
        metadata = job.metadata
        try:
            report = diagnose(
                await collect(self._client, f"{kind.resource.name}/{metadata.name}", metadata.namespace, self._clock)
            )
        except GanglineError as error:
            log.warning("the failure of a job could not be diagnosed", extra={"error": str(error)})
            return None
        return FailureCause(report.causes[0].rule, report.causes[0].cause) if report.causes else None


def cause_reader(client: Client, clock: Clock) -> DiagnosedCauses:
    """The reader for an operator."""
    return DiagnosedCauses(client, clock)
