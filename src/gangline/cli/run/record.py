"""What a run leaves for later: its jobs, their pods and events, and the ends of their logs. Heavy to import."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.apiserver.store.paths import collection_prefix, split_path
from gangline.apiserver.store.store import Store
from gangline.base.clock import Clock
from gangline.local.archive.closed_objects import StoredObjects, archived_objects, job_with_run_end
from gangline.local.archive.runs import archive_run
from gangline.local.archive.server import crd_path

POD_PREFIX = collection_prefix("", "pods")
BUILTIN_CRD_PATHS = frozenset(crd_path(kind.resource.name) for kind in TRAINING_KINDS)
INTERRUPTED = "the run was interrupted before the job had ended"
TIMED_OUT = "the run was given up before the job had ended: its --timeout was over"
ABORTED = "the run broke off before the job had ended"
DELETED = "the job was deleted before it had ended"


class RunRecorder:
    """Writes down, when nothing runs any more, what became of the jobs of one plane."""

    def __init__(self, runs: Path, kinds: Sequence[JobKind], state: Path, clock: Clock) -> None:
        """`runs` is where records go, `state` the folder of the node."""
        self.runs, self._state, self._clock = runs, state, clock
        resources = [kind.resource for kind in kinds]
        self._prefixes = tuple({collection_prefix(each.group, each.plural) for each in resources})
        self.store: Store | None = None
        """Of the plane, once there is one."""

    def write(self, how: str) -> None:
        """One record for each job; those that had not ended say how the run did. Raises OSError."""
        if self.store is None:
            return
        now, objects = self._clock.now(), self._objects(self.store)
        jobs = [path for path in objects if path.startswith(self._prefixes)]
        for path in jobs:
            others = {objects[other]["metadata"]["uid"] for other in jobs if other != path}
            own = {where: body for where, body in objects.items() if not _is_owned_by(body, others)}
            own[path] = job_with_run_end(own[path], now, how)
            archive_run(self.runs, split_path(path), own, self._state, now)

    def _objects(self, store: Store) -> StoredObjects:
        # Also what was cleaned up: a pod that is gone said something, too.
        departed = [each for prefix in (*self._prefixes, POD_PREFIX) for each in store.deleted_records(prefix)]
        return archived_objects([*departed, *store.range("").records], BUILTIN_CRD_PATHS)


@contextmanager
def record_run(recording: RunRecorder, say: Callable[[str], object]) -> Iterator[RunRecorder]:
    """Around a plane: when the block ends, however it does, its jobs are written down.

    Where nothing can be written `say` is told, and the run is what it was.
    """
    how = ABORTED
    try:
        yield recording
        # A run that came to its end has no other jobs left that had not.
        how = DELETED
    except BaseException as error:
        how = _interruption_reason(error)
        raise
    finally:
        try:
            recording.write(how)
        except OSError as failed:
            say(f"nothing was kept of this run: {failed.filename or recording.runs}: {failed.strerror}")


def _is_owned_by(body: JSON, owners: set[str]) -> bool:
    metadata = body["metadata"]
    references = metadata.get("ownerReferences") or ()
    return metadata["uid"] in owners or any(each.get("uid") in owners for each in references)


def _interruption_reason(error: BaseException) -> str:
    # Out of a task group errors come as one.
    late = error.subgroup(TimeoutError) if isinstance(error, BaseExceptionGroup) else None
    if late is not None or isinstance(error, TimeoutError):
        return TIMED_OUT
    return INTERRUPTED if isinstance(error, asyncio.CancelledError) else ABORTED
