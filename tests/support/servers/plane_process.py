"""A control plane without a node in a process of its own: `python -m support.servers.plane_process FOLDER PORT`. It prints its URL."""

import asyncio
import signal
import sys
from pathlib import Path

from gangline.apiserver.store.sqlite import SqliteJournal
from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.local.plane import PlaneSettings, control_plane

TOKEN = "fuzz"


async def serve(folder: Path, port: int) -> None:
    """Serve until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = PlaneSettings(port=port, token=TOKEN)
    async with Store(SqliteJournal(folder)) as store, control_plane(store, settings, SystemClock()) as plane:
        print(plane.url, flush=True)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
