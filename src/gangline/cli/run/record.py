"""What a run leaves for later: its jobs, their pods and events, and the ends of their logs. Heavy to import."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gangline.api.kubeflow.kinds import KINDS
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.apiserver.store.paths import collection_prefix, split_path
from gangline.apiserver.store.store import Store
from gangline.base.clock import Clock
from gangline.local.archive.runs import keep
from gangline.local.archive.server import definition_path
from gangline.local.archive.snapshot import Objects, ended_job, told

PODS = collection_prefix("", "pods")
KNOWN = frozenset(definition_path(kind.resource.name) for kind in KINDS)
INTERRUPTED = "the run was interrupted before the job had ended"
OUT_OF_TIME = "the run was given up before the job had ended: its --timeout was over"
BROKEN = "the run broke off before the job had ended"
DELETED = "the job was deleted before it had ended"


class Recording:
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
            own = {where: body for where, body in objects.items() if not _belongs(body, others)}
            own[path] = ended_job(own[path], now, how)
            keep(self.runs, split_path(path), own, self._state, now)

    def _objects(self, store: Store) -> Objects:
        # Also what was cleaned up: a pod that is gone said something, too.
        departed = [each for prefix in (*self._prefixes, PODS) for each in store.departed(prefix)]
        return told([*departed, *store.range("").records], KNOWN)


@contextmanager
def recorded(recording: Recording, say: Callable[[str], object]) -> Iterator[Recording]:
    """Around a plane: when the block ends, however it does, its jobs are written down.

    Where nothing can be written `say` is told, and the run is what it was.
    """
    how = BROKEN
    try:
        yield recording
        # A run that came to its end has no other jobs left that had not.
        how = DELETED
    except BaseException as error:
        how = _reason(error)
        raise
    finally:
        try:
            recording.write(how)
        except OSError as failed:
            say(f"nothing was kept of this run: {failed.filename or recording.runs}: {failed.strerror}")


def _belongs(body: JSON, owners: set[str]) -> bool:
    metadata = body["metadata"]
    references = metadata.get("ownerReferences") or ()
    return metadata["uid"] in owners or any(each.get("uid") in owners for each in references)


def _reason(error: BaseException) -> str:
    # Out of a task group errors come as one.
    late = error.subgroup(TimeoutError) if isinstance(error, BaseExceptionGroup) else None
    if late is not None or isinstance(error, TimeoutError):
        return OUT_OF_TIME
    return INTERRUPTED if isinstance(error, asyncio.CancelledError) else BROKEN
