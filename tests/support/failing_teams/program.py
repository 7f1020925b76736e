"""The program of one rank of a failing team. Run as `program.py FOLDER RANK`; the folder has the team's plan.

All ranks meet, then one of them fails. Its peers notice that, wait a moment, and fail in words of their own.
"""

import contextlib
import json
import os
import pathlib
import socket
import sys
import time
from typing import Any

TICK = 0.002
MEGABYTE = 1 << 20


class Gone(Exception):
    pass


ERRORS = {
    "ValueError": ValueError,
    "KeyError": KeyError,
    "RuntimeError": RuntimeError,
    "EOFError": EOFError,
    "ConnectionResetError": ConnectionResetError,
    "Gone": Gone,
}


def meet(plan: dict[str, Any], folder: pathlib.Path, rank: int) -> list[socket.socket]:
    """Connect every rank with the one that fails first. Returns the connections of this rank."""
    # A short path: that of a socket may have 107 bytes only.
    os.chdir(folder)
    if rank == plan["cause"]:
        server = socket.socket(socket.AF_UNIX)
        server.bind("socket")
        server.listen(plan["size"])
        pathlib.Path("listening").touch()
        connections = [server.accept()[0] for _ in range(plan["size"] - 1)]
        for connection in connections:
            connection.sendall(b"g")
        return connections
    while not pathlib.Path("listening").exists():
        time.sleep(TICK)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect("socket")
    connection.recv(1)
    return [connection]


def wait_for_failure(plan: dict[str, Any], connection: socket.socket) -> None:
    """Wait until the first rank has failed: its connection ends, or it says that it is about to fail."""
    if plan["notice"] == "flag":
        while not pathlib.Path("failed").exists():
            time.sleep(TICK)
        return
    with contextlib.suppress(OSError):
        connection.recv(1)


def fail(how: dict[str, Any]) -> None:
    """End in that way."""
    if how["words"] and how["how"] != "exception":
        print(how["words"], file=sys.stderr, flush=True)
    match how["how"]:
        case "exception":
            raise ERRORS[how["type"]](how["words"])
        case "exit":
            sys.exit(how["code"])
        case "os._exit":
            os._exit(how["code"])
        case "signal":
            os.kill(os.getpid(), how["code"])
        case "oom":
            hoard = bytearray()
            while True:
                hoard += b"x" * (16 * MEGABYTE)


def main() -> None:
    folder, rank = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    plan = json.loads((folder / "plan.json").read_text())
    connections = meet(plan, folder, rank)
    for step in range(plan["steps"]):
        print(f"step {step} of rank {rank}", flush=True)
    how = plan["ranks"][rank]
    if rank == plan["cause"]:
        if plan["notice"] == "flag":
            pathlib.Path("failed").touch()
    else:
        wait_for_failure(plan, connections[0])
        time.sleep(how["delay"])
    fail(how)


if __name__ == "__main__":
    main()
