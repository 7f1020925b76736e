"""The cause of a job's failure for its recovery policy: what `why` says of the job at that moment."""

import logging

from gangline.api.kubeflow.training import JobKind, TrainingJob
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.jobs.plan.recovery.decision import FailureCause
from gangline.kube.client import Client
from gangline.kube.errors import Forbidden, KubeError, NotFound
from gangline.why.collect import collect
from gangline.why.diagnosis.diagnose import diagnose
from gangline.why.diagnosis.report import Diagnosis

log = logging.getLogger(__name__)

_CODE_RULES = ("exit-code", "permanent-exit-code")
UNKNOWN_RULE = "failed"
"""The cause of a failure of which an exit code is all that could be read."""


class DiagnosedCauses:
    """Reads a job with everything around it, and diagnoses it."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock

    async def cause(self, job: TrainingJob, kind: JobKind) -> FailureCause | None:
        """The likeliest cause; None if nothing is wrong, or the job may not be read.

        Raises `KubeError` if the server does not answer: a decision for good must not depend on that.
        """
        metadata = job.metadata
        target = f"{kind.resource.name}/{metadata.name}"
        try:
            report = diagnose(await collect(self._client, target, metadata.namespace, self._clock))
        except GanglineError as error:
            if isinstance(error, KubeError) and not isinstance(error, Forbidden | NotFound):
                raise
            log.warning("the failure of a job could not be diagnosed", extra={"error": str(error)})
            return None
        return failure_cause(report)


def failure_cause(report: Diagnosis) -> FailureCause | None:
    """The first cause of a diagnosis. An exit code alone is no cause if the log that would say more could not be read."""
    if not report.causes:
        return None
    first = report.causes[0]
    has_no_log = any(line.startswith("log of ") for line in report.unread)
    rule = UNKNOWN_RULE if first.rule in _CODE_RULES and has_no_log else first.rule
    return FailureCause(rule, first.cause)


def cause_reader(client: Client, clock: Clock) -> DiagnosedCauses:
    """The reader for an operator."""
    return DiagnosedCauses(client, clock)
