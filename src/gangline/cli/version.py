"""`gangline version`: ours, and the server's."""

import click

from gangline import __version__
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.server_options import (
    ServerOptions,
    ServerTarget,
    find_server,
    print_error,
    server_options,
)
from gangline.kube.client import Client


@cli_command()
@click.option("--client", "alone", is_flag=True, help="Only the version of gangline, no server.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="For programs.")
@server_options
def version(alone: bool, output: str | None, server: ServerOptions) -> int:
    r"""Print the versions of gangline and of the Kubernetes server it talks to, if there is one.

    \b
      gangline version
      gangline version --client
      gangline version --context prod -o json

    Exit codes: 0; 1 a server that was asked for does not answer.
    """
    found = {"gangline": __version__}
    code = 0 if alone else _query_server(server, found)
    if output == "json":
        from gangline.cli.output.formats import as_json

        click.echo(as_json(found), nl=False)
    else:
        for name, text in found.items():
            click.echo(f"{name:<8} {text}")
    return code


def _query_server(server: ServerOptions, found: dict[str, str]) -> int:
    """Write the server's version down. Where there is no server at all, that is no error."""
    from gangline.cli.connect.server import NoServer, run_blocking_at
    from gangline.kube.errors import ConfigError

    try:
        place = find_server(server)
    except NoServer:
        return _report_no_server()
    except ConfigError as error:
        return print_error(error)
    if place.archive is not None:
        return _report_no_server()

    async def work(client: Client, place: ServerTarget) -> int:
        import msgspec

        from gangline.kube.transport.api import Request

        answer = await client.requests.call(Request("GET", "/version"))
        found["server"] = str(msgspec.json.decode(answer, type=dict[str, str]).get("gitVersion", "unknown"))
        return 0

    return run_blocking_at(place, server, work)


def _report_no_server() -> int:
    click.echo("no server is running", err=True)
    return 0
