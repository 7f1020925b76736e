"""What a program printed reaches the client, whatever else happens on the connection to its shim."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from gangline.kube.podstreams import ContainerNotRunning
from gangline.node.runtime.attach import AttachedRun, attach_run
from gangline.node.runtime.shim_attach import CLOSE_INPUT, INPUT, RESIZE, frame, split_frames

OUTPUT = frame(1, b"looked\n") + frame(2, b"warned\n")
PRINTED = [(1, b"looked\n"), (2, b"warned\n")]


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket of a shim."""
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(tmp_path / "shim"))
        opened.listen()
        yield opened


@asynccontextmanager
async def attached(listener: socket.socket) -> AsyncIterator[tuple[AttachedRun, socket.socket]]:
    """A client, and the shim's end of its connection."""
    async with attach_run(listener.getsockname()) as run:
        shim, _ = listener.accept()
        with shim:
            yield run, shim


async def outputs(run: AttachedRun) -> list[tuple[int, bytes]]:
    """All outputs, for a client that is slow to take them."""
    found = []
    async with aclosing(run.outputs()) as parts:
        async for part in parts:
            found.append(part)
            await asyncio.sleep(0.01)
    return found


async def test_output_of_a_program_that_ends_before_its_input_does_is_not_lost(listener: socket.socket) -> None:
    async with attached(listener) as (run, shim):
        # Nothing is awaited in between: the client sends the end of its input before it reads.
        shim.sendall(OUTPUT)
        shim.close()
        await run.close_input()
        assert await outputs(run) == PRINTED


async def test_output_of_a_program_that_leaves_its_input_unread_is_not_lost(listener: socket.socket) -> None:
    async with attached(listener) as (run, shim):
        await run.write(b"unread")
        shim.sendall(OUTPUT)
        shim.close()
        assert await outputs(run) == PRINTED


async def test_input_size_and_end_arrive_in_order(listener: socket.socket) -> None:
    much = bytes(1_000_000)
    async with attached(listener) as (run, shim):

        async def send() -> None:
            await run.write(much)
            await run.resize(132, 43)
            await run.close_input()

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            received = await asyncio.to_thread(read_until_end_of_input, shim)
    assert b"".join(data for kind, data in received if kind == INPUT) == much
    assert received[-2:] == [(RESIZE, bytes((0, 132, 0, 43))), (CLOSE_INPUT, b"")]


def read_until_end_of_input(shim: socket.socket) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    rest = b""
    while not found or found[-1][0] != CLOSE_INPUT:
        frames, rest = split_frames(rest + shim.recv(2**16))
        found += frames
    return found


async def test_container_that_has_ended_cannot_be_attached_to(tmp_path: Path) -> None:
    with pytest.raises(ContainerNotRunning, match="the container has ended: No such file or directory"):
        async with attach_run(str(tmp_path / "gone")):
            pass
