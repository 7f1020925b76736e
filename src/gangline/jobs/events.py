"""What is told about a job: an Event and a log line, once."""

import logging
from collections import OrderedDict

from gangline.api.kubeflow.training import TrainingJob
from gangline.jobs.plan.actions import JobEvent
from gangline.runtime.events import EventRecorder, EventType

log = logging.getLogger(__name__)

MAX_REMEMBERED = 10_000


class JobEvents:
    """Tells each thing once: passes repeat themselves, people should not have to read it twice."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        # Only saves calls: after a restart of the operator things may be told again.
        self._emitted: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def emit(self, job: TrainingJob, note: JobEvent) -> None:
        key = (job.metadata.uid, note.reason, note.message)
        if key in self._emitted:
            self._emitted.move_to_end(key)
            return
        self._emitted[key] = None
        while len(self._emitted) > MAX_REMEMBERED:
            self._emitted.popitem(last=False)
        log.log(
            logging.WARNING if note.warning else logging.INFO,
            "noted",
            extra={"reason": note.reason, "note": note.message},
        )
        self._recorder.record(job, EventType.WARNING if note.warning else EventType.NORMAL, note.reason, note.message)
