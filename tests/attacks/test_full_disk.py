"""The disk of a running plane fills up: what is refused, what still works, and what is left when there is space again.

The disk is a tmpfs of a few megabytes in a mount namespace of the plane. The test reaches it through /proc.
"""

import asyncio
import errno
import json
import os
import platform
import re
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gangline.apiserver.store import sqlite
from gangline.apiserver.store.errors import DiskFull, StoreFailed
from gangline.apiserver.store.records import StoreEvent, StoreRecord
from gangline.apiserver.store.sqlite import DATABASE_FILE, SqliteJournal
from gangline.local.archive.server import read_store
from support.servers.plane import PlaneAnswer, PlaneClient
from support.waiting import wait_until

pytestmark = pytest.mark.faults

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
DISK_BYTES = 48 * 2**20
MOUNT = "mount -t tmpfs -o size={size} tmpfs {disk}"


def missing_namespaces() -> str:
    """Why no mount namespace can be made here; empty if one can."""
    if platform.system() != "Linux":
        return "mount namespaces are Linux's"
    command = ["unshare", "-rm", "sh", "-c", MOUNT.format(size=2**20, disk="/mnt")]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"unshare: {error.strerror}"
    return result.stderr.strip()


NO_NAMESPACES = missing_namespaces()
needs_namespaces = pytest.mark.skipif(bool(NO_NAMESPACES), reason=f"no small disk can be mounted: {NO_NAMESPACES}")


class SmallDisk:
    """The disk of a plane, seen from outside of its mount namespace."""

    def __init__(self, pid: int, folder: Path) -> None:
        self.root = Path(f"/proc/{pid}/root{folder}")
        self._filler = self.root / "filler"

    def fill(self) -> None:
        """Leave not one free byte."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (2**20, 2**12, 1):
                with suppress(OSError):
                    while file.write(bytes(size)):
                        pass

    def free(self) -> None:
        self._filler.unlink()


class SmallPlane:
    """A `gangline up` on a small disk."""

    def __init__(self, process: asyncio.subprocess.Process, disk: SmallDisk, client: PlaneClient, log: Path) -> None:
        self.process, self.disk, self.client, self._log_file = process, disk, client, log

    @property
    def log(self) -> str:
        return self._log_file.read_text()

    async def create(self, name: str, **metadata: Any) -> PlaneAnswer:
        return await self.client.call("POST", CONFIG_MAPS, {"metadata": {"name": name, **metadata}, "data": {"k": "v"}})

    async def names(self) -> set[str]:
        items = (await self.client.call("GET", CONFIG_MAPS)).body["items"]
        return {item["metadata"]["name"] for item in items} - {"kube-root-ca.crt"}

    async def is_ready(self) -> bool:
        return (await self.client.call("GET", "/readyz")).status == 200


@asynccontextmanager
async def plane_on(folder: Path, mount: str, log: Path) -> AsyncIterator[SmallPlane]:
    home = folder / "home"
    command = f"{mount}cd {folder} && exec {sys.executable} -m gangline up --dir {home}"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *("unshare", "-rm") * bool(mount), "sh", "-c", command, stdout=output, stderr=output
        )
    try:
        found = await wait_until(lambda: re.search(r"ready: (\S+)", log.read_text()) or process.returncode)
        assert isinstance(found, re.Match), f"exit code {found}"
        disk = SmallDisk(process.pid, folder)
        headers = {"Authorization": f"Bearer {(disk.root / 'home' / 'token').read_text()}"}
        tls = ssl.create_default_context(cadata=(disk.root / "home" / "certificates" / "ca.crt").read_text())
        connector = aiohttp.TCPConnector(ssl=tls)
        async with aiohttp.ClientSession(found[1], headers=headers, connector=connector) as session:
            yield SmallPlane(process, disk, PlaneClient(found[1], session), log)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()


@asynccontextmanager
async def small_plane(tmp_path: Path) -> AsyncIterator[SmallPlane]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = MOUNT.format(size=DISK_BYTES, disk=disk) + " && "
    async with plane_on(disk, mount, tmp_path / "log") as plane:
        await wait_until((plane.disk.root / "home" / "state" / "reserve").exists)
        yield plane


@needs_namespaces
@pytest.mark.slow
async def test_full_disk_refuses_writes_and_accepts_deletions_until_there_is_space(tmp_path: Path) -> None:
    async with small_plane(tmp_path) as plane:
        for name in ("kept", "deleted", *map(str, range(20))):
            assert (await plane.create(name)).status == 201
        assert (await plane.create("held", finalizers=["example.com/hold"])).status == 201
        assert await plane.is_ready()
        plane.disk.fill()

        refused = [await plane.create(f"refused-{number}") for number in range(20)]
        assert {answer.status for answer in refused[1:]} == {507}, "the first may fit into what the log has left"
        status = refused[-1].body
        assert (status["kind"], status["reason"], status["code"]) == ("Status", "InsufficientStorage", 507)
        assert "disk of the control plane is full" in status["message"]
        for path in ("/readyz", "/readyz?verbose", "/healthz", "/readyz/etcd"):
            answer = await plane.client.call("GET", path)
            assert (answer.status, "disk of the control plane is full" in answer.body) == (500, True), path
        assert (await plane.client.call("GET", "/livez")).status == 200
        assert (await plane.client.call("GET", f"{CONFIG_MAPS}/kept")).status == 200

        for name in ("deleted", *map(str, range(20))):
            assert (await plane.client.call("DELETE", f"{CONFIG_MAPS}/{name}")).status == 200
        assert (await plane.client.call("DELETE", f"{CONFIG_MAPS}/held")).body["metadata"]["deletionTimestamp"]
        free = {"metadata": {"finalizers": None}}
        held = f"{CONFIG_MAPS}/held"
        patched = await plane.client.call("PATCH", held, free, media="application/merge-patch+json")
        assert patched.status == 200
        assert (await plane.client.call("GET", held)).status == 404
        kept = await plane.names()
        assert kept - {"refused-0"} == {"kept"}

        plane.disk.free()
        await wait_until(plane.is_ready)
        assert (await plane.create("after")).status == 201
        assert plane.log.count("the disk is full") == 1
        assert plane.log.count("the store can write again") == 1
        assert "Traceback" not in plane.log


@needs_namespaces
@pytest.mark.slow
async def test_deletions_on_a_full_disk_survive_a_kill(tmp_path: Path) -> None:
    async with small_plane(tmp_path) as plane:
        for number in range(30):
            assert (await plane.create(f"{number}", annotations={"text": "x" * 20_000})).status == 201
        plane.disk.fill()
        for number in range(25):
            assert (await plane.client.call("DELETE", f"{CONFIG_MAPS}/{number}")).status == 200
        left = await plane.names()
        assert left == {str(number) for number in range(25, 30)}
        copy = tmp_path / "copy"
        plane.process.send_signal(signal.SIGSTOP)
        # The files of a process that will write no more are what its kill leaves.
        await asyncio.to_thread(shutil.copytree, plane.disk.root / "home", copy)
        plane.process.kill()
        await plane.process.wait()
    archived = read_store(copy / "state" / DATABASE_FILE)
    assert {path.rpartition("/")[2] for path in archived if path.startswith("//configmaps/default/")} == {
        *left,
        "kube-root-ca.crt",
    }
    journal = SqliteJournal(copy / "state")
    try:
        contents = journal.open()
        journal.check()
    finally:
        journal.close()
    current: dict[str, bool] = {}
    for record, deleted in contents.changes:
        current[record.path] = not deleted
    paths = {path for path, exists in current.items() if exists and path.startswith("//configmaps/default/")}
    assert {path.rpartition("/")[2] for path in paths} - {"kube-root-ca.crt"} == left
    reopened = SqliteJournal(copy / "state")
    try:
        assert reopened.open().changes == contents.changes, "moved from the reserve to the database"
    finally:
        reopened.close()


@needs_namespaces
@pytest.mark.slow
async def test_program_that_fills_the_disk_cannot_stop_its_own_deletion(tmp_path: Path) -> None:
    """The pod takes every byte that becomes free: the reserve must not be given back to the disk to be used."""
    async with small_plane(tmp_path) as plane:
        script = "while :; do cat /dev/zero >> hog 2>/dev/null; done"
        container = {"name": "c", "image": "none", "command": ["sh", "-c", f"cd {tmp_path / 'disk'}; {script}"]}
        pod = {"metadata": {"name": "hog"}, "spec": {"containers": [container]}}
        pods = "/api/v1/namespaces/default/pods"
        assert (await plane.client.call("POST", pods, pod)).status == 201

        async def is_unready() -> bool:
            return not await plane.is_ready()

        await wait_until(is_unready)
        assert (await plane.create("refused")).status == 507
        assert (await plane.client.call("DELETE", f"{pods}/hog")).status == 200
        await plane.client.poll_status(f"{pods}/hog", 404)
        assert (plane.disk.root / "hog").stat().st_size > 2**20
        (plane.disk.root / "hog").unlink()
        await wait_until(plane.is_ready)
        assert (await plane.create("after")).status == 201


@needs_namespaces
@pytest.mark.slow
async def test_edits_of_a_terminating_object_do_not_use_up_the_reserve(tmp_path: Path) -> None:
    """A finalizer keeps the object; every edit of it is a write that a full disk would refuse of another object."""
    held, merge = f"{CONFIG_MAPS}/held", "application/merge-patch+json"
    async with small_plane(tmp_path) as plane:
        for number in range(30):
            assert (await plane.create(f"{number}", annotations={"text": "x" * 20_000})).status == 201
        assert (await plane.create("held", finalizers=["example.com/hold", "example.com/too"])).status == 201
        assert (await plane.client.call("DELETE", held)).status == 200
        plane.disk.fill()

        async def edit(number: int, **metadata: Any) -> int:
            body = {"metadata": metadata, "data": {"k": str(number) * 900_000}}
            return (await plane.client.call("PATCH", held, body, media=merge)).status

        edits = [await edit(number) for number in range(8)]
        assert edits[-1] == 507
        grown = await edit(9, finalizers=["example.com/hold"])
        assert grown == 200, "it does not grow any more, and loses a finalizer"
        for number in range(30):
            assert (await plane.client.call("DELETE", f"{CONFIG_MAPS}/{number}")).status == 200
        assert await plane.names() == {"held"}
        plane.disk.free()
        await wait_until(plane.is_ready)
        assert "Traceback" not in plane.log


def test_start_on_a_full_disk_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = SqliteJournal(tmp_path)
    journal.open()
    journal.close()

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    again = SqliteJournal(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(sqlite, "write_marker", fail)
        with pytest.raises(StoreFailed) as caught:
            again.open()
        again.close()
    assert str(caught.value) == f"{tmp_path}: the disk is full; free some space, then try again"
    last = SqliteJournal(tmp_path)
    last.open()
    last.close()


@needs_namespaces
@pytest.mark.slow
async def test_controllers_outlive_a_full_disk_and_catch_up(tmp_path: Path) -> None:
    """A controller whose write is refused tries again: the default objects of a namespace come back."""
    defaults = (f"{CONFIG_MAPS}/kube-root-ca.crt", "/api/v1/namespaces/default/serviceaccounts/default")
    async with small_plane(tmp_path) as plane:
        assert (await plane.client.call("POST", "/api/v1/namespaces", {"metadata": {"name": "gone"}})).status == 201
        owner = (await plane.create("owner")).body["metadata"]
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
        assert (await plane.create("dependent", ownerReferences=[reference])).status == 201
        plane.disk.fill()

        async def is_unready() -> bool:
            return not await plane.is_ready()

        await wait_until(is_unready)
        for path in (*defaults, f"{CONFIG_MAPS}/owner", "/api/v1/namespaces/gone"):
            assert (await plane.client.call("DELETE", path)).status == 200
        await plane.client.poll_status(f"{CONFIG_MAPS}/dependent", 404)
        await plane.client.poll_status("/api/v1/namespaces/gone", 404)
        assert [(await plane.client.call("GET", path)).status for path in defaults] == [404, 404]
        assert plane.process.returncode is None
        plane.disk.free()
        for path in defaults:
            await plane.client.poll_status(path, 200)
        assert "Traceback" not in plane.log


def test_reserve_that_is_used_up_refuses_deletions_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without namespaces: the database refuses by an injected error, the files are real."""
    journal = SqliteJournal(tmp_path)
    journal.open()
    try:
        journal.write([change(2), change(3)], None)
        journal.check()

        def refuse(events: Sequence[StoreEvent], compaction: object) -> None:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

        with monkeypatch.context() as patch:
            patch.setattr(journal, "_write_database", refuse)
            with pytest.raises(DiskFull):
                journal.write([change(4)], None)
            for number in range(5, 9):
                journal.write([change(number, deleted=True, size=2**20 - 100)], None, may_use_reserve=True)
            with pytest.raises(DiskFull, match="the reserve for deletions is used up"):
                journal.write([change(9, deleted=True, size=1000)], None, may_use_reserve=True)
        journal.check()
        journal.write([change(10)], None)
    finally:
        journal.close()
    again = SqliteJournal(tmp_path)
    try:
        assert [record.revision for record, _ in again.open().changes] == [2, 3, 5, 6, 7, 8, 10]
    finally:
        again.close()


def change(revision: int, *, deleted: bool = False, size: int = 10) -> StoreEvent:
    return StoreEvent(StoreRecord(f"/{revision}", revision, json.dumps("x" * size).encode()), None, deleted)


@pytest.mark.parametrize("victim", [DATABASE_FILE, f"{DATABASE_FILE}-wal", ""])
def test_removed_files_are_noticed_before_a_write_is_acknowledged(
    tmp_path: Path, victim: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "LOOK_SECONDS", 0)
    folder = tmp_path / "state"
    journal = SqliteJournal(folder)
    journal.open()
    try:
        journal.write([change(2)], None)
        if victim:
            (folder / victim).unlink()
        else:
            folder.rename(tmp_path / "elsewhere")
        with pytest.raises(StoreFailed, match="removed or replaced while the plane runs"):
            journal.write([change(3)], None)
        with pytest.raises(StoreFailed, match="removed or replaced while the plane runs"):
            journal.check()
    finally:
        journal.close()


def test_disk_that_becomes_read_only_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a kernel that meets an error remounts a disk with open files, so its answer is injected."""
    journal = SqliteJournal(tmp_path)
    journal.open()
    try:
        journal.check()
        answer = [*os.statvfs(tmp_path)]
        answer[8] |= os.ST_RDONLY
        with monkeypatch.context() as patch:
            patch.setattr(os, "statvfs", lambda _: os.statvfs_result(answer))
            with pytest.raises(StoreFailed, match="Read-only file system"):
                journal.check()
        journal.check()
    finally:
        journal.close()
