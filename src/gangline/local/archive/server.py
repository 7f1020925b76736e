"""A read-only API server for when no plane runs: it serves the objects of a stopped plane and of archived runs.

The store of the plane is read from disk, without its lock and without changing it. Archived runs are merged into it,
oldest first: of jobs with the same name the newest is served, with its own pods and events.
"""

import asyncio
import errno
import os
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
from gangline.apiserver.store.disk.reserve import DeletionReserve
from gangline.apiserver.store.errors import StoreDamaged, StoreFailed
from gangline.apiserver.store.paths import object_path, split_path
from gangline.apiserver.store.records import StoreWrite
from gangline.apiserver.store.sqlite import DATABASE_FILE
from gangline.apiserver.store.store import Store
from gangline.base.clock import Clock
from gangline.kube.podstreams import (
    AttachedContainer,
    ContainerNotRunning,
    ContainerRef,
    LogOptions,
    PodStreams,
    RunningCommand,
)
from gangline.local.archive.closed_objects import StoredObjects, closed_plane, closed_run, objects_with_run_end, run_end
from gangline.local.archive.runs import ArchivedRun, archived_runs, ended_pod_uids, exit_records
from gangline.local.home import PlaneHome
from gangline.local.plane import ControlPlane, PlaneSettings, control_plane
from gangline.node.logs import NodeLogReader


@asynccontextmanager
async def archive_plane(
    home: PlaneHome,
    definitions: Iterable[JSON],
    clock: Clock,
    *,
    as_it_was: bool = False,
    settings: PlaneSettings = PlaneSettings(),  # noqa: B008 - frozen
) -> AsyncIterator[ControlPlane]:
    """A server of the archived objects, until the block ends. It runs no controllers and writes nothing to disk.

    `definitions` are CRDs; those of a stopped plane take precedence. Objects are served closed (see `closed_objects`);
    with `as_it_was` as they were at the end, when jobs and pods may still have run. Raises `StoreFailed` when the
    plane's store is damaged.
    """
    objects = _plane_objects(home, as_it_was=as_it_was)
    readers: dict[str, NodeLogReader] = {}
    for run in archived_runs(home.runs):
        if not merge_run(objects, run.objects if as_it_was else closed_run(run.objects, run.exit_records())):
            continue
        reader = NodeLogReader(run.folder, clock)
        readers |= dict.fromkeys(_pod_uids(run), reader)
    streams = ArchivedStreams(readers, NodeLogReader(home.pods, clock))
    async with serve_objects(objects, definitions, streams, clock, settings) as plane:
        yield plane


@asynccontextmanager
async def serve_objects(
    objects: StoredObjects,
    definitions: Iterable[JSON],
    streams: PodStreams,
    clock: Clock,
    settings: PlaneSettings = PlaneSettings(),  # noqa: B008 - frozen
) -> AsyncIterator[ControlPlane]:
    """A server of these objects and of CRDs that are not among them, until the block ends. It runs no controllers."""
    for crd in definitions:
        objects.setdefault(crd_path(crd["metadata"]["name"]), crd)
    nodes: dict[str, PodStreams] = dict.fromkeys(_node_names(objects), streams)
    settings = msgspec.structs.replace(settings, controllers_enabled=False)
    async with Store() as store:
        await store.commit(*(StoreWrite(path, body, 0) for path, body in sorted(objects.items())))
        async with control_plane(store, settings, clock, nodes) as plane:
            yield plane


def _plane_objects(home: PlaneHome, *, as_it_was: bool) -> StoredObjects:
    objects, ended_at = read_store(home.state / DATABASE_FILE), stopped_at(home)
    if ended_at is None:
        return objects
    ended_pods = ended_pod_uids(home.pods)
    objects = objects_with_run_end(objects, ended_pods, ended_at)
    return objects if as_it_was else closed_plane(objects, exit_records(home.pods), ended_pods, ended_at)


def stopped_at(home: PlaneHome) -> datetime | None:
    """When the plane of this folder was last alive; None if it has no store."""
    # A plane that ended in order changed the folder: it removed its write-ahead log. A killed one last wrote the log.
    database = home.state / DATABASE_FILE
    files = (home.state, database, home.state / f"{DATABASE_FILE}-wal")
    times = [file.stat().st_mtime for file in files if file.exists()] if database.exists() else []
    return datetime.fromtimestamp(max(times), UTC) if times else None


def crd_path(name: str) -> str:
    """The store path of a CRD."""
    return object_path("apiextensions.k8s.io", "customresourcedefinitions", "", name)


def read_store(file: Path) -> StoredObjects:
    """The objects in the store of a stopped plane; none if there is no such file. Raises `StoreFailed`."""
    if not file.exists():
        return {}
    try:
        if not file.with_name(f"{file.name}-wal").exists():
            # Closed in order and not opened since: nothing writes the file, so it is read without a lock.
            return _latest_objects(f"{file.absolute().as_uri()}?immutable=1", file.parent)
        # The plane was killed. Its last writes are in the write-ahead log, which only a writer can apply: use a copy.
        with tempfile.TemporaryDirectory(prefix="gangline-") as folder:
            for part in (file, file.with_name(f"{file.name}-wal")):
                shutil.copyfile(part, Path(folder, part.name))
            return _latest_objects(Path(folder, file.name).as_uri(), file.parent)
    except sqlite3.Error as error:
        raise StoreDamaged(file, str(error)) from error
    except OSError as error:
        raise StoreFailed(f"{file}: {error}") from error


def _latest_objects(uri: str, folder: Path) -> StoredObjects:
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        rows = connection.execute("SELECT path, data, deleted FROM changes ORDER BY revision")
        newest = {path: None if deleted else data for path, data, deleted in rows}
        meta = dict(connection.execute("SELECT name, value FROM meta"))
    if "reserve" in meta:
        # Deletions that did not fit on the disk are newer than what is in the database.
        reserve = DeletionReserve(folder)
        reserve.start(meta["cluster"], int(meta["reserve"]) + 1)
        newest |= {record.path: None if deleted else record.data for record, deleted in reserve.changes}
    return {path: msgspec.json.decode(data) for path, data in newest.items() if data is not None}


def merge_run(objects: StoredObjects, run: Mapping[str, JSON]) -> bool:
    """Add the objects of a run. Returns False and changes nothing if a newer job of the same name is there."""
    jobs = [path for path, body in run.items() if path in objects and run_end(body) is not None]
    if any(_creation_time(objects[path]) > _creation_time(run[path]) for path in jobs):
        return False
    for path in jobs:
        _remove_with_dependents(objects, _uid(objects[path]))
    objects.update(run)
    return True


def _remove_with_dependents(objects: StoredObjects, uid: str) -> None:
    """Remove an object, the objects it owns, and the events about any of them."""
    uids = {uid}
    uids |= {_uid(body) for body in objects.values() if _owner_uids(body) & uids}
    for path, body in list(objects.items()):
        regarding = (body.get("regarding") or body.get("involvedObject") or {}).get("uid")
        if _uid(body) in uids or regarding in uids:
            del objects[path]


def _owner_uids(body: JSON) -> set[str]:
    return {owner.get("uid", "") for owner in body["metadata"].get("ownerReferences") or ()}


def _uid(body: JSON) -> str:
    return str(body["metadata"].get("uid", ""))


def _creation_time(body: JSON) -> str:
    # Kubernetes' timestamps sort as text.
    return str(body["metadata"].get("creationTimestamp", ""))


def _pod_uids(run: ArchivedRun) -> list[str]:
    return [_uid(body) for path, body in run.objects.items() if split_path(path).plural == "pods"]


def _node_names(objects: Mapping[str, JSON]) -> set[str]:
    pods = (body for path, body in objects.items() if path.startswith("//pods/"))
    return {str((pod.get("spec") or {}).get("nodeName", "")) for pod in pods} - {""}


class ArchivedStreams:
    """The `PodStreams` of nodes that do not run any more: only logs can be read."""

    identifies_runs = True

    def __init__(self, readers: Mapping[str, NodeLogReader], default: NodeLogReader) -> None:
        """Readers by pod uid, and one for all other pods."""
        self._readers, self._default_reader = readers, default

    def logs(self, ref: ContainerRef, run: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        reader = self._readers.get(ref.uid, self._default_reader)
        return reader.read_run(ref.key, ref.uid, ref.container, run, options)

    async def attach(self, ref: ContainerRef, run: str) -> AsyncGenerator[tuple[bytes, bytes], None]:
        nothing: tuple[tuple[bytes, bytes], ...] = ()
        for line in nothing:
            yield line

    def attach_input(self, ref: ContainerRef, *, tty: bool) -> AbstractAsyncContextManager[AttachedContainer]:
        self._refuse(ref)

    def run_command(
        self, ref: ContainerRef, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> AbstractAsyncContextManager[RunningCommand]:
        self._refuse(ref)

    async def connect(self, ref: ContainerRef, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self._refuse(ref)

    async def connect_api(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))

    def _refuse(self, ref: ContainerRef) -> Never:
        raise ContainerNotRunning(f"{ref.key}: its run has ended")
