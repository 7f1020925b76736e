"""`gangline node`: runs this machine as a node of a server."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import click

from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.node_options import NodeOptions, node_options
from gangline.cli.services.up import folder_option
from gangline.local.paths import home_folder


@cli_command()
@folder_option
@click.option("--name", default="", metavar="NAME", help="Name of the node.  [default: that of this machine]")
@node_options
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="Kubeconfig file that names the server.  [default: KUBECONFIG, or ~/.kube/config]",
)
@click.option("--context", metavar="NAME", help="Context of the kubeconfig to use.  [default: the current one]")
@click.option(
    "--client-ca-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Show logs only to clients with a certificate of this CA, as kube-apiserver has one.  [default: to all users of "
    "this machine]",
)
def node(
    folder: Path | None,
    name: str,
    kubeconfig: str | None,
    context: str | None,
    client_ca_file: Path | None,
    **options: Any,
) -> int:
    r"""Offer this machine to a server as a node, and run the pods that are placed on it, until interrupted.

    \b
      gangline node --kubeconfig plane.kubeconfig
      gangline node --context lab --name box-2 --capacity nvidia.com/gpu=2

    See docs/node.md.

    Exit codes: 0 interrupted; 1 an error.
    """
    node_name = name or socket.gethostname().lower()
    return asyncio.run(
        _run_node(home_folder(folder), node_name, NodeOptions(**options), kubeconfig, context, client_ca_file)
    )


async def _run_node(
    folder: Path,
    name: str,
    options: NodeOptions,
    kubeconfig: str | None,
    context: str | None,
    client_ca_file: Path | None,
) -> int:
    from gangline.base.clock import SystemClock
    from gangline.kube.client import Client
    from gangline.kube.config.connection import load_connection
    from gangline.kube.transport.http import HttpTransport
    from gangline.local.home import PlaneHome
    from gangline.node.options import node_settings
    from gangline.node.standalone import run_node

    settings = node_settings(name=name, **options._asdict())
    clock, home = SystemClock(), PlaneHome(folder)
    home.create_folder()
    connection = load_connection(kubeconfig=kubeconfig, context=context, environ=os.environ, home=Path.home())
    async with HttpTransport(connection) as transport:
        click.echo(f"node {name} of {connection.server}", err=True)
        await run_node(Client(transport, clock=clock), Path.cwd(), home.pods, settings, clock, client_ca_file)
    return 0
