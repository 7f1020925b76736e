"""`gangline install`, `gangline upgrade` and `gangline uninstall`: their flags."""

from datetime import timedelta
from typing import Any

import click

from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.exit_codes import SUCCEEDED
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.durations import duration_option
from gangline.cli.flags.server_options import connection_options
from gangline.cli.install.options import check_namespace, install_request, namespace_option, value_options, wait_options
from gangline.cli.install.run import find_installation, run_on_cluster
from gangline.kube.client import Client


@cli_command()
@namespace_option
@value_options
@click.option("--dry-run", is_flag=True, help="Let the server check it; print what would be created; change nothing.")
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["yaml"]),
    help="yaml: print the objects and do nothing; needs no cluster.",
)
@wait_options
@connection_options
def install(server: ServerOptions, **params: Any) -> int:
    r"""Install the operator in a cluster, with the definitions (CRDs) of the jobs and the rights it needs.

    \b
      gangline install                                      for the whole cluster, in namespace gangline
      gangline install --with scheduler                     with the gang scheduler
      gangline install --scope namespace=team-a             without any right in the whole cluster
      gangline install --image registry.example/gangline:0.1.0
      gangline install --set replicaCount=1,logLevel=debug  values are those of the Helm chart
      gangline install --dry-run                            what would be created
      gangline install -o yaml | kubectl apply --server-side -f -

    Waits until the operator is ready, and ends with what `gangline doctor` says. Installing again changes nothing.

    Exit codes: 0 installed; 1 an error, or jobs cannot run; 101 not ready in time.
    """
    from gangline.cli.install.install import InstallMode, yaml_text
    from gangline.cli.install.request import default_namespace, is_namespaced, objects_to_install
    from gangline.cli.output import tables

    request = install_request(params)
    if params["form"]:
        creates_namespace = not is_namespaced(request.values)
        request = request._replace(namespace=request.namespace or default_namespace(request.values))
        wanted = objects_to_install(request, creates_namespace=creates_namespace)
        tables.write_stdout(yaml_text([*wanted.crds, *wanted.objects]))
        return SUCCEEDED
    return _run_install(server, request, InstallMode())


@cli_command()
@namespace_option
@value_options
@click.option("--reset-values", is_flag=True, help="Forget the values of the last installation.")
@click.option("--dry-run", is_flag=True, help="Print what would change as a diff; change nothing.")
@wait_options
@connection_options
def upgrade(server: ServerOptions, reset_values: bool, **params: Any) -> int:
    r"""Bring an installation to the version of this gangline, or change its values.

    \b
      gangline upgrade                            to this version, with the values that were installed
      gangline upgrade --dry-run                  what would change, as a diff
      gangline upgrade --set logLevel=debug       the same version, another value
      gangline upgrade --image registry.example/gangline:0.2.0

    The values of the last installation are kept; flags change some of them. Objects that are no longer part of the
    installation are deleted; CRDs and jobs never are. One minor version back is possible, too: run the upgrade command
    of that version.

    Exit codes: 0 upgraded; 1 an error, or jobs cannot run; 101 not ready in time.
    """
    from gangline.cli.install.install import InstallMode

    return _run_install(server, install_request(params), InstallMode(is_upgrade=True, resets_values=reset_values))


@cli_command()
@namespace_option
@click.option("--delete-crds", is_flag=True, help="Also delete the definitions (CRDs), and with them all jobs.")
@click.option("-y", "--yes", "confirmed", is_flag=True, help="Do not ask before jobs are deleted.")
@click.option("--dry-run", is_flag=True, help="Print what would be deleted; change nothing.")
@duration_option("--timeout", "5m", "How long to wait until the operator has stopped.")
@connection_options
def uninstall(
    server: ServerOptions,
    install_namespace: str | None,
    delete_crds: bool,
    confirmed: bool,
    dry_run: bool,
    timeout: timedelta,
) -> int:
    r"""Remove what `gangline install` has installed. The definitions (CRDs) and all jobs stay.

    \b
      gangline uninstall
      gangline uninstall --dry-run              what would be deleted
      gangline uninstall --delete-crds          also the CRDs and all jobs; asks first

    Pods of jobs run on, but nobody looks after them until an operator is installed again. What stays is printed.

    Exit codes: 0 removed; 1 an error.
    """
    from gangline.cli.install.screen import choose_install_screen
    from gangline.cli.install.uninstall import UninstallRequest
    from gangline.cli.install.uninstall import uninstall as remove
    from gangline.kube.transport.blocking import BlockingClock

    check_namespace(install_namespace or "")
    request = UninstallRequest(install_namespace or "", delete_crds, confirmed, dry_run, timeout)

    async def work(client: Client, target: ServerTarget) -> int:
        namespace = await find_installation(client, target, request.namespace)
        return await remove(client, request._replace(namespace=namespace), choose_install_screen(), BlockingClock())

    return run_on_cluster(server, work)


def _run_install(server: ServerOptions, request: Any, mode: Any) -> int:
    from gangline.cli.install.install import install as run_install
    from gangline.cli.install.request import default_namespace
    from gangline.cli.install.screen import choose_install_screen
    from gangline.kube.transport.blocking import BlockingClock

    async def work(client: Client, target: ServerTarget) -> int:
        namespace = request.namespace
        if mode.is_upgrade:
            namespace = await find_installation(client, target, namespace)
        placed = request._replace(namespace=namespace or default_namespace(request.values))
        return await run_install(client, target, placed, mode, choose_install_screen(), BlockingClock())

    return run_on_cluster(server, work)
