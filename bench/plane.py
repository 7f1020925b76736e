"""Our API server and its store, nothing else, as a process: what kube-apiserver and etcd are on the other side."""

import asyncio
import signal
import sys
from pathlib import Path

from gangline.apiserver.store.sqlite import Durability, SqliteJournal
from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.local.plane import PlaneSettings, control_plane


async def serve(folder: Path, port: int, token: str) -> None:
    """Until SIGTERM, with TLS, and every answered write on the disk."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = PlaneSettings(port=port, certificates=folder / "certificates", token=token)
    journal = SqliteJournal(folder / "state", Durability.FULL)
    async with Store(journal) as store, control_plane(store, settings, SystemClock()):
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
