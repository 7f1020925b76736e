"""Archives the jobs of a local run, their pods and events and the ends of their logs, for commands after the run."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.apiserver.store.paths import collection_prefix, split_path
from gangline.apiserver.store.store import Store
from gangline.base.clock import Clock
from gangline.local.archive.closed_objects import StoredObjects, archived_objects, closed_run, job_with_run_end
from gangline.local.archive.runs import archive_run, exit_records
from gangline.local.archive.server import crd_path
from gangline.local.history import StoreRecording

POD_PREFIX = collection_prefix("", "pods")
BUILTIN_CRD_PATHS = frozenset(crd_path(kind.resource.name) for kind in TRAINING_KINDS)
INTERRUPTED = "the run was interrupted before the job had ended"
TIMED_OUT = "the run was given up before the job had ended: its --timeout was over"
ABORTED = "the run broke off before the job had ended"
DELETED = "the job was deleted before it had ended"


class RunRecorder:
    """Writes an archive of each job of an embedded plane, once nothing runs any more."""

    def __init__(self, runs: Path, kinds: Sequence[JobKind], state: Path, clock: Clock, command: str = "") -> None:
        """`runs` is the folder of the archives, `state` that of the node; `command` is what was typed."""
        self.runs, self._state, self._clock, self._command = runs, state, clock, command
        resources = [kind.resource for kind in kinds]
        self._prefixes = tuple({collection_prefix(resource.group, resource.plural) for resource in resources})
        self.store: Store | None = None
        """The store of the plane; None until the plane runs."""
        self._recording = StoreRecording(runs.parent / "history", state, clock)

    def start(self, store: Store) -> Coroutine[Any, Any, None]:
        """Record what changes in the store of the plane from now on. The result writes it until cancelled."""
        self.store = store
        self._recording.start(store)
        return self._recording.run()

    def write(self, reason: str) -> None:
        """Write one archive per job; `reason` says why jobs that have not finished never will. Raises `OSError`."""
        if self.store is None:
            return
        now, objects = self._clock.now(), self._objects(self.store)
        self._write_history(objects, now, reason)
        jobs = [path for path in objects if path.startswith(self._prefixes)]
        for path in jobs:
            others = {objects[other]["metadata"]["uid"] for other in jobs if other != path}
            own = {key: body for key, body in objects.items() if not _is_owned_by(body, others)}
            own[path] = job_with_run_end(own[path], now, reason, self._command)
            archive_run(self.runs, split_path(path), own, self._state, now)

    def _write_history(self, objects: StoredObjects, now: datetime, reason: str) -> None:
        """Write the rest of the history. It ends with objects that are closed: nothing runs any more."""
        assert self.store is not None
        present = {path: body for path, body in objects.items() if self.store.get(path) is not None}
        ended = {
            path: job_with_run_end(body, now, reason) if path.startswith(self._prefixes) else body
            for path, body in present.items()
        }
        self._recording.finish(closed_run(ended, exit_records(self._state)))

    def _objects(self, store: Store) -> StoredObjects:
        # Deleted jobs and pods too: their status and logs still explain the run.
        deleted = [record for prefix in (*self._prefixes, POD_PREFIX) for record in store.deleted_records(prefix)]
        return archived_objects([*deleted, *store.range("").records], BUILTIN_CRD_PATHS)


@contextmanager
def record_run(recorder: RunRecorder, say: Callable[[str], object]) -> Iterator[RunRecorder]:
    """Archive the jobs when the block ends, also when it raises.

    A write error is passed to `say` and does not change the result of the run.
    """
    reason = ABORTED
    try:
        yield recorder
        # After a complete run, the only jobs that have not finished are those that were deleted.
        reason = DELETED
    except BaseException as error:
        reason = interruption_reason(error)
        raise
    finally:
        try:
            recorder.write(reason)
        except OSError as error:
            say(f"nothing was kept of this run: {error.filename or recorder.runs}: {error.strerror}")


def _is_owned_by(body: JSON, owners: set[str]) -> bool:
    metadata = body["metadata"]
    references = metadata.get("ownerReferences") or ()
    return metadata["uid"] in owners or any(reference.get("uid") in owners for reference in references)


def interruption_reason(error: BaseException) -> str:
    """Why a run ended before its jobs: it was interrupted, its time was over, or it broke off."""
    # A task group raises its errors as one exception group.
    timeouts = error.subgroup(TimeoutError) if isinstance(error, BaseExceptionGroup) else None
    if timeouts is not None or isinstance(error, TimeoutError):
        return TIMED_OUT
    return INTERRUPTED if isinstance(error, asyncio.CancelledError) else ABORTED
