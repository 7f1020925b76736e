"""What is told about a job: an Event and a log line, once."""

import logging
from collections import OrderedDict

from gangline.api.kubeflow.training import TrainingJob
from gangline.jobs.plan.actions import Note
from gangline.runtime.events import EventType, Recorder

log = logging.getLogger(__name__)

REMEMBERED = 10_000


class Notes:
    """Tells each thing once: passes repeat themselves, people should not have to read it twice."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        # Only saves calls: after a restart of the operator things may be told again.
        self._told: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def tell(self, job: TrainingJob, note: Note) -> None:
        key = (job.metadata.uid, note.reason, note.message)
        if key in self._told:
            self._told.move_to_end(key)
            return
        self._told[key] = None
        while len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        log.log(
            logging.WARNING if note.warning else logging.INFO,
            "noted",
            extra={"reason": note.reason, "note": note.message},
        )
        self._recorder.record(
            job, EventType.WARNING if note.warning else EventType.NORMAL, note.reason, note.message
        )
