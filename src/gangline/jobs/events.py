"""Kubernetes Events and log lines about jobs."""

import logging

from gangline.api.kubeflow.training import TrainingJob
from gangline.jobs.bounded import BoundedDict
from gangline.jobs.plan.actions import JobEvent
from gangline.runtime.events import EventRecorder, EventType

log = logging.getLogger(__name__)

MAX_REMEMBERED = 10_000


class JobEvents:
    """Emits each event of a job once, although every reconcile plans it again."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        # Only in memory: after a restart of the operator an event may be emitted again.
        self._emitted: BoundedDict[tuple[str, str, str], None] = BoundedDict(MAX_REMEMBERED)

    def emit(self, job: TrainingJob, event: JobEvent) -> None:
        """Log and record the event, unless the same one was emitted for this job."""
        key = (job.metadata.uid, event.reason, event.message)
        if key in self._emitted:
            self._emitted.move_to_end(key)
            return
        self._emitted[key] = None
        log.log(
            logging.WARNING if event.warning else logging.INFO,
            "noted",
            extra={"reason": event.reason, "note": event.message},
        )
        event_type = EventType.WARNING if event.warning else EventType.NORMAL
        self._recorder.record(job, event_type, event.reason, event.message)
