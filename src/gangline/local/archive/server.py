"""What is left when no plane runs, served once more, to be read: a stopped plane's objects, and those of ended runs.

The store of a plane is read as it is on disk, without its lock and without changing it. Ended runs are laid over it,
oldest first: the newest job of a name is the one that is seen, with its own pods and events.
"""

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Never

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.store.errors import StoreFailed
from gangline.apiserver.store.paths import object_path, split_path
from gangline.apiserver.store.records import StoreWrite
from gangline.apiserver.store.sqlite import DATABASE_FILE
from gangline.apiserver.store.store import Store
from gangline.base.clock import Clock
from gangline.kube.podstreams import ContainerNotRunning, ContainerRef, LogOptions, PodStreams, RunningCommand
from gangline.local.archive.runs import ArchivedRun, archived_runs, ended_pod_uids, exit_records
from gangline.local.archive.snapshot import (
    StoredObjects,
    closed_plane,
    closed_run,
    objects_with_run_end,
    run_end,
)
from gangline.local.home import PlaneHome
from gangline.local.plane import ControlPlane, PlaneSettings, control_plane
from gangline.node.logs import NodeLogReader


@asynccontextmanager
async def archive_plane(
    home: PlaneHome, definitions: Iterable[JSON], clock: Clock, *, as_it_was: bool = False
) -> AsyncIterator[ControlPlane]:
    """A server with all that was left, until the block ends. Nothing acts on it, and nothing is written to disk.

    `definitions` are CRDs; those of a stopped plane go before them. All is shown closed; `as_it_was` shows it as in its
    last moment, when jobs and pods may still have run. Raises `StoreFailed` when the plane's store is damaged.
    """
    objects = _plane_objects(home, as_it_was=as_it_was)
    readers: dict[str, NodeLogReader] = {}
    for run in archived_runs(home.runs):
        if not merge_run(objects, run.objects if as_it_was else closed_run(run.objects, run.exit_records())):
            continue
        reader = NodeLogReader(run.folder, clock)
        readers |= dict.fromkeys(_pod_uids(run), reader)
    for crd in definitions:
        objects.setdefault(crd_path(crd["metadata"]["name"]), crd)
    streams = ArchivedStreams(readers, NodeLogReader(home.pods, clock))
    nodes: dict[str, PodStreams] = dict.fromkeys(_node_names(objects), streams)
    async with Store() as store:
        await store.commit(*(StoreWrite(path, body, 0) for path, body in sorted(objects.items())))
        async with control_plane(store, PlaneSettings(controllers_enabled=False), clock, nodes) as plane:
            yield plane


def _plane_objects(home: PlaneHome, *, as_it_was: bool) -> StoredObjects:
    found, at = read_store(home.state / DATABASE_FILE), stopped_at(home)
    if at is None:
        return found
    gone = ended_pod_uids(home.pods)
    found = objects_with_run_end(found, gone, at)
    return found if as_it_was else closed_plane(found, exit_records(home.pods), gone, at)


def stopped_at(home: PlaneHome) -> datetime | None:
    """When the plane that left a store here was last alive; None where there is no store."""
    # One that ended in order removed its log then, from the folder; one that was killed wrote to it.
    there = (home.state, home.state / DATABASE_FILE, home.state / f"{DATABASE_FILE}-wal")
    times = [file.stat().st_mtime for file in there if file.exists()] if there[1].exists() else []
    return datetime.fromtimestamp(max(times), UTC) if times else None


def crd_path(name: str) -> str:
    """Where a store keeps a CRD."""
    return object_path("apiextensions.k8s.io", "customresourcedefinitions", "", name)


def read_store(file: Path) -> StoredObjects:
    """The objects in the store of a stopped plane; none where there is no such file. Raises `StoreFailed`."""
    if not file.exists():
        return {}
    try:
        if not file.with_name(f"{file.name}-wal").exists():
            # Closed in order, and not opened since: as a file that nobody writes, it is not even locked.
            return _latest_objects(f"{file.absolute().as_uri()}?immutable=1")
        # Its plane was killed. What it wrote last is in the log, and only a writer may bring that home: here, a copy.
        with tempfile.TemporaryDirectory(prefix="gangline-") as folder:
            for each in (file, file.with_name(f"{file.name}-wal")):
                shutil.copyfile(each, Path(folder, each.name))
            return _latest_objects(Path(folder, file.name).as_uri())
    except (sqlite3.Error, OSError) as error:
        raise StoreFailed(f"{file}: {error}") from error


def _latest_objects(uri: str) -> StoredObjects:
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        rows = connection.execute("SELECT path, data, deleted FROM changes ORDER BY revision")
        newest = {path: None if deleted else data for path, data, deleted in rows}
    return {path: msgspec.json.decode(data) for path, data in newest.items() if data is not None}


def merge_run(objects: StoredObjects, run: Mapping[str, JSON]) -> bool:
    """Add a run to what is there. False, and nothing is changed, where a job of the same name there is newer."""
    jobs = [path for path, body in run.items() if path in objects and run_end(body) is not None]
    if any(_creation_time(objects[path]) > _creation_time(run[path]) for path in jobs):
        return False
    for path in jobs:
        _remove_with_dependents(objects, _uid(objects[path]))
    objects.update(run)
    return True


def _remove_with_dependents(objects: StoredObjects, uid: str) -> None:
    """An object, what it owns, and what was said about any of it."""
    gone = {uid}
    gone |= {_uid(body) for body in objects.values() if _owner_uids(body) & gone}
    for path, body in list(objects.items()):
        about = (body.get("regarding") or body.get("involvedObject") or {}).get("uid")
        if _uid(body) in gone or about in gone:
            del objects[path]


def _owner_uids(body: JSON) -> set[str]:
    return {owner.get("uid", "") for owner in body["metadata"].get("ownerReferences") or ()}


def _uid(body: JSON) -> str:
    return str(body["metadata"].get("uid", ""))


def _creation_time(body: JSON) -> str:
    # As Kubernetes writes it, a time sorts as text.
    return str(body["metadata"].get("creationTimestamp", ""))


def _pod_uids(run: ArchivedRun) -> list[str]:
    return [_uid(body) for path, body in run.objects.items() if split_path(path).plural == "pods"]


def _node_names(objects: Mapping[str, JSON]) -> set[str]:
    pods = (body for path, body in objects.items() if path.startswith("//pods/"))
    return {str((pod.get("spec") or {}).get("nodeName", "")) for pod in pods} - {""}


class ArchivedStreams:
    """`PodStreams` of nodes that are no more: logs are read from where they were left, and nothing runs."""

    def __init__(self, readers: Mapping[str, NodeLogReader], rest: NodeLogReader) -> None:
        """Readers by the uid of a pod, and one for all other pods."""
        self._readers, self._default_reader = readers, rest

    def logs(self, place: ContainerRef, run: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        reader = self._readers.get(place.uid, self._default_reader)
        return reader.read_run(place.key, place.uid, place.container, run, options)

    async def attach(self, place: ContainerRef, run: str) -> AsyncGenerator[tuple[bytes, bytes], None]:
        said: tuple[tuple[bytes, bytes], ...] = ()
        for each in said:
            yield each

    def run_command(
        self, place: ContainerRef, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> AbstractAsyncContextManager[RunningCommand]:
        self._refuse(place)

    async def connect(self, place: ContainerRef, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self._refuse(place)

    def _refuse(self, place: ContainerRef) -> Never:
        raise ContainerNotRunning(f"{place.key}: its run has ended")
