"""`gangline version`: the versions of gangline and of the server."""

import click

from gangline import __version__
from gangline.cli.connect.server import ServerOptions, ServerTarget, find_server
from gangline.cli.errors import print_error
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.server_options import server_options
from gangline.kube.client import Client


@cli_command()
@click.option("--client", "alone", is_flag=True, help="Print only the version of gangline; ask no server.")
@click.option("-o", "--output", type=click.Choice(["json"]), help="json: for programs.")
@server_options
def version(alone: bool, output: str | None, server: ServerOptions) -> int:
    r"""Print the versions of gangline and of the Kubernetes server it talks to, if there is one.

    \b
      gangline version
      gangline version --client              without asking a server
      gangline version --context prod -o json

    Exit codes: 0 printed; 1 the configured server does not answer.
    """
    versions = {"gangline": __version__}
    code = 0 if alone else _query_server(server, versions)
    if output == "json":
        from gangline.cli.output.formats import as_json

        click.echo(as_json(versions), nl=False)
    else:
        for name, text in versions.items():
            click.echo(f"{name:<8} {text}")
    return code


def _query_server(server: ServerOptions, versions: dict[str, str]) -> int:
    """Add the server's version to `versions`. Returns the exit code; that no server is configured is no error."""
    from gangline.cli.connect.run_work import run_blocking_at
    from gangline.cli.connect.server import NoServer
    from gangline.kube.errors import ConfigError

    try:
        target = find_server(server)
    except NoServer:
        return _report_no_server()
    except ConfigError as error:
        return print_error(error)
    if target.archive is not None:
        return _report_no_server()

    async def work(client: Client, target: ServerTarget) -> int:
        import msgspec

        from gangline.kube.transport.api import Request

        answer = await client.requests.call(Request("GET", "/version"))
        versions["server"] = str(msgspec.json.decode(answer, type=dict[str, str]).get("gitVersion", "unknown"))
        return 0

    return run_blocking_at(target, server, work)


def _report_no_server() -> int:
    click.echo("no server is running", err=True)
    return 0
