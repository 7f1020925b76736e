"""`gangline exec`: a command in a replica."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from gangline.api.meta import JSON, Key
from gangline.base.errors import InputError
from gangline.cli.exit_codes import NOT_FOUND
from gangline.cli.flags.server_options import Place, ServerOptions, converse, server_options
from gangline.cli.flags.verb import completed_by, verb
from gangline.cli.resources.lookup import PODS, find_job
from gangline.cli.resources.replicas import container_of, member, replica, replicas
from gangline.kube.client import Client
from gangline.kube.errors import StreamBroken

CHUNK = 32 * 1024


@verb("exec", context_settings={"ignore_unknown_options": True})
@click.argument("job", shell_complete=completed_by("jobs"))
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARGS...]")
@click.option(
    "--replica", "chosen", default="", metavar="TYPE/INDEX", help="Which one; by default the first that runs."
)
@click.option(
    "-c", "--container", default="", metavar="NAME", help="Container; by default the one that trains."
)
@click.option("-i", "--stdin", is_flag=True, help="Pass standard input on.")
@click.option("-t", "--tty", is_flag=True, help="As on a terminal; needs -i and a terminal.")
@server_options
def exec_(
    job: str,
    command: tuple[str, ...],
    chosen: str,
    container: str,
    stdin: bool,
    tty: bool,
    server: ServerOptions,
) -> int:
    r"""Run a command in a replica of a job, or in a pod (pod/NAME).

    \b
      gangline exec linear -- nvidia-smi
      gangline exec linear --replica worker/1 -it -- bash
      gangline exec pod/linear-ps-0 -- ls

    The exit code is the command's; 102 no such job.
    """
    words = command[1:] if command[0] == "--" else command
    terminal = tty and stdin and sys.stdin.isatty()
    if tty and not terminal:
        click.echo("Unable to use a TTY - input is not a terminal", err=True)

    async def work(client: Client, place: Place) -> int:
        pod = await _pod(client, place, job, chosen)
        return await _talk(client, pod, list(words), container_of(pod, container), stdin=stdin, tty=terminal)

    return converse(server, work, missing=NOT_FOUND)


async def _pod(client: Client, place: Place, word: str, chosen: str) -> JSON:
    kind, slash, name = word.rpartition("/")
    if slash and kind.lower() in ("pod", "pods", "po"):
        return await client.get(PODS, Key(place.home, name))
    found = await find_job(client, place.home, word)
    pods = await replicas(client, found, (replica(chosen),) if chosen else ())
    running = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"]
    if not running:
        states = ", ".join(f"{member(found, pod)} {(pod.get('status') or {}).get('phase')}" for pod in pods)
        raise InputError(f"{found.shown} has no replica that runs" + (f": {states}" if states else ""))
    return running[0]


async def _talk(
    client: Client, pod: JSON, command: list[str], container: str, *, stdin: bool, tty: bool
) -> int:
    from gangline.kube.pods import Pods
    from gangline.kube.streams import Channel

    key = Key(pod["metadata"]["namespace"], pod["metadata"]["name"])
    with _raw() if tty else _plain():
        async with Pods(client).exec(key, command, container=container, stdin=stdin, tty=tty) as session:
            async with asyncio.TaskGroup() as group:
                feeding = group.create_task(_feed(session, tty=tty)) if stdin else None
                async for channel, data in session:
                    stream = sys.stdout if channel is Channel.STDOUT else sys.stderr
                    stream.buffer.write(data)
                    stream.flush()
                if feeding is not None:
                    feeding.cancel()
            return session.exit_code or 0


async def _feed(session: Any, *, tty: bool) -> None:
    """Standard input, as it comes. A reader of its own: a thread that waits for a key cannot be ended."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        with suppress(StreamBroken):
            if tty:
                width, height = _size()
                await session.resize(width, height)
            while data := await reader.read(CHUNK):
                await session.write(data)
            await session.close_stdin()
    finally:
        transport.close()


def _size() -> tuple[int, int]:
    import shutil

    return shutil.get_terminal_size()


@contextmanager
def _plain() -> Iterator[None]:
    yield


@contextmanager
def _raw() -> Iterator[None]:
    """Keys go to the command, Ctrl-C too."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
