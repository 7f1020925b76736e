"""`gangline node`: this machine as a node of a server."""

import asyncio
import os
import socket
from pathlib import Path

import click

from gangline.cli.up import folder_option, home_folder


@click.command()
@folder_option
@click.option("--name", default="", help="Name of the node; by default the machine's.")
@click.option(
    "--capacity", multiple=True, metavar="NAME=AMOUNT", help="A resource to offer, such as nvidia.com/gpu=4."
)
@click.option(
    "--kubeconfig", metavar="FILE", help="Kubeconfig to use instead of KUBECONFIG and ~/.kube/config."
)
@click.option("--context", metavar="NAME", help="Context of the kubeconfig to use.")
def node(
    folder: Path | None, name: str, capacity: tuple[str, ...], kubeconfig: str | None, context: str | None
) -> int:
    """Run the pods that a server binds to this machine, as processes, until interrupted."""
    return asyncio.run(
        _run(home_folder(folder), name or socket.gethostname().lower(), capacity, kubeconfig, context)
    )


async def _run(
    folder: Path, name: str, capacity: tuple[str, ...], kubeconfig: str | None, context: str | None
) -> int:
    from gangline.base.clock import SystemClock
    from gangline.kube.client import Client
    from gangline.kube.config import load
    from gangline.kube.http import HttpTransport
    from gangline.local.home import Home
    from gangline.local.node.resources import parse_capacity
    from gangline.local.node.settings import NodeSettings
    from gangline.local.node.standalone import run_node

    settings = NodeSettings(name=name, capacity=parse_capacity(capacity))
    clock, home = SystemClock(), Home(folder)
    home.prepare()
    connection = load(kubeconfig=kubeconfig, context=context, environ=os.environ, home=Path.home())
    async with HttpTransport(connection) as transport:
        click.echo(f"node {name} of {connection.server}", err=True)
        await run_node(Client(transport, clock=clock), Path.cwd(), home.pods, settings, clock)
    return 0
