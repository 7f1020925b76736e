"""`gangline version`: ours, and the server's."""

import asyncio
import os
from pathlib import Path

import click

from gangline import __version__


@click.command()
@click.option("--client", is_flag=True, help="Only the version of gangline, no server.")
@click.option(
    "--kubeconfig", metavar="FILE", help="Kubeconfig to use instead of KUBECONFIG and ~/.kube/config."
)
@click.option("--context", metavar="NAME", help="Context of the kubeconfig to use.")
def version(client: bool, kubeconfig: str | None, context: str | None) -> None:
    """Print the versions of gangline and of the Kubernetes server it talks to."""
    click.echo(f"gangline {__version__}")
    if not client:
        click.echo(f"server   {asyncio.run(_server(kubeconfig, context))}")


async def _server(kubeconfig: str | None, context: str | None) -> str:
    # Imported here: `gangline version --client` needs none of it.
    import msgspec

    from gangline.kube.client import Client
    from gangline.kube.config import load
    from gangline.kube.http import HttpTransport
    from gangline.kube.transport import Request

    connection = load(kubeconfig=kubeconfig, context=context, environ=os.environ, home=Path.home())
    async with HttpTransport(connection) as transport:
        answer = await Client(transport).call(Request("GET", "/version"))
    return str(msgspec.json.decode(answer, type=dict[str, str]).get("gitVersion", "unknown"))
