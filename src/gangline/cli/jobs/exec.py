"""`gangline exec`: run a command in a replica."""

import asyncio
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import click

from gangline.api.meta import JSON, Key
from gangline.base.errors import InputError
from gangline.cli.connect.run_work import run_async
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.exit_codes import NOT_FOUND
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.server_options import server_options
from gangline.cli.resources.lookup import find_job
from gangline.kube.client import Client
from gangline.kube.errors import StreamBroken
from gangline.summary.objects import PODS
from gangline.summary.replicas import container_name, list_replicas, replica_name, replica_selector

STDIN_CHUNK_BYTES = 32 * 1024


@cli_command("exec", context_settings={"ignore_unknown_options": True})
@click.argument("job", shell_complete=completed_by("jobs"))
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND [ARGS...]")
@click.option(
    "--replica",
    "chosen",
    default="",
    metavar="TYPE/INDEX",
    help="Replica to run the command in.  [default: the first that runs]",
)
@click.option(
    "-c",
    "--container",
    default="",
    metavar="NAME",
    help="Container to run the command in.  [default: the one that trains]",
)
@click.option("-i", "--stdin", is_flag=True, help="Pass standard input to the command.")
@click.option("-t", "--tty", is_flag=True, help="Give the command a terminal; with -i, for a shell.")
@server_options
def exec_(
    job: str, command: tuple[str, ...], chosen: str, container: str, stdin: bool, tty: bool, server: ServerOptions
) -> int:
    r"""Run a command inside a replica of a job.

    \b
      gangline exec linear -- nvidia-smi
      gangline exec linear --replica worker/1 -it -- bash    a shell in worker-1
      gangline exec pod/linear-ps-0 -- ls                    in a pod, given by its name

    Exit codes: that of the command; 102 no such job.
    """
    arguments = command[1:] if command[0] == "--" else command
    terminal = tty and stdin and sys.stdin.isatty()
    if tty and not terminal:
        click.echo("Unable to use a TTY - input is not a terminal", err=True)

    async def work(client: Client, target: ServerTarget) -> int:
        pod = await _find_pod(client, target, job, chosen)
        return await _run_command(
            client, pod, list(arguments), container_name(pod, container), stdin=stdin, tty=terminal
        )

    return run_async(server, work, missing=NOT_FOUND)


async def _find_pod(client: Client, target: ServerTarget, word: str, replica: str) -> JSON:
    kind, slash, name = word.rpartition("/")
    if slash and kind.lower() in ("pod", "pods", "po"):
        return await client.get(PODS, Key(target.object_namespace, name))
    server_job = await find_job(client, target.object_namespace, word)
    pods = await list_replicas(client, server_job, (replica_selector(replica),) if replica else ())
    running = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"]
    if not running:
        states = ", ".join(f"{replica_name(server_job, pod)} {(pod.get('status') or {}).get('phase')}" for pod in pods)
        raise InputError(f"{server_job.display_name} has no running replica" + (f": {states}" if states else ""))
    return running[0]


async def _run_command(client: Client, pod: JSON, command: list[str], container: str, *, stdin: bool, tty: bool) -> int:
    from gangline.kube.pods import PodSubresources
    from gangline.kube.streams import Channel

    key = Key(pod["metadata"]["namespace"], pod["metadata"]["name"])
    with _raw_terminal() if tty else nullcontext():
        async with PodSubresources(client).exec(key, command, container=container, stdin=stdin, tty=tty) as session:
            async with asyncio.TaskGroup() as group:
                stdin_task = group.create_task(_forward_stdin(session, tty=tty)) if stdin else None
                async for channel, data in session:
                    stream = sys.stdout if channel is Channel.STDOUT else sys.stderr
                    stream.buffer.write(data)
                    stream.flush()
                if stdin_task is not None:
                    stdin_task.cancel()
            return session.exit_code or 0


async def _forward_stdin(session: Any, *, tty: bool) -> None:
    """Send standard input to the session as it arrives. Not in a thread: one that waits for a key cannot be stopped."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        with suppress(StreamBroken):
            if tty:
                await session.resize(*shutil.get_terminal_size())
            while data := await reader.read(STDIN_CHUNK_BYTES):
                await session.write(data)
            await session.close_stdin()
    finally:
        transport.close()


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Put the terminal into raw mode, so that all keys, Ctrl-C too, reach the command; restore it afterwards."""
    import termios
    import tty

    attributes = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, attributes)
