"""`gangline up --backup`, `gangline backup` and `gangline restore` on a real plane, while writes go on.

`GANGLINE_BACKUP_SECONDS=60` makes it long; `-s` shows the figures.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml

from gangline.apiserver.store.backup import read_backup
from gangline.kube.config.connection import load_connection
from gangline.kube.config.tls import ssl_context
from support.servers.plane import PlaneClient

pytestmark = pytest.mark.faults

SECONDS = float(os.environ.get("GANGLINE_BACKUP_SECONDS", "3"))
RATE = 200
"""Writes per second."""
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def gangline(*arguments: object, code: int = 0) -> str:
    command = [sys.executable, "-m", "gangline", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == code, result.stderr
    return result.stderr


@asynccontextmanager
async def running_plane(home: Path, *options: object) -> AsyncIterator[PlaneClient]:
    """A plane in the background, until the block ends."""
    await asyncio.to_thread(gangline, "up", "--detach", "--dir", home, *options)
    try:
        connection = load_connection(kubeconfig=str(home / "kubeconfig"), environ={}, home=home)
        token = yaml.safe_load((home / "kubeconfig").read_text())["users"][0]["user"]["token"]
        assert connection.tls is not None
        connector = aiohttp.TCPConnector(ssl=ssl_context(connection.tls))
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(connection.server, headers=headers, connector=connector) as session:
            yield PlaneClient(connection.server, session)
    finally:
        await asyncio.to_thread(gangline, "down", "--dir", home)


class PacedWriter:
    """Creates ConfigMaps at a steady rate, and remembers the revision of each acknowledged one."""

    def __init__(self, client: PlaneClient) -> None:
        self._client = client
        self.revisions: dict[str, int] = {}
        self.acknowledged_at: list[float] = []

    async def run(self) -> None:
        start = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(sys.maxsize):
                await asyncio.sleep(max(0.0, start + number / RATE - time.monotonic()))
                group.create_task(self._write(f"w-{number}"))

    async def _write(self, name: str) -> None:
        body = {"metadata": {"name": name}, "data": {"text": name * 100}}
        answer = await self._client.call("POST", CONFIG_MAPS, body)
        assert answer.status == 201, answer
        self.revisions[name] = int(answer.body["metadata"]["resourceVersion"])
        self.acknowledged_at.append(time.monotonic())

    def rate(self, start: float, end: float) -> float:
        return sum(start <= moment < end for moment in self.acknowledged_at) / (end - start)


@pytest.mark.slow
@pytest.mark.timeout(240 + 4 * SECONDS)
async def test_backup_and_restore_while_200_writes_a_second_go_on(tmp_path: Path) -> None:
    home, file, folder = tmp_path / "home", tmp_path / "plane.backup", tmp_path / "backups"
    async with running_plane(home, "--backup", folder, "--backup-every", "1s", "--backup-keep", 3) as client:
        writer = PacedWriter(client)
        writing = asyncio.create_task(writer.run())
        began = time.monotonic()
        await asyncio.sleep(SECONDS / 2)  # the load whose figures are printed
        before, started = dict(writer.revisions), time.monotonic()
        message = await asyncio.to_thread(gangline, "backup", file, "--dir", home)
        ended = time.monotonic()
        assert "a plane is running" in await asyncio.to_thread(gangline, "restore", file, "--dir", home, code=1)
        await asyncio.sleep(SECONDS / 2)
        assert not writing.done(), "a write was refused"
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    contents = await asyncio.to_thread(read_backup, file)
    print(
        f"\nwrites per second: {writer.rate(began, started):.0f} before the backup, {writer.rate(started, ended):.0f} "
        f"during it; {ended - started:.2f} s for {message.split(': ')[1].strip()}, {file.stat().st_size} bytes"
    )
    expected = {name for name, revision in writer.revisions.items() if revision <= contents.revision}
    stored = {record.path.rpartition("/")[2] for record, _ in contents.changes if "/w-" in record.path}
    assert set(before) <= expected <= stored, "all that was acknowledged before the backup, and all of one moment"
    assert contents.revision <= max(writer.revisions.values()) + len(stored)

    kept = sorted(folder.iterdir())
    assert len(kept) == 3
    last = await asyncio.to_thread(read_backup, kept[-1])
    names = {record.path.rpartition("/")[2] for record, _ in last.changes}
    assert set(writer.revisions) <= names, "the backup at the end has every acknowledged write"

    restored = await asyncio.to_thread(gangline, "restore", file, "--dir", home)
    assert restored.startswith("restored ")
    async with running_plane(home) as client:
        items = (await client.call("GET", CONFIG_MAPS)).body["items"]
        assert {item["metadata"]["name"] for item in items if item["metadata"]["name"].startswith("w-")} == stored
        by_name = {item["metadata"]["name"]: int(item["metadata"]["resourceVersion"]) for item in items}
        assert all(by_name[name] == writer.revisions[name] for name in expected)
        after = await client.call("POST", CONFIG_MAPS, {"metadata": {"name": "after"}})
        assert int(after.body["metadata"]["resourceVersion"]) > max(writer.revisions.values())
        too_old = await client.call("GET", CONFIG_MAPS, watch="1", resourceVersion=str(contents.revision))
        assert '"code":410' in str(too_old.body).replace(" ", "").replace("'", '"')


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_commands_of_the_documentation_work(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "local.md").read_text()
    block = text.partition("## Backup and restore")[2].split("```")[1].removeprefix("bash\n")
    assert block.count("gangline ") == 5
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "GANGLINE_HOME": str(tmp_path / "home")}
    script = f"set -e\n{block}\ngangline down\n"
    result = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    try:
        assert result.returncode == 0, result.stderr
        assert "restored " in result.stderr
        assert len(list((tmp_path / "backups").iterdir())) >= 1
        replaced = [path for path in (tmp_path / "home").iterdir() if path.name.startswith("state.replaced-")]
        assert len(replaced) == 1
    finally:
        gangline("down", "--dir", tmp_path / "home")
