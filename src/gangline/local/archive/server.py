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
from gangline.apiserver.store.records import Write
from gangline.apiserver.store.sqlite import FILE
from gangline.apiserver.store.store import Store
from gangline.base.clock import Clock
from gangline.kube.podstreams import Command, LogOptions, NotRunning, Place, PodStreams
from gangline.local.archive.runs import Bygone, bygone, exits, over
from gangline.local.archive.snapshot import Objects, closed, closed_plane, ended, halted
from gangline.local.home import Home
from gangline.local.plane import Plane, PlaneSettings, api_plane
from gangline.node.logs import LogReader


@asynccontextmanager
async def reading_plane(
    home: Home, definitions: Iterable[JSON], clock: Clock, *, as_it_was: bool = False
) -> AsyncIterator[Plane]:
    """A server with all that was left, until the block ends. Nothing acts on it, and nothing is written to disk.

    `definitions` are CRDs; those of a stopped plane go before them. All is shown closed; `as_it_was` shows it as in its
    last moment, when jobs and pods may still have run. Raises `StoreFailed` when the plane's store is damaged.
    """
    objects = _of_plane(home, as_it_was=as_it_was)
    readers: dict[str, LogReader] = {}
    for run in bygone(home.runs):
        if not laid_over(objects, run.objects if as_it_was else closed(run.objects, run.exits())):
            continue
        reader = LogReader(run.folder, clock)
        readers |= dict.fromkeys(_uids(run), reader)
    for crd in definitions:
        objects.setdefault(definition_path(crd["metadata"]["name"]), crd)
    streams = Leftovers(readers, LogReader(home.pods, clock))
    nodes: dict[str, PodStreams] = dict.fromkeys(_nodes(objects), streams)
    async with Store() as store:
        await store.commit(*(Write(path, body, 0) for path, body in sorted(objects.items())))
        async with api_plane(store, PlaneSettings(acts=False), clock, nodes) as plane:
            yield plane


def _of_plane(home: Home, *, as_it_was: bool) -> Objects:
    found, at = stored(home.state / FILE), stopped_at(home)
    if at is None:
        return found
    gone = over(home.pods)
    found = halted(found, gone, at)
    return found if as_it_was else closed_plane(found, exits(home.pods), gone, at)


def stopped_at(home: Home) -> datetime | None:
    """When the plane that left a store here was last alive; None where there is no store."""
    # One that ended in order removed its log then, from the folder; one that was killed wrote to it.
    there = (home.state, home.state / FILE, home.state / f"{FILE}-wal")
    times = [file.stat().st_mtime for file in there if file.exists()] if there[1].exists() else []
    return datetime.fromtimestamp(max(times), UTC) if times else None


def definition_path(name: str) -> str:
    """Where a store keeps a CRD."""
    return object_path("apiextensions.k8s.io", "customresourcedefinitions", "", name)


def stored(file: Path) -> Objects:
    """The objects in the store of a stopped plane; none where there is no such file. Raises `StoreFailed`."""
    if not file.exists():
        return {}
    try:
        if not file.with_name(f"{file.name}-wal").exists():
            # Closed in order, and not opened since: as a file that nobody writes, it is not even locked.
            return _newest(f"{file.absolute().as_uri()}?immutable=1")
        # Its plane was killed. What it wrote last is in the log, and only a writer may bring that home: here, a copy.
        with tempfile.TemporaryDirectory(prefix="gangline-") as folder:
            for each in (file, file.with_name(f"{file.name}-wal")):
                shutil.copyfile(each, Path(folder, each.name))
            return _newest(Path(folder, file.name).as_uri())
    except (sqlite3.Error, OSError) as error:
        raise StoreFailed(f"{file}: {error}") from error


def _newest(uri: str) -> Objects:
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        rows = connection.execute("SELECT path, data, deleted FROM changes ORDER BY revision")
        newest = {path: None if deleted else data for path, data, deleted in rows}
    return {path: msgspec.json.decode(data) for path, data in newest.items() if data is not None}


def laid_over(objects: Objects, run: Mapping[str, JSON]) -> bool:
    """Add a run to what is there. False, and nothing is changed, where a job of the same name there is newer."""
    jobs = [path for path, body in run.items() if path in objects and ended(body) is not None]
    if any(_made(objects[path]) > _made(run[path]) for path in jobs):
        return False
    for path in jobs:
        _remove(objects, _uid(objects[path]))
    objects.update(run)
    return True


def _remove(objects: Objects, uid: str) -> None:
    """An object, what it owns, and what was said about any of it."""
    gone = {uid}
    gone |= {_uid(body) for body in objects.values() if _owners(body) & gone}
    for path, body in list(objects.items()):
        about = (body.get("regarding") or body.get("involvedObject") or {}).get("uid")
        if _uid(body) in gone or about in gone:
            del objects[path]


def _owners(body: JSON) -> set[str]:
    return {owner.get("uid", "") for owner in body["metadata"].get("ownerReferences") or ()}


def _uid(body: JSON) -> str:
    return str(body["metadata"].get("uid", ""))


def _made(body: JSON) -> str:
    # As Kubernetes writes it, a time sorts as text.
    return str(body["metadata"].get("creationTimestamp", ""))


def _uids(run: Bygone) -> list[str]:
    return [_uid(body) for path, body in run.objects.items() if split_path(path).plural == "pods"]


def _nodes(objects: Mapping[str, JSON]) -> set[str]:
    pods = (body for path, body in objects.items() if path.startswith("//pods/"))
    return {str((pod.get("spec") or {}).get("nodeName", "")) for pod in pods} - {""}


class Leftovers:
    """`PodStreams` of nodes that are no more: logs are read from where they were left, and nothing runs."""

    def __init__(self, readers: Mapping[str, LogReader], rest: LogReader) -> None:
        """Readers by the uid of a pod, and one for all other pods."""
        self._readers, self._rest = readers, rest

    def logs(self, place: Place, run: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        reader = self._readers.get(place.uid, self._rest)
        return reader.read_run(place.key, place.uid, place.container, run, options)

    async def attached(self, place: Place, run: str) -> AsyncGenerator[tuple[bytes, bytes], None]:
        said: tuple[tuple[bytes, bytes], ...] = ()
        for each in said:
            yield each

    def executing(
        self, place: Place, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> AbstractAsyncContextManager[Command]:
        self._refuse(place)

    async def connected(self, place: Place, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self._refuse(place)

    def _refuse(self, place: Place) -> Never:
        raise NotRunning(f"{place.key}: its run has ended")
